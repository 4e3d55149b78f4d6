package router

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/e2e/rig/testbed"
)

// A routerProcess is a running steelyard router.
type routerProcess struct {
	*proc.Process
	t   *testing.T
	url string
}

// startRouter runs steelyard router with these variables, and waits until it answers.
func startRouter(t *testing.T, env ...string) *routerProcess {
	t.Helper()
	testbed.WithModule(t)
	return runRouter(t, env...)
}

// runRouter is startRouter with the module that the environment names.
func runRouter(t *testing.T, env ...string) *routerProcess {
	t.Helper()
	return runRouterWith(t, nil, env...)
}

// runRouterWith is runRouter with more arguments.
func runRouterWith(t *testing.T, args []string, env ...string) *routerProcess {
	t.Helper()
	free, err := proc.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := proc.BuildSteelyard()
	if err != nil {
		t.Fatal(err)
	}
	envoy, err := proc.Find(proc.ProgramEnvoy)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(free[0])
	if err != nil {
		t.Fatal(err)
	}
	r := &routerProcess{t: t, url: "http://" + free[0]}
	r.Process = proctest.Start(t, proc.Spec{Name: "router", Path: binary, Args: append([]string{"router",
		"--envoy", envoy}, args...), Env: append([]string{"CUSTOM_ROUTER_PORT=" + port}, env...), Dir: proctest.Dir(t),
		Grace: 10 * time.Second})
	r.eventually("the router answers", func() error {
		_, err := r.health()
		return err
	})
	return r
}

func (r *routerProcess) eventually(what string, check func() error) {
	r.t.Helper()
	var err error
	for end := time.Now().Add(testbed.Limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	r.t.Fatalf("not within %v: %s: %v", testbed.Limit, what, err)
}

type routerHealth struct {
	OK         bool `json:"ok"`
	QueueDepth *int `json:"queue_depth"`
	Backends   []struct {
		Addr        string   `json:"addr"`
		InFlight    int      `json:"in_flight"`
		EWMALatency *float64 `json:"ewma_latency"`
	} `json:"backends"`
}

func (r *routerProcess) health() (h routerHealth, err error) {
	resp, err := http.Get(r.url + "/_custom_router/health")
	if err != nil {
		return h, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return h, fmt.Errorf("health answers %s", resp.Status)
	}
	return h, json.NewDecoder(resp.Body).Decode(&h)
}

// set posts a body to set-backends, and returns status and answer.
func (r *routerProcess) set(body string) (int, string) {
	r.t.Helper()
	resp, err := http.Post(r.url+"/_custom_router/set-backends", "application/json", strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// backends sets these addresses.
func (r *routerProcess) backends(addresses ...string) {
	r.t.Helper()
	body, err := json.Marshal(map[string][]string{"backends": append([]string{}, addresses...)})
	if err != nil {
		r.t.Fatal(err)
	}
	if code, text := r.set(string(body)); code != http.StatusOK {
		r.t.Fatalf("set-backends answers %d: %s", code, text)
	}
}

// TestAPanicOfARouterCostsItsRequest: it answers 503, in the queue or before it, and goes on. A client never chooses.
func TestAPanicOfARouterCostsItsRequest(t *testing.T) {
	const arrive, settled = "\tverdict, ok := v.arrive()\n", "settled(envoy unsafe.Pointer) {\n"
	panics := func(value string) string {
		return fmt.Sprintf("\tif header(envoy, contentType) == %q { panic(1) }\n", value)
	}
	testbed.WithChangedModule(t, "route.go", arrive, panics("at once")+arrive, settled, settled+panics("later"))
	pool := testbed.Servers(t, modelsim.Options{Slots: 8}, modelsim.Options{Slots: 8})
	r := runRouter(t)
	send := func(contentType string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url, strings.NewReader("{}"))
		if err != nil {
			t.Error(err)
			return 0
		}
		req.Header.Set("Content-Type", contentType)
		req.Header.Set("X-Steelyard-Backend", pool[1].Address())
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	const more = 4 // than a filter with something to fall back on takes
	for range more {
		codes := make(chan int, 1)
		r.backends()
		go func() { codes <- send("later") }()
		r.waiting(1)
		r.backends(pool[0].Address())
		if code := <-codes; code != http.StatusServiceUnavailable {
			t.Errorf("after a panic in the queue the answer is %d", code)
		}
		if code := send("at once"); code != http.StatusServiceUnavailable {
			t.Errorf("after a panic the answer is %d", code)
		}
		if code := send("text/plain"); code != http.StatusOK {
			t.Errorf("the next answer is %d", code)
		}
		r.idle()
	}
	if a, b := pool[0].Served(), pool[1].Served(); a != more || b != 0 {
		t.Errorf("%d were served, and %d by the server that the client named; want %d and 0", a, b, more)
	}
}

// ask sends one request of a duration, and returns the status and the server that answered.
func (r *routerProcess) ask(ctx context.Context, took time.Duration) (status int, server string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/images",
		bytes.NewReader([]byte("a prompt")))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set(modelsim.HeaderService, fmt.Sprint(took.Seconds()))
	req.Header.Set("x-steelyard-backend", "127.0.0.1:1") // of a client that wants to choose
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get(modelsim.HeaderServer), err
}

// waiting waits until so many requests are in the queue.
func (r *routerProcess) waiting(n int) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%d wait", n), func() error {
		h, err := r.health()
		if err == nil && *h.QueueDepth != n {
			err = fmt.Errorf("%d wait", *h.QueueDepth)
		}
		return err
	})
}

