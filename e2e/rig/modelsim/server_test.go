package modelsim

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(o)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// infer sends a request that asks for work, and discards the body.
func infer(ctx context.Context, s *Server, seconds string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Address()+"/v1/completions",
		strings.NewReader("{}"))
	if err != nil {
		return nil, err
	}
	req.Header.Set(HeaderService, seconds)
	resp, err := client(ctx).Do(req)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp, errors.Join(err, resp.Body.Close())
}

// client opens a connection for each request, so that none is left idle.
func client(context.Context) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

// hold starts requests that execute for an hour, and returns when the server
// has them all, and a function that ends them.
func hold(t *testing.T, s *Server, n int) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var requests sync.WaitGroup
	for range n {
		requests.Go(func() { _, _ = infer(ctx, s, "3600") })
	}
	eventually(t, "the server has all requests", func() bool { return s.InFlight() == n })
	end := func() { cancel(); requests.Wait() }
	t.Cleanup(end)
	return end
}

// scrape reads /metrics.
func scrape(ctx context.Context, s *Server) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.MetricsAddress()+"/metrics", nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := client(ctx).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func header(t *testing.T, resp *http.Response, name string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(resp.Header.Get(name), 64)
	if err != nil {
		t.Fatalf("header %s: %v", name, err)
	}
	return v
}

func TestAnswersSayWhereAndHowLong(t *testing.T) {
	s := start(t, Options{Speed: 0.5})
	type answer struct {
		resp *http.Response
		err  error
	}
	answers := make(chan answer)
	for range 2 {
		go func() {
			resp, err := infer(t.Context(), s, "0.02")
			answers <- answer{resp, err}
		}()
	}
	var waits []float64
	for range 2 {
		a := <-answers
		if a.err != nil {
			t.Fatal(a.err)
		}
		if got := header(t, a.resp, HeaderService); got != 0.04 {
			t.Errorf("executed for %v s, want 0.04: 0.02 at half the speed", got)
		}
		if got := a.resp.Header.Get(HeaderServer); got != s.Address() {
			t.Errorf("answered by %q, want %q", got, s.Address())
		}
		waits = append(waits, header(t, a.resp, HeaderQueueWait))
	}
	slices.Sort(waits)
	if waits[0] != 0 || waits[1] <= 0 || waits[1] > 0.04 {
		t.Errorf("waits %v, want none and at most one service", waits)
	}
	if s.Served() != 2 || s.InFlight() != 0 {
		t.Errorf("served %d, in flight %d; want 2, 0", s.Served(), s.InFlight())
	}
}

