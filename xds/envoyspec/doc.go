// Package envoyspec holds measured properties of Envoy 1.40: which weights it accepts, and what a push costs it. It is
// pure, so that the simulator and the streams use the same numbers.
package envoyspec
