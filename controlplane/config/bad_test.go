package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"steelyard/e2e/rig/golden"
)

// The messages are what this package is for, so they are kept as text to be
// read: testdata/bad/NAME.err is the whole error of testdata/bad/NAME.yaml.
// Rewrite them only after reading every line that changed:
//
//	go test ./controlplane/config -run TestBadFiles -update
func badFiles(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata/bad/*.yaml: %d files, error %v", len(files), err)
	}
	return files
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestBadFilesAreRefusedWithWhatToWriteInstead(t *testing.T) {
	for _, path := range badFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			cfg, err := Parse(filepath.Base(path), readFile(t, path))
			if err == nil || cfg != nil {
				t.Fatalf("got %+v and no error", cfg)
			}
			golden.Check(t, strings.TrimSuffix(path, ".yaml")+".err", err.Error()+"\n")
			checkProblems(t, err)
		})
	}
}

// checkProblems asserts what holds for every error of Parse.
func checkProblems(t *testing.T, err error) {
	t.Helper()
	var all *Error
	if !errors.As(err, &all) {
		t.Fatalf("the error is a %T", err)
	}
	if len(all.Problems) == 0 {
		t.Error("an error without a problem")
	}
	if !slices.IsSortedFunc(all.Problems, func(a, b *Problem) int { return a.Line - b.Line }) {
		t.Error("problems are not sorted by line")
	}
	if lines := strings.Count(err.Error(), "\n") + 1; lines > shownProblems+1 {
		t.Errorf("%d lines of text", lines)
	}
	for _, p := range all.Problems {
		if p.Line < 1 || p.Column < 1 || p.Text == "" || strings.ContainsAny(p.Text, "\n\r\x00") {
			t.Errorf("problem %+v", p)
		}
	}
}
