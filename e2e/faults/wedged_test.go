package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/testbed"
	"steelyard/internal/api"
)

// A patch replaces a text of a source file, which must have it once.
type patch struct{ file, old, new string }

// patched builds the steelyard binary with patches, for a fault that cannot be made from outside.
func patched(t *testing.T, patches ...patch) (binary string) {
	t.Helper()
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var overlay struct{ Replace map[string]string }
	overlay.Replace = make(map[string]string)
	for i, p := range patches {
		path := filepath.Join(root, p.file)
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), p.old); n != 1 {
			t.Fatalf("%s has %q %d times, want once: write another patch", p.file, p.old, n)
		}
		fresh := filepath.Join(dir, fmt.Sprint(i, ".go"))
		if err := os.WriteFile(fresh, []byte(strings.Replace(string(source), p.old, p.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[path] = fresh
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, text, 0o600); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "steelyard")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", list, "-o", binary, "./cmd/steelyard")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building steelyard with patches: %v\n%s", err, out)
	}
	return binary
}

// TestAReloadThatIsWedgedFailsHealthzByNameAndNothingElse: the binary has a reload that never ends when it removes a
// certain cluster, and notices it after 3 s instead of 30.
func TestAReloadThatIsWedgedFailsHealthzByNameAndNothingElse(t *testing.T) {
	t.Parallel()
	const wedged = "- name: wedged\n  engine: vllm\n  endpoints: {static: [{address: 127.0.0.1:9}]}\n"
	pool := testbed.Pool(t, 2)
	f := start(t, testbed.Plan{Servers: pool, More: wedged, Binary: patched(t,
		patch{"controlplane/manager.go", "m.publisher.Remove(r.name)",
			`if r.name == "wedged" { select {} }; m.publisher.Remove(r.name)`},
		patch{"controlplane/liveness/monitor.go", "patience = 30 ", "patience = 3 "},
	)})
	traffic := f.Send(load.Plan{Rate: 50, Work: load.Work{Mean: 5 * time.Millisecond}, Seed: 8})
	if _, err := f.Answer("/healthz"); err != nil {
		t.Error(err)
	}
	f.Plan.More = ""
	f.WriteConfig("")
	began := time.Now()
	f.Eventually("/healthz names the reload", func() error {
		code, body, err := f.ask("/healthz")
		if err == nil && (code != http.StatusServiceUnavailable ||
			!strings.HasPrefix(body, "stuck, restart it\nreload of the configuration: no progress for ") ||
			strings.Count(body, "\n") != 2) {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
	t.Logf("after %v", time.Since(began))
	err := f.HasProblem(api.SeverityError, "Steelyard is stuck: ", "reload of the configuration: no progress for ")
	if err != nil {
		t.Error(err)
	}
	f.pushed(0)
	if requests, failed := traffic.Stop(t); failed != 0 || requests == 0 {
		t.Errorf("%d of %d requests failed", failed, requests)
	}
	f.stopWithin(2 * time.Second) // the limit of a stop, and the patience for a reload
}

// ask asks the admin API for any answer.
func (f *fleet) ask(path string) (code int, body string, err error) {
	resp, err := http.Get("http://" + f.Admin + path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}
