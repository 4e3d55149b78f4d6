package simulate

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The goldens are what users see, so they are kept as text to be read. Rewrite
// them only after reading every line that changed:
//
//	go test ./cmd/internal/simulate -update
//
// The files in testdata/simulated are the simulator's output; the rest is made of
// given results. Nothing there hangs on the law, which may change without them.
var update = flag.Bool("update", false, "rewrite the goldens")

// golden compares with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got, -update to accept):\n%s", path, diff)
	}
}
