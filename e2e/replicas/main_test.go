// Package replicas tests what control planes share with each other, and with pickers through Redis.
package replicas

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

func withoutEnvoys(t *testing.T, p testbed.Plan) *fleet {
	t.Helper()
	return &fleet{testbed.WithoutEnvoys(t, p)}
}
