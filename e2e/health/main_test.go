// Package health tests which endpoints are flagged and get no requests, and which requests an overloaded pool refuses.
package health

import (
	"testing"

	"steelyard/e2e/rig/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }

// A fleet is the testbed's, with what these tests ask of it.
type fleet struct{ *testbed.Fleet }

func start(t *testing.T, p testbed.Plan) *fleet {
	t.Helper()
	return &fleet{testbed.Start(t, p)}
}
