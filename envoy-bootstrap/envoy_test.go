package envoybootstrap

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"steelyard/e2e/rig/certs"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to come.
const patience = 30 * time.Second

// eventually waits until check returns nil.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// accepted fails the test unless the real Envoy takes the bootstrap without a word
// of deprecation.
func accepted(t *testing.T, bootstrap []byte) {
	t.Helper()
	said, err := proc.ValidateEnvoy(t.Context(), t.TempDir(), bootstrap)
	if err != nil {
		t.Fatalf("%v\nof the bootstrap\n%s", err, bootstrap)
	}
	if strings.Contains(strings.ToLower(said), "deprecated") {
		t.Errorf("Envoy warns: %s", said)
	}
}

func TestEnvoyAcceptsTheShippedFiles(t *testing.T) {
	for _, file := range []string{"failsafe.yaml", "shedding.yaml"} {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			accepted(t, text)
		})
	}
}

// existingListener goes on where a file ends that begins static_resources.
const existingListener = proctest.Listener + `          route_config:
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: %s, timeout: 0s}}]}
          http_filters:
` + proctest.RouterFilter

// forTheRouter is the text that a reader is to put into the router filter: the
// comment at the top that is indented as YAML.
func forTheRouter(text []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if line, found := strings.CutPrefix(line, "#     "); found {
			b.WriteString(strings.Repeat(" ", 14) + line)
		}
	}
	return b.String()
}

func TestEnvoyAcceptsWhatIsAttachedToAnotherConfiguration(t *testing.T) {
	text, err := os.ReadFile("attach.yaml")
	if err != nil {
		t.Fatal(err)
	}
	bootstrap := fmt.Appendf(nil, proctest.Existing+"%s"+existingListener+"%s", text, "llama_failsafe",
		forTheRouter(text))
	accepted(t, bootstrap)
	if got := router(t, decode(t, bootstrap)); len(got.GetUpstreamLog()) != 2 ||
		!got.GetUpstreamLogOptions().GetFlushUpstreamLogOnUpstreamStream() {
		t.Errorf("the router filter is %v, want an upstream log in two forms with entries at the beginning", got)
	}
	o := llama(ModeShedding)
	o.NoUpstreamLog, o.NoLoadReports, o.NoRuntime = true, true, true
	text, err = RenderAttach(o)
	if err != nil {
		t.Fatal(err)
	}
	if lines := forTheRouter(text); lines != "" {
		t.Errorf("without an upstream log there are lines for the router filter:\n%s", lines)
	}
	accepted(t, fmt.Appendf(nil, proctest.Existing+"%s"+existingListener, text, "llama"))
}

func TestEnvoyAcceptsEveryCombinationOfOptions(t *testing.T) {
	pki := newPKI(t)
	secured := map[string]TLS{
		"plain": {},
		"tls":   {CAFile: pki.ca, ServerName: "steelyard.svc"},
		"mtls":  {CAFile: pki.ca, CertFile: pki.cert, KeyFile: pki.key},
	}
	for name, tlsOptions := range secured {
		for _, mode := range []Mode{ModeFailsafe, ModeShedding} {
			for _, policy := range []Policy{PolicyRoundRobin, PolicyLeastRequest} {
				for _, rest := range []Options{
					{XDS: "127.0.0.1:18000"},
					{XDS: "steelyard.svc:18000", Listen: "[::1]:0", Admin: "[::1]:0", Zone: "a", NodeID: "n",
						AccessLog: true, IdleTimeout: time.Minute,
						NoUpstreamLog: policy == PolicyRoundRobin, NoLoadReports: mode == ModeShedding,
						NoRuntime: policy == PolicyLeastRequest},
				} {
					o := rest
					o.Cluster, o.Mode, o.Policy, o.TLS = "llama", mode, policy, tlsOptions
					if mode == ModeFailsafe && o.Zone != "" {
						o.Fallback = []string{"10.0.0.1:8000", "[::1]:8000", "llama.svc:8000"}
					}
					t.Run(fmt.Sprintf("%s %s %s zone=%s", name, mode, policy, o.Zone), func(t *testing.T) {
						text, err := Render(o)
						if err != nil {
							t.Fatal(err)
						}
						accepted(t, text)
					})
				}
			}
		}
	}
}

