package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/internal/api"
	"steelyard/weighting"
)

// steady returns a load that the pools of these tests carry easily.
func steady(d time.Duration) load.Plan {
	return load.Plan{Rate: 100, Duration: d, Work: load.Work{Mean: 10 * time.Millisecond}, Seed: 2}
}

func TestEndpointsComeAndGoThroughTheFileUnderLoad(t *testing.T) {
	t.Parallel()
	pool := servers(t, same(3, wide)...)
	a, b, c := pool[0].Address(), pool[1].Address(), pool[2].Address()
	f := &fleet{t: t, dir: proctest.Dir(t)}
	path := f.dir + "/targets.yaml"
	list := func(addresses ...string) string {
		return "- targets: ['" + strings.Join(addresses, "', '") + "']\n"
	}
	f.write(path, list(a, b))
	f = start(t, plan{servers: pool, cluster: "endpoints:\n  file: " + path, envoys: 2})
	traffic := f.send(steady(4 * time.Second))

	f.write(path, list(a, b, c))
	f.everywhere("the new endpoint is there",
		func(hosts map[string]proc.Host) bool { return len(hosts) == 3 && hosts[c].Weight > 0 })
	f.eventually("the new endpoint serves", func() error {
		if pool[2].Served() == 0 {
			return fmt.Errorf("nothing served")
		}
		return nil
	})
	f.write(path, "- targets: [not an address") // an operator's slip
	f.eventually("the slip is shown", func() error { return f.sourceFails("discovery") })
	f.write(path, list(b, c))
	f.everywhere("the old endpoint is gone",
		func(hosts map[string]proc.Host) bool { _, there := hosts[a]; return len(hosts) == 2 && !there })
	if result := traffic.wait(t); result.Errors != 0 {
		t.Errorf("%d of %d requests failed: %v", result.Errors, result.Requests, result.Codes)
	}
}

// everywhere waits until a condition holds for the hosts of every Envoy.
func (f *fleet) everywhere(what string, holds func(map[string]proc.Host) bool) {
	f.t.Helper()
	f.eventually(what, func() error {
		for i := range f.envoys {
			if hosts := f.hosts(i); !holds(hosts) {
				return fmt.Errorf("not in envoy %d: %v", i, hosts)
			}
		}
		return nil
	})
}

func (f *fleet) source(name string) (api.SourceStatus, error) {
	v, err := f.view()
	if err != nil {
		return api.SourceStatus{}, err
	}
	for _, s := range v.Sources {
		if s.Name == name {
			return s, nil
		}
	}
	return api.SourceStatus{}, fmt.Errorf("no source %s", name)
}

func (f *fleet) sourceFails(name string) error {
	s, err := f.source(name)
	if err == nil && s.LastError == "" {
		err = fmt.Errorf("source %s is %s", name, s.State)
	}
	return err
}

func (f *fleet) sourceIs(name string, want api.SourceState) error {
	s, err := f.source(name)
	if err == nil && s.State != want {
		err = fmt.Errorf("source %s is %s (%s), want %s", name, s.State, s.LastError, want)
	}
	return err
}

func TestAKilledControlPlaneCostsNoRequestAndItsSuccessorKeepsGoodWeights(t *testing.T) {
	t.Parallel()
	// Wide enough that the few requests which an avoided server gets are served.
	pool := servers(t, same(3, wide)...)
	f := start(t, plan{servers: pool, envoys: 2})
	busy := pool[0].Address()
	flood(t, pool[0], 500) // it must stay avoided throughout
	f.everywhere("the busy server is avoided", func(hosts map[string]proc.Host) bool { return avoided(hosts, busy) })

	traffic := f.send(steady(8 * time.Second))
	stop := f.watchWeights(func(hosts map[string]proc.Host) error {
		if !avoided(hosts, busy) {
			return fmt.Errorf("good weights were reset: %v", hosts)
		}
		return nil
	})
	if err := f.control.Kill(); err != nil {
		t.Fatal(err)
	}
	served := pool[1].Served()
	f.eventually("traffic goes on without a control plane", func() error {
		if pool[1].Served() < served+20 {
			return fmt.Errorf("%d served", pool[1].Served()-served)
		}
		return nil
	})
	f.control = f.startControl("steelyard-2")
	f.eventually("every Envoy is back in sync", func() error { return f.allInSync() })
	result := traffic.wait(t)
	stop()
	if result.Errors != 0 {
		t.Errorf("%d of %d requests failed: %v", result.Errors, result.Requests, result.Codes)
	}
}

// avoided reports whether the weight of an endpoint is less than a tenth of the mean weight.
func avoided(hosts map[string]proc.Host, address string) bool {
	var sum float64
	for _, h := range hosts {
		sum += float64(h.Weight)
	}
	return float64(hosts[address].Weight) < 0.1*sum/float64(len(hosts))
}

