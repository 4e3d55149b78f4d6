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

// Start runs a program.
func Start(t testing.TB, spec proc.Spec) *proc.Process {
	t.Helper()
	if spec.Dir == "" {
		spec.Dir = Dir(t)
	}
	return started(t)(proc.Start(spec))
}

// Envoy runs an Envoy that is live.
func Envoy(t testing.TB, c proc.EnvoyConfig) *proc.Envoy {
	t.Helper()
	if c.Dir == "" {
		c.Dir = Dir(t)
	}
	e, err := proc.StartEnvoy(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, e)
	return e
}

// Redis runs a redis-server.
func Redis(t testing.TB, c proc.RedisConfig) *proc.Redis {
	t.Helper()
	if c.Dir == "" {
		c.Dir = Dir(t)
	}
	r, err := proc.StartRedis(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, r)
	return r
}

// Triton runs a Triton with its models loaded.
func Triton(t testing.TB, c proc.TritonConfig) *proc.Triton {
	t.Helper()
	if c.Dir == "" {
		c.Dir = Dir(t)
	}
	s, err := proc.StartTriton(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, s)
	return s
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
	if c.Dir == "" {
		c.Dir = Dir(t)
	}
	return started(t)(proc.StartSteelyard(t.Context(), c))
}

func started(t testing.TB) func(*proc.Process, error) *proc.Process {
	return func(p *proc.Process, err error) *proc.Process {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		stopAtEnd(t, p)
		return p
	}
}

// stopAtEnd fails the test when the process has to be killed.
func stopAtEnd(t testing.TB, p interface{ Stop() error }) {
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
}
