// Package proctest starts the rig's processes for a test: each function fails the test if the process does not become
// ready, and stops it at the test's end. A failed test prints the end of every log.
package proctest

import (
	"os"
	"path/filepath"
	"testing"

	"steelyard/e2e/rig/proc"
)

// logBytes bounds how much of each log a failed test prints.
const logBytes = 8 << 10

// Dir returns a folder for a test's processes, removed at its end. When the test has
// failed, the logs in it are printed first.
func Dir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		if t.Failed() {
			printLogs(t, dir)
		}
	})
	return dir
}

func printLogs(t testing.TB, dir string) {
	logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, path := range logs {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Logf("%s: %v", path, err)
			continue
		}
		t.Logf("end of %s:\n%s", filepath.Base(path), b[max(0, len(b)-logBytes):])
	}
}

// useDir sets a folder that is not given.
func useDir(t testing.TB, dir *string) {
	t.Helper()
	if *dir == "" {
		*dir = Dir(t)
	}
}

// Start runs a program.
func Start(t testing.TB, spec proc.Spec) *proc.Process {
	t.Helper()
	useDir(t, &spec.Dir)
	return started[*proc.Process](t)(proc.Start(spec))
}

// Envoy runs an Envoy that is live.
func Envoy(t testing.TB, c proc.EnvoyConfig) *proc.Envoy {
	t.Helper()
	useDir(t, &c.Dir)
	return started[*proc.Envoy](t)(proc.StartEnvoy(t.Context(), c))
}

// Redis runs a redis-server.
func Redis(t testing.TB, c proc.RedisConfig) *proc.Redis {
	t.Helper()
	useDir(t, &c.Dir)
	return started[*proc.Redis](t)(proc.StartRedis(t.Context(), c))
}

// Triton runs a Triton with its models loaded.
func Triton(t testing.TB, c proc.TritonConfig) *proc.Triton {
	t.Helper()
	useDir(t, &c.Dir)
	return started[*proc.Triton](t)(proc.StartTriton(t.Context(), c))
}

// Steelyard runs `steelyard serve`, built from the checkout.
func Steelyard(t testing.TB, c proc.SteelyardConfig) *proc.Process {
	t.Helper()
	if c.Path == "" {
		path, err := proc.BuildSteelyard()
		if err != nil {
			t.Fatal(err)
		}
		c.Path = path
	}
	useDir(t, &c.Dir)
	return started[*proc.Process](t)(proc.StartSteelyard(t.Context(), c))
}

// started returns a function that takes the outcome of a start, and fails the test when the process has to be killed
// at its end.
func started[P interface{ Stop() error }](t testing.TB) func(P, error) P {
	return func(p P, err error) P {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
		})
		return p
	}
}