// A backend is a model server that answers at once and counts. A request for
// /held stays open until it is released or its client goes.
type backend struct {
	address string
	hits    atomic.Int64
	release chan struct{}
}

// startBackends starts servers that answer with the given status codes.
func startBackends(t *testing.T, codes ...int) []*backend {
	t.Helper()
	all := make([]*backend, len(codes))
	for i, code := range codes {
		b := &backend{release: make(chan struct{})}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.hits.Add(1)
			if r.URL.Path == "/held" {
				select {
				case <-b.release:
				case <-r.Context().Done():
				}
			}
			w.WriteHeader(code)
		}))
		t.Cleanup(server.Close)
		b.address = server.Listener.Addr().String()
		all[i] = b
	}
	return all
}

func four() []int { return []int{200, 200, 200, 200} }

// endpoints makes an assignment's endpoints of backends, all of one health.
func endpoints(backends []*backend, health func(i int) endpoint) []endpoint {
	all := make([]endpoint, len(backends))
	for i, b := range backends {
		all[i] = health(i)
		all[i].address = b.address
	}
	return all
}

// A front is an Envoy that was started from a bootstrap, and a client of it.
type front struct {
	*proc.Envoy
	url    string
	client *http.Client
}

// startFront starts an Envoy from rendered options, on ports of the kernel's choice.
func startFront(t *testing.T, o Options, args ...string) *front {
	t.Helper()
	o.Listen, o.Admin = "127.0.0.1:0", "127.0.0.1:0"
	text, err := Render(o)
	if err != nil {
		t.Fatal(err)
	}
	return startText(t, text, args...)
}