// watchWeights checks the hosts of every Envoy all the time until stopped, and fails the test when the check fails.
func (f *fleet) watchWeights(check func(map[string]proc.Host) error) (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for i, e := range f.envoys {
				hosts, err := weighted(ctx, e)
				if err != nil {
					continue // the test has ended
				}
				if err := check(hosts); err != nil {
					f.t.Errorf("envoy %d: %v", i, err)
					return
				}
			}
			time.Sleep(10 * time.Millisecond) // as often as a push may come
		}
	}()
	stop = func() { cancel(); <-done }
	f.t.Cleanup(stop)
	return stop
}

// allInSync wants every Envoy connected and holding the newest version.
func (f *fleet) allInSync() error {
	clients, err := f.clients()
	if err != nil {
		return err
	}
	if len(clients) != len(f.envoys) {
		return fmt.Errorf("%d clients, want %d", len(clients), len(f.envoys))
	}
	for _, c := range clients {
		// The fallback has a stream of its own, and is never pushed again.
		weighted := func(s api.Subscription) bool { return !strings.HasSuffix(s.Resource, "/fallback") }
		if !slices.ContainsFunc(c.Subscriptions, weighted) {
			return fmt.Errorf("%s has not asked for endpoints with weights", c.NodeID)
		}
		for _, s := range c.Subscriptions {
			if s.Acks == 0 {
				return fmt.Errorf("%s has not acknowledged %s", c.NodeID, s.Cluster)
			}
		}
	}
	return nil
}

func TestRedisMayDieAndComeBack(t *testing.T) {
	t.Parallel()
	pool := servers(t, same(2, wide)...)
	store := proctest.Redis(t, proc.RedisConfig{Name: "redis-1"})
	counts := map[string]float64{pool[0].Address(): 40, pool[1].Address(): 0}
	setCounts(t, store.Address(), counts)
	f := start(t, plan{
		servers: pool, top: redisSection(store),
		cluster:   "inflight: {redis_key: \"inflight:{cluster}\"}\nweighting: {fresh: 500ms, hold: 1s, decay: 2s}",
		bootstrap: silent,
	})
	f.eventually("Redis is read", func() error { return f.sourceIs("redis", api.SourceOK) })

	traffic := f.send(steady(8 * time.Second))
	if err := store.Kill(); err != nil {
		t.Fatal(err)
	}
	f.eventually("Redis is shown as down", func() error { return f.sourceIs("redis", api.SourceDown) })
	f.eventually("the loop uses only scrapes", func() error {
		e, err := f.endpoint(pool[0].Address())
		if err == nil && e.LoadSource != "scraped" {
			err = fmt.Errorf("load from %s", e.LoadSource)
		}
		return err
	})
	again := proctest.Redis(t, proc.RedisConfig{Name: "redis-2", Address: store.Address()})
	setCounts(t, again.Address(), counts)
	f.eventually("Redis is read again", func() error { return f.sourceIs("redis", api.SourceOK) })
	if result := traffic.wait(t); result.Errors != 0 {
		t.Errorf("%d errors: %v", result.Errors, result.Codes)
	}
}

func TestAFaultyMetricsPageMakesOnlyItsEndpointStale(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		fault modelsim.MetricsFault
		want  string // in the error shown
	}{
		{"hangs", modelsim.MetricsHang, "no complete answer within"},
		{"answers garbage", modelsim.MetricsGarbage, "vllm"},
		{"answers 500", modelsim.MetricsError, "500"},
		{"answers 100 MB", modelsim.MetricsHuge, "limit"},
		{"drips", modelsim.MetricsDrip, "no complete answer within"},
		{"resets the connection", modelsim.MetricsRefuse, ""},
	}
	pool := servers(t, same(3, wide)...)
	f := start(t, plan{servers: pool, cluster: "weighting: {fresh: 500ms, hold: 700ms, decay: 1s}", bootstrap: silent})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f.t = t
			pool[0].SetMetricsFault(tt.fault)
			f.eventually("the endpoint is neutral and says why", func() error {
				e, err := f.endpoint(pool[0].Address())
				switch {
				case err != nil:
					return err
				case e.Reason != "neutral":
					return fmt.Errorf("reason %s", e.Reason)
				case e.LastScrape.Error == "" || !strings.Contains(e.LastScrape.Error, tt.want):
					return fmt.Errorf("scrape error %q, want %q in it", e.LastScrape.Error, tt.want)
				}
				return nil
			})
			for _, s := range pool[1:] {
				e, err := f.endpoint(s.Address())
				if err != nil || e.Reason != "fill" || e.LastScrape.Error != "" || e.Input("queue").State != "fresh" {
					t.Errorf("another endpoint suffers: %+v, %v", e, err)
				}
			}
			result := f.send(quick(200)).wait(t)
			if result.Errors != 0 || result.Servers[pool[0].Address()] == 0 {
				t.Errorf("%d errors, %d requests to the endpoint without metrics; want none and some", result.Errors,
					result.Servers[pool[0].Address()])
			}
			pool[0].SetMetricsFault(modelsim.MetricsHealthy)
			f.eventually("the endpoint recovers", func() error {
				e, err := f.endpoint(pool[0].Address())
				if err == nil && (e.Reason != "fill" || e.LastScrape.Error != "") {
					err = fmt.Errorf("reason %s, scrape error %q", e.Reason, e.LastScrape.Error)
				}
				return err
			})
		})
	}
}

