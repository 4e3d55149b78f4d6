// Package router tests `steelyard router` with real processes in front of it and behind it.
package router

import (
	"net/http"
	"os"
	"testing"

	"steelyard/e2e/rig/testbed"
)

// asBackend has this program, started again, answer all requests at once at the address that the variable names.
const asBackend = "STEELYARD_TEST_BACKEND"

func TestMain(m *testing.M) {
	if address := os.Getenv(asBackend); address != "" {
		panic(http.ListenAndServe(address, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	}
	testbed.Main(m)
}