// startText starts an Envoy from a bootstrap.
func startText(t *testing.T, text []byte, args ...string) *front {
	t.Helper()
	e := proctest.Envoy(t, proc.EnvoyConfig{Bootstrap: text, Args: args})
	addr, err := e.Listener(t.Context(), "ingress")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{Envoy: e, url: "http://" + addr + "/", client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(f.client.CloseIdleConnections)
	return f
}

// send makes n requests, one after the other, and returns how often each status
// came, and how many answers say that Envoy shed the request.
func (f *front) send(t *testing.T, n int) (codes map[int]int, shed int) {
	t.Helper()
	codes = make(map[int]int)
	for range n {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := f.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		codes[resp.StatusCode]++
		if resp.Header.Get("x-envoy-drop-overload") == "true" {
			shed++
		}
	}
	return codes, shed
}

// shares sends n requests, none of which may fail, and returns the share of each
// backend.
func (f *front) shares(t *testing.T, backends []*backend, n int) []float64 {
	t.Helper()
	before := make([]int64, len(backends))
	for i, b := range backends {
		before[i] = b.hits.Load()
	}
	if codes, _ := f.send(t, n); codes[http.StatusOK] != n {
		t.Fatalf("answers %v, want %d times 200", codes, n)
	}
	shares := make([]float64, len(backends))
	for i, b := range backends {
		shares[i] = float64(b.hits.Load()-before[i]) / float64(n)
	}
	return shares
}

// near reports whether all shares are within five percent of the wanted ones.
func near(got, want []float64) error {
	for i := range want {
		if diff := got[i] - want[i]; diff > 0.05 || diff < -0.05 {
			return fmt.Errorf("shares %.2f, want %.2f", got, want)
		}
	}
	return nil
}

// requests is how many requests a cluster has had.
func (f *front) requests(t *testing.T, cluster string) float64 {
	t.Helper()
	name := "cluster." + cluster + ".upstream_rq_total"
	stats, err := f.Stats(t.Context(), "^"+name+"$")
	if err != nil {
		t.Fatal(err)
	}
	return stats[name]
}

// hosts of a cluster as the Envoy sees them.
func (f *front) hosts(t *testing.T, cluster string) []proc.Host {
	t.Helper()
	all, err := f.Clusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all[cluster]
}

// weighted gives the first backend half of the traffic; the sum is 1,000,000.
func weighted(i int) endpoint {
	return endpoint{weight: []uint32{500_003, 299_998, 99_998, 100_001}[i], health: healthy}
}

var weightedShares = []float64{0.5, 0.3, 0.1, 0.1}

func asFallback(int) endpoint { return endpoint{health: degraded} }

func TestFailsafeFollowsTheWeightsAndOutlivesTheControlPlane(t *testing.T) {
	backends := startBackends(t, four()...)
	cp := startControlPlane(t)
	cp.publish(expiring(assignment("llama/failsafe", endpoints(backends, weighted)...), 2*time.Second))
	cp.publish(assignment("llama/fallback", endpoints(backends, asFallback)...))
	envoy := startFront(t, Options{Cluster: "llama", XDS: cp.address})

	if err := near(envoy.shares(t, backends, 400), weightedShares); err != nil {
		t.Errorf("with weights: %v", err)
	}
	cp.stop()
	// Every request on the way has to be answered with 200.
	eventually(t, func() error {
		envoy.shares(t, backends, 20)
		if len(envoy.hosts(t, "llama")) > 0 {
			return errors.New("the endpoints have not expired")
		}
		return nil
	})
	if err := near(envoy.shares(t, backends, 800), []float64{0.25, 0.25, 0.25, 0.25}); err != nil {
		t.Errorf("without a control plane: %v", err)
	}
	cp.start(t)
	eventually(t, func() error { return near(envoy.shares(t, backends, 200), weightedShares) })
}

// hold opens n requests to the first of two backends, none to the second, and
// returns when they are there. They last until the test ends.
func (f *front) hold(t *testing.T, backends []*backend, n int64) {
	t.Helper()
	ctx, release := context.WithCancel(t.Context())
	var open sync.WaitGroup
	t.Cleanup(func() { release(); open.Wait() })
	for backends[0].hits.Load() < n {
		before := backends[0].hits.Load() + backends[1].hits.Load()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"held", nil)
		if err != nil {
			t.Fatal(err)
		}
		open.Go(func() {
			if resp, err := f.client.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		})
		eventually(t, func() error {
			if backends[0].hits.Load()+backends[1].hits.Load() == before {
				return errors.New("the request has not come")
			}
			return nil
		})
	}
	close(backends[1].release)
	eventually(t, func() error {
		stats, err := f.Stats(t.Context(), "^cluster.llama.upstream_rq_active$")
		if err == nil && stats["cluster.llama.upstream_rq_active"] != float64(n) {
			err = fmt.Errorf("%v requests are open, want %d", stats, n)
		}
		return err
	})
}

// TestOpenRequestsLowerAWeightByTheBias: of two endpoints of as good as equal
// weights, one has two requests of this Envoy open.
func TestOpenRequestsLowerAWeightByTheBias(t *testing.T) {
	// Equal weights would have Envoy compare two at random, and skip the bias.
	unequal := func(i int) endpoint { return endpoint{weight: []uint32{499_999, 500_001}[i], health: healthy} }
	for _, tt := range []struct {
		name   string
		policy Policy
		bias   string // by the runtime, over the default
		share  float64
	}{
		{"default", "", "", 1. / 10}, // 1/(2+1)² to 1
		{"bias of the admin layer", PolicyLeastRequest, "1", 1. / 4},
		{"round robin", PolicyRoundRobin, "", 1. / 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			backends := startBackends(t, http.StatusOK, http.StatusOK)
			cp := startControlPlane(t)
			cp.publish(assignment("llama", endpoints(backends, unequal)...))
			envoy := startFront(t, Options{Cluster: "llama", XDS: cp.address, Mode: ModeShedding, Policy: tt.policy})
			envoy.hold(t, backends, 2)
			if tt.bias != "" {
				if _, err := envoy.Post(t.Context(), "/runtime_modify",
					url.Values{"steelyard.active_request_bias": {tt.bias}}); err != nil {
					t.Fatal(err)
				}
				cp.publish(assignment("llama", endpoints(backends, func(i int) endpoint {
					return endpoint{weight: []uint32{499_998, 500_002}[i], health: healthy}
				})...))
			}
			eventually(t, func() error {
				return near(envoy.shares(t, backends, 200),
					[]float64{tt.share, 1 - tt.share})
			})
		})
	}
}

