package simulate

import (
	"testing"

	"go.uber.org/goleak"
)

// The goldens are what users see, so they are kept as text to be read. Rewrite
// them only after reading every line that changed:
//
//	go test ./cmd/internal/simulate -update
//
// The files in testdata/simulated are the simulator's output; the rest is made of
// given results. Nothing there hangs on the law, which may change without them.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
