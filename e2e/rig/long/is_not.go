//go:build !long

package long

// Is reports whether the tests were built with the tag long, as by `make test-long`.
const Is = false
