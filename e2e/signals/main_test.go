// Package signals tests that the requests in flight are counted right, whatever real Envoys and their clients do.
package signals

import (
	"testing"

	"steelyard/e2e/rig/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }
