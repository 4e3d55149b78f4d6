package faults

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
	"steelyard/e2e/rig/testbed"
	"steelyard/internal/api"
	"steelyard/weighting"
)

func TestEndpointsComeAndGoThroughTheFileUnderLoad(t *testing.T) {
	t.Parallel()
	pool := testbed.Pool(t, 3)
	a, b, c := pool[0].Address(), pool[1].Address(), pool[2].Address()
	f := &fleet{&testbed.Fleet{T: t, Dir: proctest.Dir(t)}}
	path := f.Dir + "/targets.yaml"
	list := func(addresses ...string) string {
		return "- targets: ['" + strings.Join(addresses, "', '") + "']\n"
	}
	f.Write(path, list(a, b))
	f = start(t, testbed.Plan{Servers: pool, Cluster: "endpoints:\n  file: " + path, Envoys: 2})
	traffic := f.Send(testbed.Steady(4 * time.Second))

	f.Write(path, list(a, b, c))
	f.Everywhere("the new endpoint is there",
		func(hosts map[string]proc.Host) bool { return len(hosts) == 3 && hosts[c].Weight > 0 })
	f.Eventually("the new endpoint serves", func() error {
		if pool[2].Served() == 0 {
			return fmt.Errorf("nothing served")
		}
		return nil
	})
	f.Write(path, "- targets: [not an address") // an operator's slip
	f.Eventually("the slip is shown", func() error { return f.sourceFails("discovery") })
	f.Write(path, list(b, c))
	f.Everywhere("the old endpoint is gone",
		func(hosts map[string]proc.Host) bool { _, there := hosts[a]; return len(hosts) == 2 && !there })
	if result := traffic.Wait(t); result.Errors != 0 {
		t.Errorf("%d of %d requests failed: %v", result.Errors, result.Requests, result.Codes)
	}
}

func (f *fleet) sourceFails(name string) error {
	s, err := f.Source(name)
	if err == nil && s.LastError == "" {
		err = fmt.Errorf("source %s is %s", name, s.State)
	}
	return err
}

func TestAKilledControlPlaneCostsNoRequestAndItsSuccessorKeepsGoodWeights(t *testing.T) {
	t.Parallel()
	// Wide enough that the few requests which an avoided server gets are served.
	pool := testbed.Pool(t, 3)
	f := start(t, testbed.Plan{Servers: pool, Envoys: 2})
	busy := pool[0].Address()
	testbed.Flood(t, pool[0], 500) // it must stay avoided throughout
	f.AvoidsEverywhere(busy)

	traffic := f.Send(testbed.Steady(8 * time.Second))
	stop := f.watchWeights(func(hosts map[string]proc.Host) error {
		if !testbed.Avoided(hosts, busy) {
			return fmt.Errorf("good weights were reset: %v", hosts)
		}
		return nil
	})
	if err := f.Control.Kill(); err != nil {
		t.Fatal(err)
	}
	served := pool[1].Served()
	f.Eventually("traffic goes on without a control plane", func() error {
		if pool[1].Served() < served+20 {
			return fmt.Errorf("%d served", pool[1].Served()-served)
		}
		return nil
	})
	f.Control = f.StartControl("steelyard-2")
	f.Eventually("every Envoy is back in sync", func() error { return f.allInSync() })
	result := traffic.Wait(t)
	stop()
	if result.Errors != 0 {
		t.Errorf("%d of %d requests failed: %v", result.Errors, result.Requests, result.Codes)
	}
}

// watchWeights checks the hosts of every Envoy all the time until stopped, and fails the test when the check fails.
func (f *fleet) watchWeights(check func(map[string]proc.Host) error) (stop func()) {
	ctx, cancel := context.WithCancel(f.T.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for i, e := range f.Envoys {
				hosts, err := testbed.Weighted(ctx, e)
				if err != nil {
					continue // the test has ended
				}
				if err := check(hosts); err != nil {
					f.T.Errorf("envoy %d: %v", i, err)
					return
				}
			}
			time.Sleep(10 * time.Millisecond) // as often as a push may come
		}
	}()
	stop = func() { cancel(); <-done }
	f.T.Cleanup(stop)
	return stop
}