// TestFailsafeWithItsOwnFallbackServesWithoutAnyControlPlane: one that refuses, and one that accepts and never answers.
func TestFailsafeWithItsOwnFallbackServesWithoutAnyControlPlane(t *testing.T) {
	nobody, err := proc.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	for name, xds := range map[string]string{"refused": nobody, "silent": silent.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backends := startBackends(t, four()...)
			o := Options{Cluster: "llama", XDS: xds}
			for _, b := range backends {
				o.Fallback = append(o.Fallback, b.address)
			}
			envoy := startFront(t, o)
			if err := near(envoy.shares(t, backends, 800), []float64{0.25, 0.25, 0.25, 0.25}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOverloadFlagsMoveNoTrafficPastTheWeights(t *testing.T) {
	backends := startBackends(t, four()...)
	cp := startControlPlane(t)
	cp.publish(assignment("llama/fallback", endpoints(backends, asFallback)...))
	cp.publish(assignment("llama/failsafe", endpoints(backends, weighted)...))
	envoy := startFront(t, Options{Cluster: "llama", XDS: cp.address})
	for flagged := 1; flagged <= len(backends); flagged++ {
		cp.publish(assignment("llama/failsafe", endpoints(backends, func(i int) endpoint {
			e := weighted(i)
			if i < flagged {
				e.health = degraded
			}
			return e
		})...))
		eventually(t, func() error {
			seen := 0
			for _, h := range envoy.hosts(t, "llama") {
				if h.Health == "DEGRADED" {
					seen++
				}
			}
			if seen != flagged {
				return fmt.Errorf("%d endpoints are degraded, want %d", seen, flagged)
			}
			return nil
		})
		shares := envoy.shares(t, backends, 200)
		if flagged == 1 && shares[0] != 0 {
			t.Errorf("the flagged endpoint still has a share of %.2f", shares[0])
		}
	}
	if got := envoy.requests(t, "llama_fallback"); got != 0 {
		t.Errorf("%v of 800 requests went past the weights", got)
	}
}

func TestSheddingRefusesTheShareOfTheAssignment(t *testing.T) {
	backends := startBackends(t, four()...)
	cp := startControlPlane(t)
	cp.publish(dropping(assignment("llama", endpoints(backends, weighted)...), 40))
	envoy := startFront(t, Options{Cluster: "llama", XDS: cp.address, Mode: ModeShedding})
	codes, shed := envoy.send(t, 1000)
	if codes[http.StatusOK]+shed != 1000 || codes[http.StatusServiceUnavailable] != shed {
		t.Errorf("answers %v, %d of them marked as shed; want 200 or shed, nothing else", codes, shed)
	}
	// Six standard deviations of a binomial of 1000 and 0.4 are 93.
	if shed < 300 || shed > 500 {
		t.Errorf("%d of 1000 shed, want about 400", shed)
	}
}

func TestTheCommandLineNamesTheEnvoy(t *testing.T) {
	backends := startBackends(t, http.StatusOK)
	cp := startControlPlane(t)
	cp.publish(assignment("llama", endpoint{address: backends[0].address, health: healthy}))
	o := Options{Cluster: "llama", XDS: cp.address, Mode: ModeShedding}
	startFront(t, o)
	startFront(t, o, "--service-node", "from-the-command-line")
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if want := []string{"llama-envoy", "from-the-command-line"}; !slices.Equal(cp.nodes, want) {
		t.Errorf("nodes %q, want %q", cp.nodes, want)
	}
}

func TestAFullQueueIsNoReasonForEjection(t *testing.T) {
	tests := []struct {
		name    string
		code    int // of the second endpoint; 0 means that nothing listens there
		ejected bool
	}{
		{"503, full", http.StatusServiceUnavailable, false},
		{"429, full", http.StatusTooManyRequests, false},
		{"500, the model's own", http.StatusInternalServerError, false},
		{"502, of a proxy before it", http.StatusBadGateway, true},
		{"504, of a proxy before it", http.StatusGatewayTimeout, true},
		{"refused", 0, true},
	}
	for _, mode := range []Mode{ModeFailsafe, ModeShedding} {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s, %s", mode, tt.name), func(t *testing.T) {
				backends := startBackends(t, http.StatusOK, max(tt.code, 200))
				other := backends[1].address
				if tt.code == 0 {
					var err error
					if other, err = proc.FreeAddress(); err != nil {
						t.Fatal(err)
					}
				}
				members := func(health corev3.HealthStatus) []endpoint {
					return []endpoint{{address: backends[0].address, health: health}, {address: other, health: health}}
				}
				cp := startControlPlane(t)
				cp.publish(assignment("llama", members(healthy)...))
				cp.publish(assignment("llama/failsafe", members(healthy)...))
				cp.publish(assignment("llama/fallback", members(degraded)...))
				envoy := startFront(t, Options{Cluster: "llama", XDS: cp.address, Mode: mode})
				codes, _ := envoy.send(t, 100)
				if tt.code == 0 && codes[http.StatusOK] != 100 {
					t.Errorf("answers %v: a refused connection was not tried elsewhere", codes)
				}
				for _, h := range envoy.hosts(t, "llama") {
					if want := h.Address == other && tt.ejected; h.Ejected != want {
						t.Errorf("%s ejected: %t, want %t (answers %v)", h.Address, h.Ejected, want, codes)
					}
				}
			})
		}
	}
}

// Requests that take a minute hold their second try for as long: what limits those at
// one time would fail requests that no server has seen, as soon as some servers are down.
// And endpoints that are down attract requests: they have none open, and where nothing
// updates the weights any more, theirs may be the largest.
func TestServersThatRefuseCostNoRequestHoweverLongTheOthersTake(t *testing.T) {
	for _, tt := range []struct {
		name       string
		mode       Mode
		service    string
		live, dead uint32 // weights
	}{
		{"failsafe", ModeFailsafe, "llama/failsafe", 300_000, 500_000},
		{"failsafe, on weights from before", ModeFailsafe, "llama/failsafe", 1000, 10_000_000},
		{"shedding", ModeShedding, "llama", 300_000, 500_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			backends := startBackends(t, 200, 200)
			all := endpoints(backends, func(i int) endpoint {
				return endpoint{weight: tt.live + uint32(i),
					health: healthy}
			})
			for i := range 2 {
				nobody, err := proc.FreeAddress()
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, endpoint{address: nobody, weight: tt.dead + uint32(i), health: healthy})
			}
			cp := startControlPlane(t)
			cp.publish(assignment(tt.service, all...))
			for i := range all {
				all[i] = endpoint{address: all[i].address, health: degraded}
			}
			cp.publish(assignment("llama/fallback", all...))
			envoy := startFront(t, Options{Cluster: "llama", XDS: cp.address, Mode: tt.mode})
			if answers := envoy.holdAll(t, backends, 40); answers[http.StatusOK] != 40 {
				t.Errorf("answers %v, want 40 times 200", answers)
			}
		})
	}
}

// While a request is tried again, the weights may get stale and come back, which changes
// the priorities of the aggregate cluster under it. Envoy survives that only with the
// update_frequency of the bootstrap.
func TestWeightsThatComeAndGoCostNoRequestThatIsRetried(t *testing.T) {
	backends := startBackends(t, 200, 200)
	all := endpoints(backends, func(i int) endpoint { return endpoint{weight: 1000 + uint32(i), health: healthy} })
	var fallback []endpoint
	for i := range 2 {
		nobody, err := proc.FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, endpoint{address: nobody, weight: 10_000_000 + uint32(i), health: healthy})
	}
	for _, e := range all {
		fallback = append(fallback, endpoint{address: e.address, health: degraded})
	}
	cp := startControlPlane(t)
	cp.publish(assignment("llama/fallback", fallback...))
	cp.publish(assignment("llama/failsafe", all...))
	envoy := startFront(t, Options{Cluster: "llama", XDS: cp.address})

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	var failed atomic.Int64
	for range 50 {
		clients.Go(func() {
			for ctx.Err() == nil {
				if envoy.ask(t.Context(), "") != http.StatusOK {
					failed.Add(1)
				}
			}
		})
	}
	for round := range 12 {
		stale := round%2 == 0
		if stale {
			cp.publish(assignment("llama/failsafe"))
		} else {
			cp.publish(assignment("llama/failsafe", all...))
		}
		eventually(t, func() error {
			if hosts := envoy.hosts(t, "llama"); (len(hosts) == 0) != stale {
				return fmt.Errorf("%d endpoints have weights", len(hosts))
			}
			return nil
		})
	}
	stop()
	clients.Wait()
	if n := failed.Load(); n != 0 {
		t.Errorf("%d requests failed", n)
	}
}

// holdAll sends n requests that the backends keep until all are there, or answered
// by Envoy, and returns how often each status came.
func (f *front) holdAll(t *testing.T, backends []*backend, n int) map[int]int {
	t.Helper()
	codes := make(chan int, n)
	for range n {
		go func() { codes <- f.ask(t.Context(), "held") }()
	}
	eventually(t, func() error {
		held := 0
		for _, b := range backends {
			held += int(b.hits.Load())
		}
		if held+len(codes) < n {
			return fmt.Errorf("%d of %d requests are held, %d were answered", held, n, len(codes))
		}
		return nil
	})
	for _, b := range backends {
		close(b.release)
	}
	answers := make(map[int]int)
	for range n {
		answers[<-codes]++
	}
	return answers
}

// ask sends a request for a path and returns the status of its answer; 0 for none.
func (f *front) ask(ctx context.Context, path string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+path, nil)
	if err != nil {
		return 0
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func TestEnvoyAndSteelyardAuthenticateEachOther(t *testing.T) {
	pki := newPKI(t)
	cp := startControlPlane(t, grpc.Creds(credentials.NewTLS(pki.server())))
	backends := startBackends(t, http.StatusOK)
	cp.publish(assignment("llama", endpoint{address: backends[0].address, health: healthy}))
	envoy := startFront(t, Options{
		Cluster: "llama", XDS: cp.address, Mode: ModeShedding,
		TLS: TLS{CAFile: pki.ca, CertFile: pki.cert, KeyFile: pki.key},
	})
	envoy.shares(t, backends, 1)
}

// A pki is a certificate authority and one certificate of it, for 127.0.0.1, as files.
type pki struct {
	authority, leaf *certs.Pair
	ca, cert, key   string
}

func newPKI(t *testing.T) pki {
	t.Helper()
	dir := t.TempDir()
	p := pki{ca: filepath.Join(dir, "ca.pem"), cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	p.authority = certs.New("test CA", nil)
	p.leaf = certs.New("test", p.authority)
	if err := errors.Join(os.WriteFile(p.ca, p.authority.CertPEM(), 0o600), p.leaf.Save(p.cert, p.key)); err != nil {
		t.Fatal(err)
	}
	return p
}

// server is a TLS server's side that admits no client without a certificate.
func (p pki) server() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{p.leaf.TLS()}, ClientCAs: p.authority.Pool(),
		ClientAuth: tls.RequireAndVerifyClientCert}
}

func TestTheVersionIsTheOneThatIsTested(t *testing.T) {
	if EnvoyVersion != proc.EnvoyVersion {
		t.Errorf("bootstraps are for Envoy %s, and tested with %s", EnvoyVersion, proc.EnvoyVersion)
	}
}
