// Package envoybootstrap holds the Envoy configurations that go with Steelyard:
// the template behind `steelyard bootstrap`, and beside it what that command
// prints, as files that run as they are.
package envoybootstrap