// idle waits until nothing waits and nothing is in flight.
func (r *routerProcess) idle() {
	r.t.Helper()
	r.waiting(0)
	r.eventually("nothing is in flight", func() error {
		h, err := r.health()
		for _, b := range h.Backends {
			if b.InFlight != 0 {
				return fmt.Errorf("%d at %s", b.InFlight, b.Addr)
			}
		}
		return err
	})
}

// families returns the series of the router, by name.
func (r *routerProcess) families() map[string]*dto.MetricFamily {
	r.t.Helper()
	resp, err := http.Get(r.url + "/_custom_router/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return families
}

// metric returns the sum of a series of the router.
func (r *routerProcess) metric(name string) float64 {
	r.t.Helper()
	family := r.families()[name]
	if family == nil {
		r.t.Fatalf("there is no series %s", name)
	}
	var sum float64
	for _, m := range family.GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum
}

// published are the series of the contract, with the types of the reference.
var published = []string{
	"custom_router_backend_ewma_latency_seconds GAUGE",
	"custom_router_backend_inflight_requests GAUGE",
	"custom_router_queue_depth GAUGE",
	"custom_router_requests_dispatched_total COUNTER",
	"custom_router_requests_evicted_total COUNTER",
	"custom_router_requests_timeout_total COUNTER",
}

func TestTheRouterKeepsTheContract(t *testing.T) {
	r := startRouter(t)
	pool := testbed.Servers(t, testbed.Same(2, modelsim.Options{Slots: 8})...)
	a, b := "http://"+pool[0].Address(), pool[1].Address()
	if h, err := r.health(); err != nil || !h.OK || *h.QueueDepth != 0 || len(h.Backends) != 0 {
		t.Errorf("health before the backends is %+v, %v", h, err)
	}
	r.backends(a, b, pool[0].Address())
	h, err := r.health()
	if err != nil || len(h.Backends) != 2 || h.Backends[0].Addr != a || h.Backends[1].Addr != b ||
		h.Backends[0].EWMALatency != nil || h.Backends[0].InFlight != 0 {
		t.Errorf("health after both forms is %+v, %v", h, err)
	}
	for range 4 {
		if code, server, err := r.ask(t.Context(), 10*time.Millisecond); err != nil || code != 200 || server == "" {
			t.Fatalf("answer %d of %q, %v", code, server, err)
		}
	}
	r.idle()
	h, _ = r.health()
	for _, b := range h.Backends {
		if b.EWMALatency == nil || *b.EWMALatency < 0.01 || *b.EWMALatency > 5 {
			t.Errorf("the latency of %s is %v, want some 10 ms", b.Addr, b.EWMALatency)
		}
	}
	for _, bad := range []string{`{"backends": ["ftp://x:1"]}`, `{"backends": ["no-port"]}`, `{"servers": []}`, `{`,
		`{"backends": ["10.0.0.1:99999"]}`, `{"backends": ["` + strings.TrimPrefix(r.url, "http://") + `"]}`,
		`{"backends": ["http://u@10.0.0.1:80"]}`} {
		if code, text := r.set(bad); code != http.StatusBadRequest || !strings.Contains(text, `"error"`) {
			t.Errorf("%s is answered with %d: %s", bad, code, text)
		}
	}
	code, text := r.set(fmt.Sprintf(`{"backends": [%q, "https://10.0.0.1:443", %q, "no-such-name.invalid:80"]}`, a, b))
	for _, want := range []string{`"ok":true`, `"backends":2`,
		`{"backend":"https://10.0.0.1:443","error":"the scheme is`,
		`{"backend":"no-such-name.invalid:80","error":"lookup no-such-name.invalid`} {
		if code != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("two that cannot be used are answered with %d: %s, want %s", code, text, want)
		}
	}
	if after, err := r.health(); err != nil || len(after.Backends) != 2 || after.Backends[0].EWMALatency == nil {
		t.Errorf("bad input changed the backends: %+v, %v", after, err)
	}
	if n := r.metric("custom_router_requests_dispatched_total"); n != 4 {
		t.Errorf("%v were dispatched, want 4", n)
	}
	for _, name := range []string{"custom_router_queue_depth", "custom_router_backend_inflight_requests",
		"custom_router_requests_evicted_total", "custom_router_requests_timeout_total"} {
		if n := r.metric(name); n != 0 {
			t.Errorf("%s is %v, want 0", name, n)
		}
	}
	if n := r.metric("custom_router_backend_ewma_latency_seconds"); n <= 0 {
		t.Errorf("the sum of the latencies is %v", n)
	}
	var series []string
	for name, family := range r.families() {
		series = append(series, name+" "+family.GetType().String())
		for _, m := range family.GetMetric() {
			if strings.Contains(name, "_backend_") && (len(m.GetLabel()) != 1 || m.GetLabel()[0].GetName() != "addr" ||
				m.GetLabel()[0].GetValue() != a && m.GetLabel()[0].GetValue() != b) {
				t.Errorf("%s has the labels %v, want addr", name, m.GetLabel())
			}
		}
	}
	if slices.Sort(series); !slices.Equal(series, published) {
		t.Errorf("the series are %v, want %v", series, published)
	}
}

