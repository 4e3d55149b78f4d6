package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.yaml.in/yaml/v4"

	"steelyard/e2e/rig/proc"
)

// A running is a real Steelyard with two model servers, which only have metrics.
type running struct {
	t       *testing.T
	binary  string
	dir     string // its files: steelyard.yaml, tokens
	admin   string
	xds     string
	servers []string
	served  []*atomic.Int64 // requests of clients, by server
	redis   string          // its address; empty: none
	end     func()
}

const testTokens = "operate anna 0123456789abcdef\nview bob fedcba9876543210\n"

// serveForReal starts the binary, with a Redis if there is an address.
func serveForReal(t *testing.T, redis string) *running {
	t.Helper()
	path, err := proc.BuildSteelyard()
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, binary: path, dir: write(t, map[string]string{"tokens": testTokens,
		"anna": "0123456789abcdef\n", "bob": "fedcba9876543210\n"})}
	for range 2 {
		n := new(atomic.Int64)
		r.served = append(r.served, n)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" {
				n.Add(1)
				return
			}
			fmt.Fprint(w, "vllm:num_requests_waiting 1\nvllm:num_requests_running 2\n")
		}))
		t.Cleanup(s.Close)
		r.servers = append(r.servers, s.Listener.Addr().String())
	}
	r.redis = redis
	r.writeConfig(4)
	r.start()
	return r
}

