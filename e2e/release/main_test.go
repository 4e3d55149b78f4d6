// Package release tests what is released, and the demos.
package release

import (
	"testing"

	"steelyard/e2e/rig/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }
