// Package golden compares what a test gets with files that are kept to be read: what users see, and what is derived
// from something else. The flag -update of go test rewrites them, which is for those who can say why each line changed.
package golden

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files; understand first what changed")

// Check compares with a file.
func Check(t testing.TB, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (-update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got, -update to accept):\n%s", path, diff)
	}
}

// CheckBlock compares with the part of a file between two lines, <!-- NAME --> and <!-- end of NAME -->.
func CheckBlock(t testing.TB, path, name, got string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), "<!-- "+name+" -->\n")
	_, after, ends := strings.Cut(rest, "<!-- end of "+name+" -->\n")
	if !begins || !ends {
		t.Fatalf("%s has no lines <!-- %s --> and <!-- end of %s -->", path, name, name)
	}
	Check(t, path, before+"<!-- "+name+" -->\n"+got+"<!-- end of "+name+" -->\n"+after)
}