// The Envoys' counts stand in for a page that cannot be read: the endpoint keeps a weight of its own, and its failed
// scrape is still shown.
func TestAnEndpointWithoutMetricsIsWeighedByWhatEnvoysCount(t *testing.T) {
	pool := servers(t, same(3, wide)...)
	f := start(t, plan{servers: pool, cluster: "weighting: {fresh: 500ms, hold: 700ms, decay: 1s}"})
	pool[0].SetMetricsFault(modelsim.MetricsError)
	traffic := f.send(steady(3 * time.Second))
	f.eventually("it is weighed only by counts", func() error {
		e, err := f.endpoint(pool[0].Address())
		if err == nil && (e.Reason != "fill" || e.LoadSource != string(weighting.LoadInFlight) ||
			!strings.Contains(e.LastScrape.Error, "500")) {
			err = fmt.Errorf("reason %s, load source %s, scrape error %q", e.Reason, e.LoadSource, e.LastScrape.Error)
		}
		return err
	})
	if result := traffic.wait(t); result.Errors != 0 || result.Servers[pool[0].Address()] == 0 {
		t.Errorf("%d errors, %d requests to the endpoint without metrics; want none and some", result.Errors,
			result.Servers[pool[0].Address()])
	}
}

func TestSIGTERMDrains(t *testing.T) {
	pool := servers(t, same(2, wide)...)
	f := start(t, plan{servers: pool, envoys: 2})
	traffic := f.send(steady(3 * time.Second))
	began := time.Now()
	if err := f.control.Stop(); err != nil {
		t.Errorf("it had to be killed: %v", err)
	}
	if err := f.control.Wait(t.Context()); err != nil {
		t.Errorf("it ended with %v, want exit status 0", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v to stop", took)
	}
	if result := traffic.wait(t); result.Errors != 0 {
		t.Errorf("%d errors: %v", result.Errors, result.Codes)
	}
}

func TestAServerThatIsGoneDoesNotLookIdle(t *testing.T) {
	t.Parallel()
	pool := servers(t, same(3, wide)...)
	gone := pool[0].Address()
	f := start(t, plan{servers: pool})
	for _, s := range pool[1:] {
		flood(t, s, 100) // so that the first is the idle one
	}
	f.eventually("the idle one attracts the traffic", func() error { return f.shareOf(gone, 0.9, 1) })
	if err := pool[0].Close(); err != nil {
		t.Fatal(err)
	}
	f.eventually("it is neutral although it was idle last", func() error { return f.shareOf(gone, 0, 0.4) })
	if result := f.send(steady(2 * time.Second)).wait(t); result.Errors != 0 {
		t.Errorf("%d errors: %v", result.Errors, result.Codes)
	}
	servers(t, modelsim.Options{Slots: 1000, Address: gone})
	f.eventually("it is back", func() error { return f.shareOf(gone, 0.9, 1) })
}

// shareOf wants an endpoint's share, as Envoys have it, within bounds.
func (f *fleet) shareOf(address string, least, most float64) error {
	for i := range f.envoys {
		if share := f.shares(i)[address]; share < least || share > most {
			return fmt.Errorf("envoy %d gives it %.3f, want %v to %v", i, share, least, most)
		}
	}
	return nil
}

// Envoy's own health check ejects a server whose metrics are those of an idle one.
func TestAServerThatEnvoyEjectsIsNotCountedOnAndComesBack(t *testing.T) {
	t.Parallel()
	pool := servers(t, same(3, wide)...)
	const before = "    # Steelyard computes the weights across all localities,"
	check := "    health_checks:\n    - {timeout: 1s, interval: 0.1s, no_traffic_interval: 0.1s, " +
		"unhealthy_threshold: 1, healthy_threshold: 1, http_health_check: {path: /health}}\n"
	f := start(t, plan{servers: pool, edits: []edit{{before, check + before}}})
	pool[0].SetServingFault(modelsim.ServingUnavailable)
	f.send(load.Plan{Rate: 60, Work: load.Work{Mean: 200 * time.Millisecond}, Seed: 7})
	f.eventually("nothing is counted on there", func() error {
		e, err := f.endpoint(pool[0].Address())
		if err == nil && (e.Reason != string(weighting.ReasonUnused) || len(e.Problems) == 0) {
			err = fmt.Errorf("reason %s, problems %v", e.Reason, e.Problems)
		}
		return err
	})
	pool[0].SetServingFault(modelsim.ServingHealthy)
	f.wellAgain(pool[0])
	if e, err := f.endpoint(pool[0].Address()); err != nil || e.Reason == string(weighting.ReasonUnused) {
		t.Errorf("it serves, and its reason is %s (%v)", e.Reason, err)
	}
}
