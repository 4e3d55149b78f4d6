package proc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/internal/engines"
)

func ping(t *testing.T, addr string) error {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, DialTimeout: time.Second,
		ReadTimeout: 200 * time.Millisecond})
	defer client.Close()
	return client.Ping(t.Context()).Err()
}

// proxyTo returns a bootstrap of an Envoy in front of one endpoint, all ports chosen
// by the kernel.
func proxyTo(endpoint string) []byte {
	host, port, _ := strings.Cut(endpoint, ":")
	return fmt.Appendf(nil, `
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
static_resources:
  listeners:
  - name: front
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: hcm
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: back}}]}
  clusters:
  - name: back
    type: STATIC
    load_assignment:
      cluster_name: back
      endpoints:
      - locality: {zone: z1}
        lb_endpoints:
        - endpoint: {address: {socket_address: {address: %s, port_value: %s}}}
          load_balancing_weight: 7
          health_status: DEGRADED
`, host, port)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestEnvoyServesAndShowsItsHostsAndStats(t *testing.T) {
	back := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(back.Close)
	endpoint := back.Listener.Addr().String()
	envoy := proctest.Envoy(t, proc.EnvoyConfig{Bootstrap: proxyTo(endpoint)})

	addr, err := envoy.Listener(t.Context(), "front")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if code, body := get(t, "http://"+addr+"/"); code != http.StatusOK {
			t.Fatalf("answer %d %s", code, body)
		}
	}

	clusters, err := envoy.Clusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := proc.Host{Address: endpoint, Weight: 7, Zone: "z1", Health: "DEGRADED", Requests: 3, Connections: 1}
	if hosts := clusters["back"]; len(hosts) != 1 || hosts[0] != want {
		t.Errorf("hosts %+v, want %+v", hosts, want)
	}

	stats, err := envoy.Stats(t.Context(), `^cluster\.back\.(upstream_rq_total|membership_degraded|upstream_rq_time)$`)
	if err != nil {
		t.Fatal(err)
	}
	if len(stats) != 2 || stats["cluster.back.upstream_rq_total"] != 3 ||
		stats["cluster.back.membership_degraded"] != 1 {
		t.Errorf("stats %v, want 3 requests, 1 degraded and no histogram", stats)
	}

	if _, err := envoy.Post(t.Context(), "/reset_counters", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := envoy.Listener(t.Context(), "rear"); err == nil {
		t.Error("a listener that does not exist has an address")
	}
}

func TestEnvoyThatRefusesItsBootstrapIsReportedInItsWords(t *testing.T) {
	const broken = "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}\nno_such_field: 1\n"
	_, err := proc.StartEnvoy(t.Context(),
		proc.EnvoyConfig{Bootstrap: []byte(broken), Dir: proctest.Dir(t), Name: "odd"})
	if err == nil || !strings.Contains(err.Error(), "odd ended before it was ready") ||
		!strings.Contains(err.Error(), "no_such_field") {
		t.Errorf("error %v, want one with Envoy's words", err)
	}
	_, err = proc.ValidateEnvoy(t.Context(), proctest.Dir(t), []byte(broken))
	if err == nil || !strings.Contains(err.Error(), "no_such_field") {
		t.Errorf("validation error %v, want one with Envoy's words", err)
	}
}

func TestTheEnvoyOfTheRigIsTheOneThatTheProjectIsTestedWith(t *testing.T) {
	path, err := proc.Find(proc.ProgramEnvoy)
	if err != nil {
		t.Fatal(err)
	}
	build, err := proc.EnvoyBuild(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(build, "/"+proc.EnvoyVersion+".") {
		t.Errorf("%s says %q; the tests of weights and flags hold for %s", path, build, proc.EnvoyVersion)
	}
}

func TestRedisFreezesDiesAndComesBackAtItsAddress(t *testing.T) {
	dir := proctest.Dir(t)
	r := proctest.Redis(t, proc.RedisConfig{Dir: dir})
	if err := ping(t, r.Address()); err != nil {
		t.Fatal(err)
	}
	if err := r.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := ping(t, r.Address()); err == nil {
		t.Error("a paused server answers")
	}
	if err := r.Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return ping(t, r.Address()) })
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := ping(t, r.Address()); err == nil {
		t.Error("a killed server answers")
	}
	again := proctest.Redis(t, proc.RedisConfig{Dir: dir, Address: r.Address()})
	if err := ping(t, again.Address()); err != nil {
		t.Error(err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*.rdb")); len(files) > 0 {
		t.Errorf("it wrote %v", files)
	}
}

func TestRedisWithAPasswordIsReady(t *testing.T) {
	r := proctest.Redis(t, proc.RedisConfig{Args: []string{"--requirepass", "secret"}})
	client := redis.NewClient(&redis.Options{Addr: r.Address(), Password: "secret"})
	defer client.Close()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

func TestTritonQueuesWhatItsOneInstanceCannotExecute(t *testing.T) {
	triton := proctest.Triton(t, proc.TritonConfig{})
	if code, body := get(t, "http://"+triton.HTTP+engines.HealthPath(engines.Triton)); code != http.StatusOK {
		t.Errorf("asked for its health, it answers %d: %s", code, body)
	}
	const requests = 4
	done := make(chan error, requests)
	for range requests {
		go func() { done <- infer(t.Context(), triton.HTTP, "sleeper", "[1]", 500) }()
	}
	eventually(t, func() error {
		_, body := get(t, "http://"+triton.Metrics+"/metrics")
		// One executes, and the gauge counts those that wait.
		if !strings.Contains(body, `nv_inference_pending_request_count{model="sleeper",version="1"} 3`) {
			return errors.New("no queue of 3 was seen")
		}
		return nil
	})
	for range requests {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := infer(t.Context(), triton.HTTP, "batcher", "[1,1]", 1); err != nil {
		t.Error(err)
	}
	if err := triton.Stop(); err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(triton.HTTP, ":")
	if left, _ := filepath.Glob("/dev/shm/steelyard" + port + "*"); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}

func infer(ctx context.Context, addr, model, shape string, ms int) error {
	body := fmt.Sprintf(`{"inputs":[{"name":"DELAY_MS","shape":%s,"datatype":"INT32","data":[%d]}]}`, shape, ms)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v2/models/"+model+"/infer",
		strings.NewReader(body))
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, answer)
	}
	return err
}
