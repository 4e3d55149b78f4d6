package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"

	"steelyard/collectors/modelserver"
	"steelyard/collectors/scrape"
	"steelyard/controlplane/admin"
	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Kept connections of the tests' own HTTP client.
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}

func TestAllListsOfEnginesAreTheSame(t *testing.T) {
	var want []string
	for _, e := range modelserver.Engines() {
		want = append(want, string(e))
	}
	slices.Sort(want)
	for name, got := range map[string][]string{"config": config.Engines(), "discovery": discovery.Engines()} {
		got = slices.Sorted(slices.Values(got))
		if !slices.Equal(got, want) {
			t.Errorf("%s knows the engines %v, want %v", name, got, want)
		}
	}
}

func TestATargetIsWhatTheEndpointSaysThenTheClusterThenTheServingPort(t *testing.T) {
	c := config.Cluster{Name: "llama", Engine: "vllm"}
	c.Scrape = config.Scrape{Interval: 250 * time.Millisecond, Timeout: 200 * time.Millisecond, Scheme: "https", Path: "/metrics", BodyLimit: 4 << 20,
		BearerTokenFile: "token", TLS: &config.ScrapeTLS{ClientTLS: config.ClientTLS{CAFile: "ca"}, InsecureSkipVerify: true}}
	withPort := c
	withPort.Scrape.Port = 9000
	custom := c
	custom.Engine, custom.Custom = "custom", &config.Custom{Queue: "q"}
	base := scrape.Target{
		Cluster: "llama", Address: "10.0.0.1:8000", URL: "https://10.0.0.1:8000/metrics", Engine: "vllm",
		Interval: 250 * time.Millisecond, Timeout: 200 * time.Millisecond, BodyLimit: 4 << 20,
		BearerTokenFile: "token", TLS: scrape.TLS{CAFile: "ca", InsecureSkipVerify: true},
	}
	with := func(change func(*scrape.Target)) scrape.Target { t := base; change(&t); return t }
	tests := []struct {
		name string
		c    config.Cluster
		e    discovery.Endpoint
		want scrape.Target
	}{
		{"serving port", c, discovery.Endpoint{Address: "10.0.0.1:8000"}, base},
		{"cluster's port", withPort, discovery.Endpoint{Address: "10.0.0.1:8000"},
			with(func(t *scrape.Target) { t.URL = "https://10.0.0.1:9000/metrics" })},
		{"endpoint's own", withPort, discovery.Endpoint{Address: "10.0.0.1:8000", Engine: "triton", MetricsPort: 8002, MetricsPath: "/m"},
			with(func(t *scrape.Target) { t.URL, t.Engine = "https://10.0.0.1:8002/m", "triton" })},
		{"IPv6", c, discovery.Endpoint{Address: "[fd00::1]:8000"},
			with(func(t *scrape.Target) { t.Address, t.URL = "[fd00::1]:8000", "https://[fd00::1]:8000/metrics" })},
		{"custom series", custom, discovery.Endpoint{Address: "10.0.0.1:8000"},
			with(func(t *scrape.Target) { t.Engine, t.Custom = "custom", modelserver.Custom{Queue: "q"} })},
	}
	for _, tt := range tests {
		if got := target(tt.c, tt.e); got != tt.want {
			t.Errorf("%s:\n got %+v\nwant %+v", tt.name, got, tt.want)
		}
	}
}

