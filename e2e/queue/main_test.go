// Package queue tests which requests wait, in which order they are sent, and what ends their waiting.
package queue

import (
	"testing"

	"steelyard/e2e/rig/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }
