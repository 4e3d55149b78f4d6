package modelserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"steelyard/e2e/rig/golden"
)

// TestRecordedBodies reads every body that was recorded from a real server, and
// those written by hand, with every engine. Reading with the wrong engine must
// end in an error that a person can act on.
func TestRecordedBodies(t *testing.T) {
	var files []string
	for _, dir := range []string{"recorded", "handmade"} {
		found, err := filepath.Glob(filepath.Join("testdata", dir, "*.prom"))
		if err != nil || len(found) == 0 {
			t.Fatalf("no bodies in testdata/%s (error %v)", dir, err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".prom")
		t.Run(name, func(t *testing.T) {
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, e := range Engines() {
				fmt.Fprintf(&got, "# read as %s\n", e)
				describe(&got, newReader(t, e), body)
			}
			golden.Check(t, filepath.Join("testdata", "golden", name+".txt"), got.String())
		})
	}
}

// describe writes the explanation as a table, or the error.
func describe(w *strings.Builder, r *Reader, body []byte) {
	fields, err := r.Explain(body)
	if err != nil {
		fmt.Fprintf(w, "error: %v\n\n", err)
		return
	}
	for _, f := range fields {
		if !f.Value.Known {
			fmt.Fprintf(w, "%-14s unknown: %s\n", f.Field, f.Problem)
			continue
		}
		fmt.Fprintf(w, "%-14s %v = %s of %d: %s\n", f.Field, f.Value.Value, f.Combine, f.Samples,
			strings.Join(f.Series, " + "))
	}
	w.WriteString("\n")
}