// allInSync wants every Envoy connected and holding the newest version.
func (f *fleet) allInSync() error {
	clients, err := f.Clients()
	if err != nil {
		return err
	}
	if len(clients) != len(f.Envoys) {
		return fmt.Errorf("%d clients, want %d", len(clients), len(f.Envoys))
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
	pool := testbed.Pool(t, 2)
	store := proctest.Redis(t, proc.RedisConfig{Name: "redis-1"})
	counts := map[string]float64{pool[0].Address(): 40, pool[1].Address(): 0}
	testbed.SetCounts(t, store.Address(), counts)
	f := start(t, testbed.Plan{
		Servers: pool, Top: testbed.RedisSection(store),
		Cluster:   "inflight: {redis_key: \"inflight:{cluster}\"}\nweighting: {fresh: 500ms, hold: 1s, decay: 2s}",
		Bootstrap: testbed.Silent,
	})
	f.Eventually("Redis is read", func() error { return f.SourceIs("redis", api.SourceOK) })

	traffic := f.Send(testbed.Steady(8 * time.Second))
	if err := store.Kill(); err != nil {
		t.Fatal(err)
	}
	f.Eventually("Redis is shown as down", func() error { return f.SourceIs("redis", api.SourceDown) })
	f.Eventually("the loop uses only scrapes", func() error {
		e, err := f.Endpoint(pool[0].Address())
		if err == nil && e.LoadSource != "scraped" {
			err = fmt.Errorf("load from %s", e.LoadSource)
		}
		return err
	})
	again := proctest.Redis(t, proc.RedisConfig{Name: "redis-2", Address: store.Address()})
	testbed.SetCounts(t, again.Address(), counts)
	f.Eventually("Redis is read again", func() error { return f.SourceIs("redis", api.SourceOK) })
	if result := traffic.Wait(t); result.Errors != 0 {
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
	pool := testbed.Pool(t, 3)
	f := start(t, testbed.Plan{Servers: pool, Cluster: "weighting: {fresh: 500ms, hold: 700ms, decay: 1s}",
		Bootstrap: testbed.Silent})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f.T = t
			pool[0].SetMetricsFault(tt.fault)
			f.Eventually("the endpoint is neutral and says why", func() error {
				e, err := f.Endpoint(pool[0].Address())
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
				e, err := f.Endpoint(s.Address())
				if err != nil || e.Reason != "fill" || e.LastScrape.Error != "" || e.Input("queue").State != "fresh" {
					t.Errorf("another endpoint suffers: %+v, %v", e, err)
				}
			}
			result := f.Send(testbed.Quick(200)).Wait(t)
			if result.Errors != 0 || result.Servers[pool[0].Address()] == 0 {
				t.Errorf("%d errors, %d requests to the endpoint without metrics; want none and some", result.Errors,
					result.Servers[pool[0].Address()])
			}
			pool[0].SetMetricsFault(modelsim.MetricsHealthy)
			f.Eventually("the endpoint recovers", func() error {
				e, err := f.Endpoint(pool[0].Address())
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
	pool := testbed.Pool(t, 3)
	f := start(t, testbed.Plan{Servers: pool, Cluster: "weighting: {fresh: 500ms, hold: 700ms, decay: 1s}"})
	pool[0].SetMetricsFault(modelsim.MetricsError)
	traffic := f.Send(testbed.Steady(3 * time.Second))
	f.Eventually("it is weighed only by counts", func() error {
		e, err := f.Endpoint(pool[0].Address())
		if err == nil && (e.Reason != "fill" || e.LoadSource != string(weighting.LoadInFlight) ||
			!strings.Contains(e.LastScrape.Error, "500")) {
			err = fmt.Errorf("reason %s, load source %s, scrape error %q", e.Reason, e.LoadSource, e.LastScrape.Error)
		}
		return err
	})
	if result := traffic.Wait(t); result.Errors != 0 || result.Servers[pool[0].Address()] == 0 {
		t.Errorf("%d errors, %d requests to the endpoint without metrics; want none and some", result.Errors,
			result.Servers[pool[0].Address()])
	}
}

func TestSIGTERMDrains(t *testing.T) {
	pool := testbed.Pool(t, 2)
	f := start(t, testbed.Plan{Servers: pool, Envoys: 2})
	traffic := f.Send(testbed.Steady(3 * time.Second))
	began := time.Now()
	if err := f.Control.Stop(); err != nil {
		t.Errorf("it had to be killed: %v", err)
	}
	if err := f.Control.Wait(t.Context()); err != nil {
		t.Errorf("it ended with %v, want exit status 0", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v to stop", took)
	}
	if result := traffic.Wait(t); result.Errors != 0 {
		t.Errorf("%d errors: %v", result.Errors, result.Codes)
	}
}

func TestAServerThatIsGoneDoesNotLookIdle(t *testing.T) {
	t.Parallel()
	pool := testbed.Pool(t, 3)
	gone := pool[0].Address()
	f := start(t, testbed.Plan{Servers: pool})
	for _, s := range pool[1:] {
		testbed.Flood(t, s, 100) // so that the first is the idle one
	}
	f.Eventually("the idle one attracts the traffic", func() error { return f.ShareOf(gone, 0.9, 1) })
	if err := pool[0].Close(); err != nil {
		t.Fatal(err)
	}
	f.Eventually("it is neutral although it was idle last", func() error { return f.ShareOf(gone, 0, 0.4) })
	if result := f.Send(testbed.Steady(2 * time.Second)).Wait(t); result.Errors != 0 {
		t.Errorf("%d errors: %v", result.Errors, result.Codes)
	}
	testbed.Servers(t, modelsim.Options{Slots: 1000, Address: gone})
	f.Eventually("it is back", func() error { return f.ShareOf(gone, 0.9, 1) })
}

// Envoy's own health check ejects a server whose metrics are those of an idle one.
func TestAServerThatEnvoyEjectsIsNotCountedOnAndComesBack(t *testing.T) {
	t.Parallel()
	pool := testbed.Pool(t, 3)
	const before = "    # Steelyard computes the weights across all localities,"
	check := "    health_checks:\n    - {timeout: 1s, interval: 0.1s, no_traffic_interval: 0.1s, " +
		"unhealthy_threshold: 1, healthy_threshold: 1, http_health_check: {path: /health}}\n"
	f := start(t, testbed.Plan{Servers: pool, Edits: []testbed.Edit{{before, check + before}}})
	pool[0].SetServingFault(modelsim.ServingUnavailable)
	f.Send(load.Plan{Rate: 60, Work: load.Work{Mean: 200 * time.Millisecond}, Seed: 7})
	f.Eventually("nothing is counted on there", func() error {
		e, err := f.Endpoint(pool[0].Address())
		if err == nil && (e.Reason != string(weighting.ReasonUnused) || len(e.Problems) == 0) {
			err = fmt.Errorf("reason %s, problems %v", e.Reason, e.Problems)
		}
		return err
	})
	pool[0].SetServingFault(modelsim.ServingHealthy)
	f.WellAgain(pool[0])
	if e, err := f.Endpoint(pool[0].Address()); err != nil || e.Reason == string(weighting.ReasonUnused) {
		t.Errorf("it serves, and its reason is %s (%v)", e.Reason, err)
	}
}