func TestRequestsBeyondTheSlotsAreQueued(t *testing.T) {
	s := start(t, Options{Slots: 2})
	hold(t, s, 5)
	if s.Running() != 2 || s.Queue() != 3 {
		t.Errorf("running %d, queue %d; want 2, 3", s.Running(), s.Queue())
	}
	_, body, err := scrape(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	got := values(t, body)
	if n := got[`vllm:num_requests_waiting{engine="0",model_name="tiny"}`]; n != 3 {
		t.Errorf("the page says %v waiting, want 3", n)
	}
	if n := got[`vllm:num_requests_running{engine="0",model_name="tiny"}`]; n != 2 {
		t.Errorf("the page says %v running, want 2", n)
	}
	if u := got[`vllm:kv_cache_usage_perc{engine="0",model_name="tiny"}`]; u != 0.8 {
		t.Errorf("the page says a KV usage of %v, want 0.8 with all slots taken", u)
	}
}

func TestClientThatDisconnects(t *testing.T) {
	t.Run("leaves a vLLM server", func(t *testing.T) {
		s := start(t, Options{Engine: VLLM})
		hold(t, s, 3)()
		eventually(t, "the server is empty", func() bool { return s.InFlight() == 0 })
		if s.Served() != 0 {
			t.Errorf("served %d, want 0", s.Served())
		}
	})
	t.Run("is executed by Triton all the same", func(t *testing.T) {
		var observed counts
		s := start(t, Options{Engine: Triton, Observer: &observed})
		s.SetFrozen(true)
		ctx, cancel := context.WithCancel(t.Context())
		var requests sync.WaitGroup
		for range 2 {
			requests.Go(func() { _, _ = infer(ctx, s, "0.001") })
		}
		eventually(t, "the server has both", func() bool { return s.InFlight() == 2 })
		cancel()
		requests.Wait()
		s.SetFrozen(false)
		eventually(t, "both are served", func() bool { return s.Served() == 2 })
	})
}

// counts is an Observer.
type counts struct {
	mu         sync.Mutex
	begun, now int
	address    string
}

func (c *counts) Begin(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun++
	c.now++
	c.address = address
}

func (c *counts) End(string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now--
}

func (c *counts) read() (begun, now int, address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun, c.now, c.address
}

func TestObserverSeesAnEndForEveryBegin(t *testing.T) {
	var observed counts
	s := start(t, Options{Observer: &observed})
	if _, err := infer(t.Context(), s, "0"); err != nil {
		t.Fatal(err)
	}
	s.SetServingFault(ServingUnavailable)
	if _, err := infer(t.Context(), s, "0"); err != nil {
		t.Fatal(err)
	}
	s.SetServingFault(ServingHealthy)
	end := hold(t, s, 2)
	if begun, now, address := observed.read(); begun != 4 || now != 2 || address != s.Address() {
		t.Errorf("begun %d, now %d at %q; want 4, 2 at %q", begun, now, address, s.Address())
	}
	end()
	eventually(t, "every begin has its end", func() bool { _, now, _ := observed.read(); return now == 0 })
}

func TestServingFaults(t *testing.T) {
	tests := []struct {
		name           string
		fault          ServingFault
		status, health int
		served, failed float64
	}{
		{"healthy", ServingHealthy, 200, 200, 1, 0},
		{"unavailable", ServingUnavailable, 503, 503, 0, 0},
		{"failing", ServingFailing, 500, 200, 0, 1},
		{"full", ServingTooManyRequests, 429, 200, 0, 0},
		{"failed generation", ServingFailedDependency, 424, 200, 0, 0},
		{"gone", ServingNotFound, 404, 200, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, Options{Engine: Triton})
			s.SetServingFault(tt.fault)
			resp, err := infer(t.Context(), s, "0")
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status {
				t.Errorf("status %d, want %d", resp.StatusCode, tt.status)
			}
			health, err := client(t.Context()).Get("http://" + s.Address() + "/v2/health/ready")
			if err != nil {
				t.Fatal(err)
			}
			_ = health.Body.Close()
			if health.StatusCode != tt.health {
				t.Errorf("health %d, want %d", health.StatusCode, tt.health)
			}
			_, body, err := scrape(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			got := values(t, body)
			if n := got[`nv_inference_request_success{model="sleeper",version="1"}`]; n != tt.served {
				t.Errorf("%v successes, want %v", n, tt.served)
			}
			if n := got[`nv_inference_request_failure{model="sleeper",reason="BACKEND",version="1"}`]; n != tt.failed {
				t.Errorf("%v failures, want %v", n, tt.failed)
			}
		})
	}
}

func TestMetricsFaults(t *testing.T) {
	s := start(t, Options{RealSize: true})
	brief := func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	tests := []struct {
		name  string
		fault MetricsFault
		ctx   func(*testing.T) context.Context
		check func(status int, body string, err error) bool
	}{
		{"hang", MetricsHang, brief, func(_ int, body string, err error) bool {
			return errors.Is(err, context.DeadlineExceeded) && body == ""
		}},
		{"drip", MetricsDrip, brief, func(status int, body string, err error) bool {
			return errors.Is(err, context.DeadlineExceeded) && status == 200 && len(body) < 100
		}},
		{"refuse", MetricsRefuse, nil, func(_ int, body string, err error) bool { return err != nil && body == "" }},
		{"500", MetricsError, nil, func(status int, _ string, err error) bool { return err == nil && status == 500 }},
		{"garbage", MetricsGarbage, nil, func(status int, body string, err error) bool {
			return err == nil && status == 200 && !strings.Contains(body, "vllm:num_requests_running{")
		}},
		{"idle", MetricsIdle, nil, func(status int, body string, err error) bool {
			return err == nil && strings.Contains(body, `vllm:num_requests_running{engine="0",model_name="tiny"} 0.0`)
		}},
		{"insane", MetricsInsane, nil, func(status int, body string, err error) bool {
			return err == nil && status == 200 &&
				strings.Contains(body, `finished_reason="length",model_name="tiny"} 1e+18`)
		}},
		{"huge", MetricsHuge, nil, func(status int, body string, err error) bool {
			return err == nil && status == 200 && len(body) >= hugeBytes
		}},
		{"healthy again", MetricsHealthy, nil, func(status int, body string, err error) bool {
			return err == nil && status == 200 &&
				strings.Contains(body, `vllm:num_requests_running{engine="0",model_name="tiny"} 1.0`)
		}},
	}
	hold(t, s, 1)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.SetMetricsFault(tt.fault)
			ctx := t.Context()
			if tt.ctx != nil {
				ctx = tt.ctx(t)
			}
			if status, body, err := scrape(ctx, s); !tt.check(status, body, err) {
				t.Errorf("status %d, %d bytes, error %v", status, len(body), err)
			}
			if s.Running() != 1 {
				t.Error("a fault of /metrics disturbed a request")
			}
		})
	}
}