// start starts the binary, also again after its end.
func (r *running) start() {
	r.t.Helper()
	t := r.t
	ctx, cancel := context.WithCancel(context.Background())
	c := exec.CommandContext(ctx, r.binary, "serve", "-c", filepath.Join(r.dir, "steelyard.yaml"),
		"--log-format", "json")
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	logFile, err := os.Create(filepath.Join(r.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = logFile
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	r.end = sync.OnceFunc(func() {
		cancel()
		_ = c.Wait()
		_ = logFile.Close()
	})
	t.Cleanup(r.end)
	address := regexp.MustCompile(`"msg":"serving","xds":"([^"]+)","admin":"http://([^/"]+)/"`)
	r.eventually("it serves", func() error {
		text, _ := os.ReadFile(logFile.Name())
		m := address.FindSubmatch(text)
		if m == nil {
			return fmt.Errorf("log: %s", text)
		}
		r.xds, r.admin = string(m[1]), string(m[2])
		return nil
	})
	r.eventually("it is ready", func() error {
		if code, out, errs := r.run("", "status", "-o", "json"); code == 2 || !strings.Contains(out, `"ready": true`) {
			return fmt.Errorf("status %d: %s%s", code, out, errs)
		}
		return nil
	})
}

// writeConfig writes the configuration with slots for the second server.
func (r *running) writeConfig(slots int) string {
	text := fmt.Sprintf(`xds: {listen: "127.0.0.1:0"}
admin: {listen: "127.0.0.1:0", tokens_file: tokens, anonymous_view: true}
%sclusters:
- name: llama
  engine: custom
  custom: {queue: "vllm:num_requests_waiting", running: "vllm:num_requests_running"}
  capacity: 4
  endpoints:
    static:
    - {address: "%s"}
    - {address: "%s", capacity: %d}
`, r.redisSection(), r.servers[0], r.servers[1], slots)
	path := filepath.Join(r.dir, fmt.Sprintf("steelyard-%d.yaml", slots))
	if slots == 4 {
		path = filepath.Join(r.dir, "steelyard.yaml")
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

func (r *running) redisSection() string {
	if r.redis == "" {
		return ""
	}
	return "redis: {addresses: [\"" + r.redis + "\"]}\n"
}

// run runs a command against it, with the token of a person or without.
func (r *running) run(person string, args ...string) (code int, stdout, stderr string) {
	r.t.Helper()
	return r.runIn("", person, args...)
}

// runIn is run in a folder.
func (r *running) runIn(dir, person string, args ...string) (code int, stdout, stderr string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, r.binary, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "STEELYARD_ADMIN="+r.admin)
	if person != "" {
		c.Env = append(c.Env, "STEELYARD_TOKEN_FILE="+filepath.Join(r.dir, person))
	}
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

func (r *running) eventually(what string, check func() error) {
	r.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// want runs a command and compares its status and what it says.
func (r *running) want(person string, code int, says string, args ...string) string {
	r.t.Helper()
	got, out, errs := r.run(person, args...)
	if got != code || !strings.Contains(out+errs, says) {
		r.t.Errorf("steelyard %s as %q: status %d, %s%s\nwant %d and %q", strings.Join(args, " "), person, got, out,
			errs, code, says)
	}
	return out
}

func TestTheCommandsAgainstARunningSteelyard(t *testing.T) {
	r := serveForReal(t, "")
	first, second := r.servers[0], r.servers[1]

	r.eventually("nobody follows, which is an incident", func() error {
		if code, out, errs := r.run("", "status"); code != 1 || !strings.Contains(out, "): No Envoy is connected") {
			return fmt.Errorf("%d: %s%s", code, out, errs)
		}
		return nil
	})
	r.want("", 1, "is Steelyard running", "status", "--admin", "127.0.0.1:1")
	r.want("", 1, "does not speak HTTP, as the xDS port does not: write the admin.listen", "status", "--admin", r.xds)
	r.want("", 2, "write the URL of the admin listener", "status", "--admin", "ftp://x")
	r.want("", 2, `--output "jsno": did you mean json?`, "status", "-o", "jsno")
	r.want("", 1, "did you mean llama?", "top", "lama", "--count", "1")
	r.want("", 2, "write steelyard explain CLUSTER ENDPOINT", "explain", "llama")
	r.want("", 1, "nothing is recorded of llama: no Envoy reports without following", "shadow", "llama")
	r.want("", 2, `--envoy-policy "maglev"`, "shadow", "llama", "--envoy-policy", "maglev")
	r.eventually("top has the parts of the capacity", func() error {
		if _, out, errs := r.run("", "top", "llama", "--count", "1"); !strings.Contains(out, "50.0%") {
			return errors.New(out + errs)
		}
		return nil
	})
	r.want("", 0, "1 hears", "explain", "llama", first)
	r.eventually("the start is an event", func() error {
		if code, out, errs := r.run("", "events"); code != 0 || !strings.Contains(out, "Steelyard started") {
			return fmt.Errorf("%d: %s%s", code, out, errs)
		}
		return nil
	})

	r.want("", 1, "did you mean llama?", "events", "--cluster", "lama")
	r.want("", 0, "Nothing would change.", "diff", filepath.Join(r.dir, "steelyard.yaml"))
	doubled := r.writeConfig(8)
	out := r.want("", 0, "capacity: 4 -> 8", "diff", doubled)
	if !strings.Contains(out, "66.7%") || !strings.Contains(out, "33.3%") {
		t.Errorf("diff:\n%s", out)
	}
	piped := exec.CommandContext(t.Context(), "sh", "-c", r.binary+" diff --admin "+r.admin+" - < "+
		filepath.Join(r.dir, "steelyard.yaml"))
	piped.Dir = t.TempDir() // not the folder of the configuration
	if out, err := piped.CombinedOutput(); err != nil || string(out) != "Nothing would change.\n" {
		t.Errorf("diff of what is piped in: %v, %s", err, out)
	}
	bad := filepath.Join(r.dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("pods: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := r.run("", "diff", bad); code != 1 || !strings.HasPrefix(errs, bad+":1:1: ") {
		t.Errorf("diff of a bad file: %d %s", code, errs)
	}
	r.overrides(first, second)
	r.logLevel()
}

// overrides drains and pins with and without the right to.
func (r *running) overrides(first, second string) {
	r.t.Helper()
	r.want("", 1, "token", "drain", "llama", first)
	r.want("bob", 1, "role", "drain", "llama", first)
	r.want("anna", 0, "is drained until", "drain", "llama", first, "--for", "10m", "--reason", "new driver")
	r.eventually("the drain is in effect", func() error {
		_, out, errs := r.run("", "explain", "llama", first, "-o", "json")
		var x struct {
			Endpoint struct {
				Reason string  `json:"reason"`
				Share  float64 `json:"share"`
			} `json:"endpoint"`
		}
		if err := json.Unmarshal([]byte(out), &x); err != nil {
			return fmt.Errorf("%w: %s", err, errs)
		}
		if x.Endpoint.Reason != "drained" || x.Endpoint.Share != 0 {
			return fmt.Errorf("%+v", x)
		}
		return nil
	})
	r.wantOverrideEvents("drained by anna until")
	r.want("", 0, "drained", "top", "llama", "--count", "1")
	out := r.want("", 1, "new driver", "status", "-o", "yaml")
	var status struct {
		Overrides []struct{ Address, By, Kind string } `yaml:"overrides"`
	}
	if err := yaml.Unmarshal([]byte(out), &status); err != nil || len(status.Overrides) != 1 ||
		status.Overrides[0].Address != first || status.Overrides[0].By != "anna" ||
		status.Overrides[0].Kind != "drain" {
		r.t.Errorf("status in YAML: %+v, %v", status, err)
	}
	r.want("anna", 0, "This replaces what anna decided: drained until ", "drain", "llama", first)
	r.want("anna", 0, "UTC\n", "drain", "llama", first, "--reason", "new driver")
	r.want("anna", 1, "is the last endpoint of cluster llama that is not drained", "drain", "llama", second)
	r.want("anna", 1, "has no endpoint 10.9.9.9:1", "drain", "llama", "10.9.9.9:1")
	r.want("anna", 0, "is not drained any more", "undrain", "llama", first)
	r.want("anna", 1, "neither drained nor pinned", "undrain", "llama", first)
	r.want("anna", 0, "is pinned to 5.0%", "pin", "llama", first, "--share", "5%")
	r.eventually("the pin is in effect", func() error {
		if _, out, _ := r.run("", "explain", "llama", first); !strings.Contains(out, "5.0% in this decision") {
			return errors.New(out)
		}
		return nil
	})
	r.want("anna", 2, "write a part of the requests", "pin", "llama", first, "--share", "5")
	r.wantOverrideEvents("drained by anna until", "not drained any more, by anna",
		"pinned to 5 % of the requests by anna")
}

// wantOverrideEvents waits until each change by hand is one event, with who made it.
func (r *running) wantOverrideEvents(wants ...string) {
	r.t.Helper()
	r.eventually("there are the events", func() error {
		_, out, _ := r.run("", "events", "--kind", "override")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != len(wants) {
			return errors.New(out)
		}
		for i, want := range wants {
			if !strings.Contains(lines[i], want) {
				return errors.New(out)
			}
		}
		return nil
	})
}

func (r *running) logLevel() {
	r.t.Helper()
	r.want("", 0, "info\n", "log-level")
	r.want("bob", 1, "role", "log-level", "debug")
	r.want("anna", 0, "debug\n", "log-level", "debug")
	r.want("anna", 2, `LEVEL "loud": write one of`, "log-level", "loud")
	r.end()
	text, err := os.ReadFile(filepath.Join(r.dir, "log"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, want := range []string{`"msg":"admin operation","by":"anna"`, `"msg":"log level changed"`,
		`"msg":"override"`} {
		if !bytes.Contains(text, []byte(want)) {
			r.t.Errorf("the log lacks %s:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "0123456789abcdef") {
		r.t.Error("a token is in the log")
	}
}

// A shell asks the program for the values of arguments and options.
func TestNamesAndWordsAreCompleted(t *testing.T) {
	r := serveForReal(t, "")
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"top", ""}, []string{"llama"}},
		{[]string{"drain", "llama", ""}, r.servers},
		{[]string{"explain", "llama", ""}, r.servers},
		{[]string{"log-level", ""}, []string{"debug", "info", "warn", "error"}},
		{[]string{"status", "-o", ""}, []string{"table", "json", "yaml"}},
		{[]string{"inspect", "--engine", ""}, []string{"vllm", "triton", "custom"}},
		{[]string{"bootstrap", "--mode", ""}, []string{"failsafe", "shedding"}},
		{[]string{"simulate", "--scenario", ""}, []string{"photoroom", "llm"}},
		{[]string{"events", "--kind", ""}, []string{"flagged", "override"}},
		{[]string{"events", "--cluster", ""}, []string{"llama"}},
		{[]string{"inspect", "-c", filepath.Join(r.dir, "steelyard.yaml"), "--cluster", ""}, []string{"llama"}},
		{[]string{"simulate", "-c", filepath.Join(r.dir, "steelyard.yaml"), "--cluster", ""}, []string{"llama"}},
		{[]string{"simulate", "--policy", ""}, []string{"least_request", "steelyard@50ms"}},
		{[]string{"bootstrap", "--form", ""}, []string{"static", "cds", "ads"}},
	} {
		_, out, _ := r.run("", append([]string{"__complete"}, c.args...)...)
		for _, want := range c.want {
			if !strings.Contains(out, want+"\n") {
				t.Errorf("%q: %q is not in %q", c.args, want, out)
			}
		}
	}
}

// A real Envoy sends a drained endpoint nothing, and shows it as draining.
func TestADrainReachesARealEnvoy(t *testing.T) {
	r := serveForReal(t, "")
	code, text, errs := r.run("", "bootstrap", "--cluster", "llama", "--xds", r.xds, "--listen", "127.0.0.1:0",
		"--admin", "127.0.0.1:0", "--node-id", "edge-1")
	if code != 0 {
		t.Fatal(errs)
	}
	envoy, err := proc.StartEnvoy(t.Context(), proc.EnvoyConfig{Bootstrap: []byte(text), Dir: r.dir, Name: "edge-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer envoy.Kill()
	r.eventually("the Envoy follows", func() error {
		if code, out, errs := r.run("", "status"); code != 0 || !strings.Contains(out, "follows") {
			return fmt.Errorf("%d: %s%s", code, out, errs)
		}
		return nil
	})
	address, err := envoy.Listener(t.Context(), "ingress")
	if err != nil {
		t.Fatal(err)
	}
	send := func(n int) (first, second int64) {
		t.Helper()
		was := []int64{r.served[0].Load(), r.served[1].Load()}
		for range n {
			response, err := http.Get("http://" + address + "/v1/completions")
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("%v, %v", response, err)
			}
			_ = response.Body.Close()
		}
		return r.served[0].Load() - was[0], r.served[1].Load() - was[1]
	}
	r.eventually("both serve", func() error {
		if first, second := send(20); first == 0 || second == 0 {
			return fmt.Errorf("%d and %d requests", first, second)
		}
		return nil
	})
	r.want("anna", 0, "drained", "drain", "llama", r.servers[0])
	r.eventually("Envoy drains it", func() error {
		if first, second := send(20); first > 0 {
			return fmt.Errorf("%d and %d requests", first, second)
		}
		return nil
	})
	if first, second := send(100); first != 0 || second != 100 {
		t.Errorf("%d requests to the drained endpoint and %d to the other", first, second)
	}
	r.want("anna", 0, "not drained any more", "undrain", "llama", r.servers[0])
	r.eventually("both serve again", func() error {
		if first, second := send(20); first == 0 || second == 0 {
			return fmt.Errorf("%d and %d requests", first, second)
		}
		return nil
	})
}

func TestADrainOutlivesARestartInRedis(t *testing.T) {
	server, err := proc.StartRedis(t.Context(), proc.RedisConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Kill()
	client := redis.NewClient(&redis.Options{Addr: server.Address()})
	defer client.Close()
	kept := func() ([]string, error) {
		keys, err := client.HKeys(t.Context(), "steelyard:overrides").Result()
		return slices.DeleteFunc(keys, func(k string) bool { return !strings.Contains(k, " ") }), err
	}
	r := serveForReal(t, server.Address())
	r.want("anna", 0, "until", "drain", "llama", r.servers[0], "--for", "1h", "--reason", "new driver")
	r.want("anna", 0, "until", "pin", "llama", r.servers[1], "--share", "50%", "--for", "2s")
	if keys, err := kept(); err != nil || len(keys) != 2 {
		t.Errorf("in Redis: %q, %v", keys, err)
	}
	r.end()
	r.start()
	r.eventually("the drain is back", func() error {
		_, out, _ := r.run("", "status")
		if !strings.Contains(out, "new driver") || !strings.Contains(out, "anna") {
			return errors.New(out)
		}
		return nil
	})
	r.eventually("the pin has ended", func() error {
		keys, err := kept()
		if err != nil {
			return fmt.Errorf("in Redis: %w", err)
		}
		if len(keys) != 1 {
			return fmt.Errorf("in Redis: %q", keys)
		}
		return nil
	})
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r.eventually("the drain is in an emptied Redis again", func() error {
		if keys, err := kept(); err != nil || len(keys) != 1 {
			return fmt.Errorf("%q", keys)
		}
		return nil
	})
	r.want("anna", 0, "not drained any more", "undrain", "llama", r.servers[0])
	r.eventually("Redis has none", func() error {
		if keys, _ := kept(); len(keys) != 0 {
			return fmt.Errorf("%q", keys)
		}
		return nil
	})
}