func TestTheRouterQueuesAndRefusesTheOldest(t *testing.T) {
	r := startRouter(t, "CUSTOM_ROUTER_QUEUE_MAX_SIZE=2", "CUSTOM_ROUTER_QUEUE_TIMEOUT=2",
		"CUSTOM_ROUTER_LATENCY_THRESHOLD=0.001")
	pool := testbed.Servers(t, modelsim.Options{Slots: 1})
	type answer struct{ status, place int }
	answers := make(chan answer, 8)
	var requests sync.WaitGroup
	ask := func(place int, took time.Duration) {
		requests.Go(func() {
			code, _, err := r.ask(context.Background(), took)
			if err != nil {
				t.Error(err)
			}
			answers <- answer{code, place}
		})
	}
	refused := func(evicted, timedOut float64) {
		t.Helper()
		if e, o := r.metric("custom_router_requests_evicted_total"),
			r.metric("custom_router_requests_timeout_total"); e != evicted || o != timedOut {
			t.Errorf("%v evicted and %v timed out, want %v and %v", e, o, evicted, timedOut)
		}
	}
	ask(1, time.Millisecond)
	r.waiting(1)
	ask(2, 20*time.Millisecond)
	r.waiting(2)
	ask(3, 20*time.Millisecond)
	if first := <-answers; first != (answer{503, 1}) {
		t.Errorf("the first answer is %+v, want a refusal of the oldest", first)
	}
	refused(1, 0)
	r.backends(pool[0].Address())
	got := []answer{<-answers, <-answers}
	if got[0] != (answer{200, 2}) || got[1] != (answer{200, 3}) {
		t.Errorf("the next answers are %+v, want 2 and 3 in order", got)
	}
	r.idle()
	r.backends()
	ask(4, time.Millisecond)
	if last := <-answers; last != (answer{503, 4}) {
		t.Errorf("without backends the answer is %+v, want a refusal", last)
	}
	requests.Wait()
	refused(1, 1)
}

func TestTheRouterPassesStreamsAsTheyCome(t *testing.T) {
	r := startRouter(t)
	finish := make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		answer := http.NewResponseController(w)
		if err := answer.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		first := make([]byte, len("part"))
		if _, err := io.ReadFull(req.Body, first); err != nil {
			t.Error(err)
		}
		_, _ = w.Write(first)
		_ = answer.Flush()
		<-finish
		_, _ = io.Copy(w, req.Body)
	}))
	defer backend.Close()
	defer close(finish)
	r.backends(backend.URL)
	body, rest := io.Pipe()
	defer rest.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/v1/images", body)
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(rest, "part")
		sent <- err
	}()
	resp, err := http.DefaultClient.Do(req) // the rest of the body is not sent yet
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got := make([]byte, len("part"))
	if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != "part" || <-sent != nil {
		t.Errorf("the first part of the answer is %q, %v", got, err)
	}
	if h, err := r.health(); err != nil || h.Backends[0].InFlight != 1 || h.Backends[0].EWMALatency != nil {
		t.Errorf("while the answer comes, health is %+v, %v", h, err)
	}
}

func TestAClientThatGivesUpLeavesTheQueueOfTheRouter(t *testing.T) {
	r := startRouter(t)
	impatient, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	var requests sync.WaitGroup
	defer requests.Wait()
	requests.Go(func() {
		if _, _, err := r.ask(impatient, time.Millisecond); err == nil {
			t.Error("a client that gave up has an answer")
		}
	})
	r.waiting(1)
	giveUp()
	r.waiting(0)
	pool := testbed.Servers(t, modelsim.Options{Slots: 1})
	r.backends(pool[0].Address())
	if code, _, err := r.ask(t.Context(), time.Millisecond); err != nil || code != http.StatusOK {
		t.Errorf("the next request is answered with %d, %v", code, err)
	}
	if n := r.metric("custom_router_requests_dispatched_total"); n != 1 {
		t.Errorf("%v were dispatched, want 1", n)
	}
}