func TestTritonMetricsOnAPortOfTheirOwn(t *testing.T) {
	s := start(t, Options{Engine: Triton, MetricsAddress: "127.0.0.1:0"})
	if s.MetricsAddress() == s.Address() {
		t.Fatal("one address for both")
	}
	status, body, err := scrape(t.Context(), s)
	if err != nil || status != 200 || !strings.Contains(body, "nv_inference_pending_request_count") {
		t.Errorf("status %d, error %v, body %.80q", status, err, body)
	}
	resp, err := client(t.Context()).Get("http://" + s.Address() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound || s.Served() != 0 {
		t.Errorf("status %d on the serving port, %d served; want 404, 0", resp.StatusCode, s.Served())
	}
}

func TestBadWorkIsRefused(t *testing.T) {
	s := start(t, Options{})
	for _, text := range []string{"soon", "-1", "NaN", "Inf", "1e9"} {
		resp, err := infer(t.Context(), s, text)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%q is answered %d, want 400", text, resp.StatusCode)
		}
	}
	if s.Served() != 0 || s.InFlight() != 0 {
		t.Errorf("served %d, in flight %d; want none", s.Served(), s.InFlight())
	}
}

func TestDrawsOfItsOwnFollowTheSeed(t *testing.T) {
	draws := func(seed uint64) (all []time.Duration) {
		s := start(t, Options{Seed: seed})
		for range 2000 {
			d, err := s.workOf(&http.Request{})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, d)
		}
		return all
	}
	a := draws(1)
	if !slices.Equal(a, draws(1)) || slices.Equal(a, draws(2)) {
		t.Error("the seed does not decide the draws")
	}
	mean := 0.0
	for _, d := range a {
		mean += d.Seconds() / meanWork.Seconds() / float64(len(a))
	}
	if math.Abs(mean-1) > 0.1 {
		t.Errorf("mean of the draws %v of what it should be", mean)
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	tests := []struct {
		name string
		o    Options
		want string
	}{
		{"engine", Options{Engine: "llamafile"}, `engine "llamafile"`},
		{"slots", Options{Slots: -1}, "-1 slots"},
		{"speed", Options{Speed: -1}, "speed -1"},
		{"address", Options{Address: "127.0.0.1:http-ish"}, "http-ish"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Start(tt.o)
			if err == nil {
				_ = s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that contains %q", err, tt.want)
			}
		})
	}
}

func TestServerComesBackOnItsAddress(t *testing.T) {
	s := start(t, Options{})
	hold(t, s, 3)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := start(t, Options{Address: s.Address()})
	if _, err := infer(t.Context(), again, "0"); err != nil {
		t.Fatal(err)
	}
	if again.Served() != 1 || again.InFlight() != 0 {
		t.Errorf("served %d, in flight %d; want those since the restart", again.Served(), again.InFlight())
	}
}

func TestShutdownFinishesTheRequestsThereAre(t *testing.T) {
	s := start(t, Options{})
	ended := make(chan error, 1)
	go func() {
		_, err := infer(t.Context(), s, "0.2")
		ended <- err
	}()
	eventually(t, "the server has the request", func() bool { return s.InFlight() == 1 })
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the request that it had failed: %v", err)
	}
	if _, err := infer(t.Context(), s, "0"); err == nil {
		t.Error("it takes requests after its shutdown")
	}
}

func TestShutdownGivesUpWithItsContext(t *testing.T) {
	s := start(t, Options{})
	hold(t, s, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the context's", err)
	}
}

func TestHundredsOfServersInOneProcess(t *testing.T) {
	const n = 300
	servers := make([]*Server, n)
	for i := range servers {
		servers[i] = start(t, Options{Engine: []Engine{VLLM, Triton}[i%2], RealSize: true})
	}
	var requests sync.WaitGroup
	for _, s := range servers {
		requests.Go(func() {
			if _, err := infer(t.Context(), s, "0.01"); err != nil {
				t.Error(err)
			}
		})
	}
	requests.Wait()
	for _, s := range servers {
		if s.Served() != 1 {
			t.Errorf("%s served %d, want 1", s.Address(), s.Served())
		}
	}
}
