// Package envoyspec holds what was measured of Envoy 1.40 as a consumer of assignments: which
// weights it takes, and what a push costs it. It is pure, and imports the standard library only,
// so that the simulator and the streams use the same numbers.
package envoyspec
