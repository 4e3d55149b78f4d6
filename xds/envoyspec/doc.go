// Package envoyspec holds measured properties of Envoy 1.40 and the settings that follow from them: which weights it
// accepts, what a push costs it, when it sends requests to flagged endpoints. It is pure, so that the streams, the
// simulator and the page use the same numbers.
package envoyspec