// alwaysAnswers is a backend that answers each request at once with one status. asked counts the requests.
func alwaysAnswers(t *testing.T, status int) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(status)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func TestABackendThatFailsFastIsNotFast(t *testing.T) {
	r := startRouter(t)
	broken, failures := alwaysAnswers(t, http.StatusInternalServerError)
	pool := testbed.Servers(t, modelsim.Options{Slots: 1})
	r.backends(broken, pool[0].Address())
	const requests = 40
	for range requests {
		if _, _, err := r.ask(t.Context(), 10*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	// It is tried at once, and then once after each pause, which doubles from one second.
	if n := failures.Load(); n < 1 || n > 5 {
		t.Errorf("%d of %d requests went to the backend that fails", n, requests)
	}
	h, err := r.health()
	if err != nil || h.Backends[0].EWMALatency != nil || h.Backends[1].EWMALatency == nil {
		t.Errorf("health is %+v, %v: want a latency of the second only", h, err)
	}
}

func TestTheRouterCountsRightWhateverClientsAndBackendsDo(t *testing.T) {
	r := startRouter(t, "CUSTOM_ROUTER_LATENCY_THRESHOLD=0.05")
	pool := testbed.Servers(t, testbed.Same(3, modelsim.Options{Slots: 2})...)
	r.backends(pool[0].Address(), pool[1].Address(), "127.0.0.1:1", pool[2].Address())
	var clients sync.WaitGroup
	var served, gone atomic.Int64
	for client := range 8 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(uint64(client), 1))
			for range 40 {
				patience := time.Duration(1+random.IntN(60)) * time.Millisecond
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				code, _, err := r.ask(ctx, time.Duration(1+random.IntN(30))*time.Millisecond)
				cancel()
				if err != nil {
					gone.Add(1)
				} else if code == http.StatusOK {
					served.Add(1)
				}
			}
		})
	}
	clients.Wait()
	r.idle()
	t.Logf("%d served, %d gave up", served.Load(), gone.Load())
	if served.Load() == 0 || gone.Load() == 0 {
		t.Errorf("%d served and %d gave up: want some of both", served.Load(), gone.Load())
	}
	if code, _, err := r.ask(t.Context(), time.Millisecond); err != nil || code != http.StatusOK {
		t.Errorf("afterwards the answer is %d, %v", code, err)
	}
}

// TestTheRouterLosesOnlyWhatADeadBackendHad while backends die, hang and come back, and the router hangs. Requests that
// find it dead go elsewhere.
func TestTheRouterLosesOnlyWhatADeadBackendHad(t *testing.T) {
	r := startRouter(t, "CUSTOM_ROUTER_LATENCY_THRESHOLD=0.001") // one request at a time for each backend
	pool := testbed.Servers(t, testbed.Same(3, modelsim.Options{Slots: 1})...)
	r.backends(pool[0].Address(), pool[1].Address(), pool[2].Address())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	var served, failed atomic.Int64
	for range 12 {
		clients.Go(func() {
			for ctx.Err() == nil {
				code, _, err := r.ask(ctx, 10*time.Millisecond)
				switch {
				case ctx.Err() != nil:
				case err != nil || code != http.StatusOK:
					failed.Add(1)
				default:
					served.Add(1)
				}
			}
		})
	}
	more := func(what string) {
		t.Helper()
		before := served.Load()
		r.eventually(what, func() error {
			if n := served.Load() - before; n < 60 {
				return fmt.Errorf("%d served", n)
			}
			return nil
		})
	}
	more("requests wait and are served")
	pool[1].SetFrozen(true)
	more("a backend hangs")
	pool[1].SetFrozen(false)
	if err := r.Pause(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond) // it hangs, with Envoy
	if err := r.Resume(); err != nil {
		t.Fatal(err)
	}
	more("the router has hung")
	if n := failed.Load(); n > 0 {
		t.Errorf("%d requests failed, and no backend was dead", n)
	}
	if err := pool[0].Close(); err != nil {
		t.Fatal(err)
	}
	more("a backend is dead")
	again, err := modelsim.Start(modelsim.Options{Slots: 1, Address: pool[0].Address()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	r.eventually("it is tried again", func() error {
		if again.Served() == 0 {
			return errors.New("it has served nothing")
		}
		return nil
	})
	if n := failed.Load(); n > 1 {
		t.Errorf("%d requests failed, want at most the one that the backend had", n)
	}
	stop()
	clients.Wait()
	r.idle()
}
