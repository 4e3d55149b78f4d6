package testbed

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"steelyard/e2e/rig/proc"
)

// WithChangedModule builds the module with another text in one of its files, and has Envoys that the test starts find
// it in the folder that it returns.
func WithChangedModule(t *testing.T, file string, beforeAfter ...string) (folder string) {
	t.Helper()
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir, source := t.TempDir(), filepath.Join(root, "envoy-module", file)
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	changed := string(text)
	for change := range slices.Chunk(beforeAfter, 2) {
		before := changed
		if changed = strings.Replace(before, change[0], change[1], 1); changed == before {
			t.Fatalf("%s has no %s", source, change[0])
		}
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {source: filepath.Join(dir, file)}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{file: []byte(changed), "overlay.json": overlay} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"),
		"-buildmode=c-shared", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "libsteelyard.so"), ".")
	build.Dir, build.Env = filepath.Dir(source), append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the module: %v\n%s", err, out)
	}
	t.Setenv(proc.ModulePath, dir)
	return dir
}

// ValidateModule has Envoy validate a configuration with the module in a folder, and returns what it writes.
func ValidateModule(t *testing.T, folder string) (out []byte, err error) {
	t.Helper()
	envoy, err := proc.Find(proc.ProgramEnvoy)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "envoy.yaml")
	text := Run(t, "bootstrap", "--cluster", Cluster, "--xds", "127.0.0.1:1", "--module")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	validate := exec.CommandContext(t.Context(), envoy, "--mode", "validate", "-c", config)
	validate.Env = append(os.Environ(), proc.ModulePath+"="+folder)
	return validate.CombinedOutput()
}

// WithModule builds the module, and has Envoys that the test starts find it.
func WithModule(t *testing.T) {
	t.Helper()
	folder, err := proc.BuildModule()
	if err != nil {
		t.Fatal(err)
	}
	// It stays: tests that run at the same time have the same module.
	if err := os.Setenv(proc.ModulePath, folder); err != nil {
		t.Fatal(err)
	}
}