// parse makes a configuration whose listeners take free ports.
func parse(t *testing.T, body string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("test.yaml", []byte("xds: {listen: 127.0.0.1:0}\nadmin: {listen: 127.0.0.1:0}\n"+body))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// serve runs a daemon until the test ends, and returns the base of its admin API.
func serve(t *testing.T, cfg *config.Config) (d *Daemon, base string) {
	t.Helper()
	d, err := New(cfg, Options{Version: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	return d, "http://" + d.AdminAddress()
}

func get(base, path string, into any) error {
	resp, err := http.Get(base + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("never: %s: %v", what, err)
}

const counted = `
redis: {addresses: [%q], interval: 20ms, timeout: 15ms}
clusters:
- name: llama
  endpoints: {static: [{address: 10.0.0.1:80}, {address: 10.0.0.2:80}]}
  scrape: {disabled: true}
  inflight: {redis_key: "inflight:{cluster}"}
`

// sees waits until the first endpoint has this load.
func sees(base string, want float64) func() error {
	return func() error {
		var c admin.Cluster
		if err := get(base, "/api/v1/clusters/llama", &c); err != nil {
			return err
		}
		if got := c.Endpoints[0].Load.Or(-1); got != want {
			return fmt.Errorf("load %v, want %v", got, want)
		}
		return nil
	}
}

func TestAReloadMovesToAnotherRedis(t *testing.T) {
	first, second := miniredis.RunT(t), miniredis.RunT(t)
	for _, address := range []string{"10.0.0.1:80", "10.0.0.2:80"} {
		first.ZAdd("inflight:llama", 3, address)
		second.ZAdd("inflight:llama", 7, address)
	}
	cfg := parse(t, fmt.Sprintf(counted, first.Addr()))
	d, base := serve(t, cfg)
	eventually(t, "the first Redis is read", sees(base, 3))
	if err := d.Apply(parse(t, fmt.Sprintf(counted, second.Addr()))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second Redis is read", sees(base, 7))
}

func TestAReloadThatNeedsARestartIsRefusedWhole(t *testing.T) {
	redis := miniredis.RunT(t)
	d, base := serve(t, parse(t, fmt.Sprintf(counted, redis.Addr())))
	for section, changed := range map[string]func(*config.Config){
		"xds":   func(c *config.Config) { c.XDS.Listen = "127.0.0.1:1" },
		"admin": func(c *config.Config) { c.Admin.Listen = "127.0.0.1:1" },
	} {
		next := parse(t, strings.Replace(fmt.Sprintf(counted, redis.Addr()), "llama", "other", 1))
		changed(next)
		if err := d.Apply(next); err == nil || !strings.Contains(err.Error(), "section "+section) {
			t.Errorf("a change of %s gives %v, want a refusal that names it", section, err)
		}
	}
	var c admin.Cluster
	if err := get(base, "/api/v1/clusters/llama", &c); err != nil {
		t.Errorf("the running cluster did not stay: %v", err)
	}
	var s admin.Status
	if err := get(base, "/api/v1/status", &s); err != nil || s.ConfigGeneration != 1 {
		t.Errorf("generation %d, %v; want still 1", s.ConfigGeneration, err)
	}
}

func TestAPortThatIsTakenIsAnErrorAtTheStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for key, set := range map[string]func(*config.Config){
		"xds.listen":   func(c *config.Config) { c.XDS.Listen = taken.Addr().String() },
		"admin.listen": func(c *config.Config) { c.Admin.Listen = taken.Addr().String() },
	} {
		cfg := parse(t, fmt.Sprintf(counted, "127.0.0.1:1"))
		set(cfg)
		if _, err := New(cfg, Options{Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("error %v, want one that names %s", err, key)
		}
	}
}

func TestADaemonThatIsNotRunIsClosed(t *testing.T) {
	d, err := New(parse(t, fmt.Sprintf(counted, "127.0.0.1:1")), Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d.Close() // and goleak finds nothing left
	if _, err := net.Dial("tcp", d.XDSAddress()); err == nil {
		t.Error("the listener is still open")
	}
}

func TestTheStartCountsAsAGoodReload(t *testing.T) {
	_, base := serve(t, parse(t, fmt.Sprintf(counted, "127.0.0.1:1")))
	eventually(t, "metrics say so", func() error {
		resp, err := http.Get(base + "/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && !strings.Contains(string(text), "\nsteelyard_config_last_reload_successful 1\n") {
			err = fmt.Errorf("no such line")
		}
		return err
	})
}
