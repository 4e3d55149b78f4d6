package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"steelyard/controlplane/discovery"
	"steelyard/internal/api"
	"steelyard/weighting"
	"steelyard/weighting/flight"
	"steelyard/weighting/push"
)

// served are the reports of a server that the proxies got.
type served struct {
	address string
	report  weighting.ServerReport
	slots   float64
}

// recorder is a Publisher, Proxies and an Observer that remembers.
type recorder struct {
	sources   []api.SourceStatus
	counts    ProxyCounts
	mu        sync.Mutex
	published []weighting.Decision
	stale     time.Duration // of the last publication
	steps     []time.Time
	decision  weighting.Decision // of the last step
	removed   []string
	served    []served
	disputes  []api.Dispute
	err       error
	delay     time.Duration
}

func (r *recorder) Publish(_ string, v push.Verdict) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return "", r.err
	}
	r.published, r.stale = append(r.published, v.Decision), v.StaleAfter
	return "v1", nil
}

func (r *recorder) Remove(cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removed = append(r.removed, cluster)
}

func (r *recorder) Counts(string, time.Time, []flight.Counts) ProxyCounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

func (r *recorder) report(c ProxyCounts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts = c
}

func (r *recorder) Sources(string, time.Time) []api.SourceStatus { return slices.Clone(r.sources) }

func (r *recorder) Served(address string, report weighting.ServerReport, slots float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.served = append(r.served, served{address, report, slots})
}

func (r *recorder) Disputes(string, time.Time) []api.Dispute { return slices.Clone(r.disputes) }

func (r *recorder) Weights(string) map[string]uint32 { return map[string]uint32{"10.0.0.1:80": 37} }
func (r *recorder) AckDelay(string) time.Duration    { r.mu.Lock(); defer r.mu.Unlock(); return r.delay }
func (r *recorder) count() int                       { r.mu.Lock(); defer r.mu.Unlock(); return len(r.published) }
func (r *recorder) last() weighting.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.published[len(r.published)-1]
}
func (r *recorder) stepTimes() (times []time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.steps)
}
func (r *recorder) Stepped(_ string, _, d weighting.Decision, _ Push, _ time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps, r.decision = append(r.steps, d.At), d
}

// decided is the decision of the last step, pushed or not.
func (r *recorder) decided() weighting.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.decision
}

func testOptions() Options {
	return Options{
		Engine: "vllm", Scraped: true, WarmUp: 5 * time.Second,
		Push: push.Options{Params: weighting.DefaultParams(), Budget: push.Budget{MinInterval: 50 * time.Millisecond}},
	}
}

// withCPU is a budget of two hundredths of a core, of which a push of one endpoint takes half a
// millisecond.
func withCPU() Options {
	o := testOptions()
	o.Push.Budget = push.Budget{MinInterval: 5 * time.Millisecond, ProxyCPU: 0.02,
		Cost: push.Cost{CPU: 500 * time.Microsecond, EndpointBytes: 30}}
	return o
}

// move changes the zone of the cluster's one endpoint, which is always worth a push.
func move(c *Cluster, zone int) {
	c.SetEndpoints([]discovery.Endpoint{{Address: "10.0.0.1:80", Zone: fmt.Sprint(zone)}})
}

func addresses(list ...string) []discovery.Endpoint {
	out := make([]discovery.Endpoint, len(list))
	for i, a := range list {
		out[i] = discovery.Endpoint{Address: a}
	}
	return out
}

// TestScrapesThatAreFarApartHoldNothingUp: what else is new, such as another set of endpoints or a
// heartbeat that is due, does not wait for the next pages.
func TestScrapesThatAreFarApartHoldNothingUp(t *testing.T) {
	o := withCPU()
	o.ScrapeInterval, o.Push.Budget.ProxyCPU = time.Hour, 0
	inLoop(t, o, func(cluster *Cluster, r *recorder) {
		var endpoints []discovery.Endpoint
		for i := range 100 {
			endpoints = append(endpoints, discovery.Endpoint{Address: fmt.Sprintf("10.0.0.%d:80", i)})
		}
		cluster.SetEndpoints(endpoints)
		after(10 * time.Second)
		times := r.stepTimes()
		for i, at := range times[1:] {
			if apart := at.Sub(times[i]); apart > 600*time.Millisecond { // two rests
				t.Fatalf("steps %v apart", apart)
			}
		}
		if len(times) < 10 {
			t.Errorf("%d steps in ten seconds", len(times))
		}
	})
}

func idle(at time.Time) weighting.ServerReport { return queued(at, 0) }

func queued(at time.Time, n float64) weighting.ServerReport {
	return weighting.ServerReport{
		Queue:   weighting.Reading{Value: n, At: at},
		Running: weighting.Reading{Value: 1, At: at},
	}
}

// inLoop runs a cluster in a bubble of its own time and stops it at the end.
func inLoop(t *testing.T, o Options, test func(c *Cluster, r *recorder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		c := NewCluster("llama", o, r, r, r, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		test(c, r)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// after lets the loop run for d.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestNothingIsPublishedBeforeTheFirstFullRound(t *testing.T) {
	const a, b = "10.0.0.1:80", "10.0.0.2:80"
	dead := errors.New("refused")
	tests := []struct {
		name      string
		options   func(*Options)
		reports   func(c *Cluster)
		wantReady bool
		wantWhy   string

		unpublished bool // although ready
	}{
		{
			name:    "nothing but what proxies report, and one of two reports",
			options: func(o *Options) { o.Scraped = false },
			reports: func(c *Cluster) {
				c.SetEndpoints(addresses(a, b))
				c.proxies.(*recorder).report(ProxyCounts{
					Subscribers: push.Subscribers{Proxies: 2}, Watching: 2, Reporting: 1,
				})
			},
			wantWhy: "proxies: 1 of 2 report their requests",
		}, {
			name:    "nothing but what proxies report, and none is there",
			options: func(o *Options) { o.Scraped = false },
			reports: func(c *Cluster) { c.SetEndpoints(addresses(a, b)) }, wantReady: true,
		}, {
			name:    "no endpoints yet",
			reports: func(*Cluster) {},
			wantWhy: "endpoints: discovery has not answered yet",
		}, {
			name:    "an empty pool has nothing to wait for, and nothing to publish",
			reports: func(c *Cluster) { c.SetEndpoints(nil) }, wantReady: true, unpublished: true,
		}, {
			name: "one of two has not answered",
			reports: func(c *Cluster) {
				c.SetEndpoints(addresses(a, b))
				c.Scraped(a, idle(time.Now()), Scrape{At: time.Now()})
			},
			wantWhy: "scrapes: 1 of 2 endpoints have answered, 0 have failed 3 times",
		}, {
			name: "both answered",
			reports: func(c *Cluster) {
				c.SetEndpoints(addresses(a, b))
				c.Scraped(a, idle(time.Now()), Scrape{At: time.Now()})
				c.Scraped(b, idle(time.Now()), Scrape{At: time.Now()})
			},
			wantReady: true,
		}, {
			name: "one failed three times and is given up on",
			reports: func(c *Cluster) {
				c.SetEndpoints(addresses(a, b))
				c.Scraped(a, idle(time.Now()), Scrape{At: time.Now()})
				for range 3 {
					c.Scraped(b, weighting.ServerReport{}, Scrape{At: time.Now(), Err: dead})
				}
			},
			wantReady: true,
		}, {
			name: "while none answers none is given up on",
			reports: func(c *Cluster) {
				c.SetEndpoints(addresses(a, b))
				for range 3 {
					c.Scraped(a, weighting.ServerReport{}, Scrape{At: time.Now(), Err: dead})
					c.Scraped(b, weighting.ServerReport{}, Scrape{At: time.Now(), Err: dead})
				}
			},
			wantWhy: "scrapes: 0 of 2 endpoints have answered, 2 have failed 3 times",
		}, {
			name:    "only counts: not read",
			options: func(o *Options) { o.Scraped, o.Counted = false, true },
			reports: func(c *Cluster) { c.SetEndpoints(addresses(a, b)) },
			wantWhy: "in-flight counts: none for any of 2 endpoints yet",
		}, {
			name:    "only counts: Redis failing is no answer",
			options: func(o *Options) { o.Scraped, o.Counted = false, true },
			reports: func(c *Cluster) {
				c.SetEndpoints(addresses(a, b))
				for range 5 {
					c.Counted(nil, time.Now(), dead)
				}
			},
			wantWhy: "in-flight counts: none for any of 2 endpoints yet",
		}, {
			name:    "only counts: read",
			options: func(o *Options) { o.Scraped, o.Counted = false, true },
			reports: func(c *Cluster) {
				c.SetEndpoints(addresses(a, b))
				c.Counted(map[string]float64{a: 3}, time.Now(), nil)
			},
			wantReady: true,
		}, {
			name:    "scrapes do not wait for a Redis that is away",
			options: func(o *Options) { o.Counted = true },
			reports: func(c *Cluster) {
				c.SetEndpoints(addresses(a))
				c.Scraped(a, idle(time.Now()), Scrape{At: time.Now()})
				for range 3 {
					c.Counted(nil, time.Now(), dead)
				}
			},
			wantReady: true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := testOptions()
			if tt.options != nil {
				tt.options(&o)
			}
			inLoop(t, o, func(c *Cluster, r *recorder) {
				tt.reports(c)
				after(time.Second)
				if published, want := r.count() > 0, tt.wantReady && !tt.unpublished; published != want {
					t.Errorf("published: %v, want %v", published, want)
				}
				v := c.View(time.Now())
				if v.Ready != tt.wantReady || v.NotReadyReason != tt.wantWhy {
					t.Errorf("shown as ready %v because %q, want %v because %q", v.Ready, v.NotReadyReason,
						tt.wantReady, tt.wantWhy)
				}
			})
		})
	}
}

func TestTheWarmUpLimitPublishesWhatIsKnown(t *testing.T) {
	inLoop(t, testOptions(), func(c *Cluster, r *recorder) {
		c.SetEndpoints(addresses("10.0.0.1:80", "10.0.0.2:80"))
		after(4900 * time.Millisecond)
		if r.count() != 0 {
			t.Error("published before the warm-up limit")
		}
		after(500 * time.Millisecond)
		if r.count() == 0 {
			t.Error("not published after the warm-up limit")
		}
	})
}

func TestTheFirstRoundBeginsWithTheFirstEndpoints(t *testing.T) {
	inLoop(t, testOptions(), func(c *Cluster, r *recorder) {
		c.SetEndpoints(nil)
		after(time.Minute)
		c.SetEndpoints(addresses("10.0.0.1:80"))
		after(4900 * time.Millisecond)
		if r.count() != 0 {
			t.Fatal("a pool that was empty was published without a report")
		}
		c.Scraped("10.0.0.1:80", idle(time.Now()), Scrape{At: time.Now()})
		after(100 * time.Millisecond)
		if r.count() == 0 {
			t.Fatal("not published after the first report")
		}
		if e := r.last().Endpoints[0]; e.Reason == weighting.ReasonNeutral || e.LoadSource != weighting.LoadScraped {
			t.Errorf("published for reason %s from %s", e.Reason, e.LoadSource)
		}
	})
}

func TestThePushDelayIsMeasured(t *testing.T) {
	r := &recorder{delay: 30 * time.Millisecond}
	c := NewCluster("llama", testOptions(), r, r, r, slog.New(slog.DiscardHandler))
	if got := c.snapshot(time.Now()).PushDelay; got != r.delay {
		t.Errorf("push delay %v, want that of the ACKs, %v", got, r.delay)
	}
}

// Every change is pushed in this test, so what the loop spares is the budgets' doing.
func TestPushesKeepTheirBudgets(t *testing.T) {
	alone := push.Subscribers{Proxies: 10, Clusters: 1, BusyClusters: 1}
	for _, c := range []struct {
		name        string
		budget      func(*push.Budget)
		fleet       push.Subscribers
		within      time.Duration
		least, most int // pushes
		limit       string
	}{
		{"the floor", func(b *push.Budget) { b.ProxyCPU = 0 }, alone, time.Second, 190, 201, push.LimitFloor},
		// 1 endpoint, 1000 proxies, 30 B: 30 KB a push.
		{"the byte budget", func(b *push.Budget) { b.ProxyCPU, b.BytesPerSecond = 0, 300e3 },
			push.Subscribers{Proxies: 1000, Clusters: 1, BusyClusters: 1}, time.Second, 9, 11, push.LimitBytes},
		// 0.5 ms a push and 2 % of a core are 40 pushes a second, and as many again at once.
		{"the proxies' CPU", func(*push.Budget) {}, alone, 10 * time.Second, 400, 450, push.LimitCPU},
		{"the CPU of proxies with four clusters", func(*push.Budget) {},
			push.Subscribers{Proxies: 10, Clusters: 4, BusyClusters: 4}, 10 * time.Second, 98, 115, push.LimitCPU},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := withCPU()
			c.budget(&o.Push.Budget)
			inLoop(t, o, func(cluster *Cluster, r *recorder) {
				r.report(ProxyCounts{Subscribers: c.fleet})
				move(cluster, 0)
				cluster.Scraped("10.0.0.1:80", idle(time.Now()), Scrape{At: time.Now()})
				zone := 0
				for end := time.Now().Add(c.within); time.Now().Before(end); time.Sleep(time.Millisecond) {
					zone++
					move(cluster, zone)
				}
				if n := r.count(); n < c.least || n > c.most {
					t.Errorf("%d pushes in %v, want %d to %d", n, c.within, c.least, c.most)
				}
				if got := cluster.View(time.Now()).MinIntervalReason; got != c.limit {
					t.Errorf("the interval is set by %q, want %q", got, c.limit)
				}
			})
		})
	}
}

// A heartbeat of a cluster without traffic is a second of its budget and more. With the first
// request it has another budget, and the request does not wait; anything else does.
func TestTheFirstRequestDoesNotWaitUntilAHeartbeatIsPaidFor(t *testing.T) {
	inLoop(t, withCPU(), func(cluster *Cluster, r *recorder) {
		r.report(ProxyCounts{Subscribers: push.Subscribers{Proxies: 10, Clusters: 20, Idle: true}})
		move(cluster, 0)
		cluster.Scraped("10.0.0.1:80", idle(time.Now()), Scrape{At: time.Now()})
		after(10 * time.Millisecond)
		pushes := r.count()
		if pushes == 0 {
			t.Fatal("no push of what was read first")
		}
		move(cluster, 1)
		after(100 * time.Millisecond)
		if got := r.count(); got != pushes {
			t.Fatalf("%d pushes of a cluster without traffic, want %d", got, pushes)
		}
		r.report(ProxyCounts{Subscribers: push.Subscribers{Proxies: 10, Clusters: 20, BusyClusters: 1}})
		cluster.Poke()
		after(10 * time.Millisecond)
		if got := r.count(); got != pushes+1 {
			t.Errorf("%d pushes after the first request, want %d", got, pushes+1)
		}
	})
}

// What a step has decided on is not news after it: a request that was reported before does not have
// the next push go out unpaid.
func TestARequestCutsShortOnlyTheRestThatItFallsInto(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{counts: ProxyCounts{Subscribers: push.Subscribers{Proxies: 10, Clusters: 20, Idle: true}}}
		c := NewCluster("llama", withCPU(), r, r, r, slog.New(slog.DiscardHandler))
		move(c, 0)
		c.Scraped("10.0.0.1:80", idle(time.Now()), Scrape{At: time.Now()})
		c.Poke()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		after(10 * time.Millisecond)
		move(c, 1)
		after(100 * time.Millisecond)
		if got := r.count(); got != 1 {
			t.Errorf("%d pushes, want 1", got)
		}
		cancel()
		<-done
	})
}

// With very many clusters an Envoy's CPU sustains a push in seconds. What cannot wait that long
// is decided and pushed within one; heartbeats can.
func TestAnEndpointThatLeavesIsNotSentToForLongHoweverSmallTheBudget(t *testing.T) {
	o := withCPU()
	o.Push.Heartbeat = 500 * time.Millisecond
	inLoop(t, o, func(cluster *Cluster, r *recorder) {
		r.report(ProxyCounts{Subscribers: push.Subscribers{Proxies: 10, Clusters: 200, BusyClusters: 200}})
		list := []string{"10.0.0.1:80", "10.0.0.2:80"}
		cluster.SetEndpoints(addresses(list...))
		for range 5 {
			for _, a := range list {
				cluster.Scraped(a, idle(time.Now()), Scrape{At: time.Now()})
			}
			after(100 * time.Millisecond)
		}
		cluster.SetEndpoints(addresses(list[0]))
		after(time.Second)
		if n := len(r.last().Endpoints); n != 1 {
			t.Errorf("a second after one of two endpoints left, %d are published", n)
		}
	})
}

func TestTheLoopLeavesTheProxiesWithNeutralWeights(t *testing.T) {
	o := testOptions()
	o.Capacity, o.Push.StaleAfter = 4, 3*time.Second
	var r *recorder
	inLoop(t, o, func(c *Cluster, seen *recorder) {
		r = seen
		c.SetEndpoints(addresses("10.0.0.1:80", "10.0.0.2:80"))
		c.Scraped("10.0.0.1:80", queued(time.Now(), 50), Scrape{At: time.Now()})
		c.Scraped("10.0.0.2:80", idle(time.Now()), Scrape{At: time.Now()})
		after(3 * time.Second)
		if e := r.last().Endpoints[0]; e.Share > 0.1 {
			t.Fatalf("share %v of a full endpoint: the test shows nothing", e.Share)
		}
	})
	for _, e := range r.last().Endpoints {
		if e.Share != 0.5 || e.Overloaded {
			t.Errorf("%s is left with share %v, overloaded %v; want half of the traffic and no flag", e.Address,
				e.Share, e.Overloaded)
		}
	}
	if r.stale != 3*time.Second {
		t.Errorf("stale after %v, want 3s", r.stale)
	}
}

func TestProxiesOwnReportsAreTheCountsWhereAllOfThemReport(t *testing.T) {
	const address = "10.0.0.1:80"
	for _, c := range []struct {
		name                   string
		redis, others          bool
		subscribers, reporting int
		want                   float64
		exact                  bool
	}{
		{"no Redis, all report", false, false, 2, 2, 7, true},
		{"no Redis, one of two reports", false, false, 2, 1, 7, true},
		{"Redis, all report", true, false, 2, 2, 7, true},
		{"Redis, one of two reports", true, false, 2, 1, 3, false},
		{"Redis, nobody is there", true, false, 0, 0, 3, false},
		{"Redis has others, all report", true, true, 2, 2, 7 + 3, false},
		{"Redis has others, one of two reports", true, true, 2, 1, 7 + 3, false},
		{"Redis has others, nobody is there", true, true, 0, 0, 3, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, now := &recorder{}, time.Now()
			r.counts = ProxyCounts{
				Subscribers: push.Subscribers{Proxies: c.subscribers}, Watching: c.subscribers, Reporting: c.reporting,
				Interval: time.Second, Dropped: weighting.Reading{Value: 11, At: now},
				Endpoints: []flight.Counts{
					{Address: "10.9.9.9:80", InFlight: weighting.Reading{Value: 99, At: now}},
					{Address: address, InFlight: weighting.Reading{Value: 7, At: now}, Exact: true,
						Proxies: weighting.ProxyReport{Issued: weighting.Reading{Value: 5, At: now}}},
				},
			}
			o := testOptions()
			o.Counted, o.CountsOthers = c.redis, c.others
			o.CountInterval, o.ScrapeInterval = 100*time.Millisecond, 250*time.Millisecond
			cluster := NewCluster("llama", o, r, r, r, slog.New(slog.DiscardHandler))
			cluster.SetEndpoints(addresses(address))
			cluster.Counted(map[string]float64{address: 3}, now, nil)
			s := cluster.snapshot(now)
			interval := time.Second
			if c.want == 3 {
				interval = 100 * time.Millisecond
			}
			want := weighting.Snapshot{
				ScrapeInterval: 250 * time.Millisecond, CountInterval: interval,
				Endpoints: []weighting.Endpoint{{
					Address: address, InFlight: weighting.Reading{Value: c.want, At: now}, Exact: c.exact,
					Proxies: weighting.ProxyReport{Issued: weighting.Reading{Value: 5, At: now}},
				}},
			}
			if !reflect.DeepEqual(s, want) {
				t.Errorf("snapshot\n%+v, want\n%+v", s, want)
			}
			r.counts = ProxyCounts{}
			if s := cluster.snapshot(now); s.Endpoints[0].Proxies != (weighting.ProxyReport{}) {
				t.Errorf("%+v is left of proxies that have gone", s.Endpoints[0].Proxies)
			}
		})
	}
}

func TestCountsOfOthersAreAddedWhileTheyAreNew(t *testing.T) {
	const address = "10.0.0.1:80"
	r, now := &recorder{}, time.Now()
	o := testOptions()
	o.Counted, o.CountsOthers = true, true
	cluster := NewCluster("llama", o, r, r, r, slog.New(slog.DiscardHandler))
	cluster.SetEndpoints(addresses(address))
	for _, c := range []struct {
		name   string
		others float64 // below zero: not read again
		after  time.Duration
		want   float64
		exact  bool
		shown  api.Number
	}{
		{"never read", -1, 0, 7, true, api.Number{}},
		{"none", 0, time.Second, 7, true, api.Num(0)},
		{"some", 3, 2 * time.Second, 10, false, api.Num(3)},
		{"some, and not read since", -1, 2*time.Second + o.Push.Params.Hold, 10, false, api.Num(3)},
		{"some, too long ago", -1, 3*time.Second + o.Push.Params.Hold, 7, true, api.Number{}},
	} {
		at := now.Add(c.after)
		r.counts = ProxyCounts{Watching: 1, Reporting: 1, Source: api.SourceAccessLog, Endpoints: []flight.Counts{
			{Address: address, InFlight: weighting.Reading{Value: 7, At: at}, Exact: true}}}
		if c.others >= 0 {
			cluster.Counted(map[string]float64{address: c.others}, at, nil)
		}
		got := cluster.snapshot(at).Endpoints[0]
		if want := (weighting.Reading{Value: c.want, At: at}); got.InFlight != want || got.Exact != c.exact {
			t.Errorf("%s: %v, exact %v; want %v, exact %v", c.name, got.InFlight, got.Exact, want, c.exact)
		}
		e := api.Endpoint{Address: address}
		_, _, s := cluster.copied(at, nil)
		s.show(&e, at)
		if e.InFlightOthers != c.shown || e.InFlightSource != api.SourceAccessLog {
			t.Errorf("%s: %v of others are shown, from %s; want %v", c.name, e.InFlightOthers, e.InFlightSource,
				c.shown)
		}
	}
}

// A file is read again while the page is open; the race detector finds what they share.
func TestTheViewIsIndependentOfNewOptions(t *testing.T) {
	const address = "10.0.0.1:80"
	r, now := &recorder{}, time.Now()
	r.counts = ProxyCounts{Watching: 1, Reporting: 1, Endpoints: []flight.Counts{
		{Address: address, InFlight: weighting.Reading{Value: 7, At: now}}}}
	o := testOptions()
	o.Counted, o.CountsOthers, o.Engine = true, true, "vllm"
	cluster := NewCluster("llama", o, r, r, r, slog.New(slog.DiscardHandler))
	cluster.SetEndpoints(addresses(address))
	cluster.snapshot(now)
	e := api.Endpoint{Address: address}
	_, _, s := cluster.copied(now, nil)
	var other sync.WaitGroup
	other.Go(func() {
		o.Engine = "sglang"
		cluster.SetOptions(o)
	})
	s.show(&e, now)
	other.Wait()
	if e.Engine != "vllm" {
		t.Errorf("engine %q, want that of when the view was made", e.Engine)
	}
}

func TestNewOptionsReachTheLaw(t *testing.T) {
	o := testOptions()
	inLoop(t, o, func(c *Cluster, r *recorder) {
		c.SetEndpoints(addresses("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"))
		report := func() {
			for i, a := range []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"} {
				c.Scraped(a, queued(time.Now(), float64(3*i)), Scrape{At: time.Now()})
			}
			after(100 * time.Millisecond)
		}
		o.Capacity = 2
		c.SetOptions(o)
		report()
		if d := r.last(); d.Endpoints[2].Overloaded || d.Endpoints[2].Slots != 2 {
			t.Fatalf("overloaded %v with %v slots before the change", d.Endpoints[2].Overloaded, d.Endpoints[2].Slots)
		}
		o.Push.Params.Overload.QueueEnter = 3
		c.SetOptions(o)
		report()
		if !r.last().Endpoints[2].Overloaded {
			t.Error("the new threshold is not in force")
		}
	})
}

func TestAnAnswerMakesUpForFailures(t *testing.T) {
	inLoop(t, testOptions(), func(c *Cluster, r *recorder) {
		const a, b = "10.0.0.1:80", "10.0.0.2:80"
		c.SetEndpoints(addresses(a, b))
		c.Scraped(a, idle(time.Now()), Scrape{At: time.Now()})
		fail := func() { c.Scraped(b, weighting.ServerReport{}, Scrape{At: time.Now(), Err: errors.New("refused")}) }
		fail()
		fail()
		c.Scraped(b, idle(time.Now()), Scrape{At: time.Now()})
		c.mu.Lock()
		failures := c.records[b].failures
		c.mu.Unlock()
		if failures != 0 {
			t.Errorf("%d failures in a row after an answer", failures)
		}
	})
}

func TestWithoutEndpointsTheWarmUpLimitPublishesNothing(t *testing.T) {
	inLoop(t, testOptions(), func(_ *Cluster, r *recorder) {
		after(10 * time.Second)
		if r.count() != 0 {
			t.Error("an assignment without endpoints was published although discovery never answered")
		}
	})
}

func TestReportsCoalesceToOneStepPerMinimumInterval(t *testing.T) {
	o := testOptions()
	inLoop(t, o, func(c *Cluster, r *recorder) {
		c.SetEndpoints(addresses("10.0.0.1:80"))
		for range 1000 {
			c.Scraped("10.0.0.1:80", idle(time.Now()), Scrape{At: time.Now()})
			time.Sleep(time.Millisecond)
		}
		times := r.stepTimes()
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap < o.Push.Budget.MinInterval {
				t.Fatalf("steps %v apart, want at least %v", gap, o.Push.Budget.MinInterval)
			}
		}
		if got := len(times); got < 19 || got > 21 {
			t.Errorf("%d steps in a second of reports, want 20", got)
		}
	})
}

func TestAReportAfterAQuietTimeIsActedOnAtOnce(t *testing.T) {
	inLoop(t, testOptions(), func(c *Cluster, r *recorder) {
		c.SetEndpoints(addresses("10.0.0.1:80", "10.0.0.2:80"))
		after(120 * time.Millisecond) // between two steps that only let ages move
		now := time.Now()
		c.Scraped("10.0.0.1:80", idle(now), Scrape{At: now})
		synctest.Wait()
		times := r.stepTimes()
		if last := times[len(times)-1]; !last.Equal(now) {
			t.Errorf("the step came %v after the report", last.Sub(now))
		}
	})
}

func TestTheLastOfManyReportsWins(t *testing.T) {
	inLoop(t, testOptions(), func(c *Cluster, r *recorder) {
		c.SetEndpoints(addresses("10.0.0.1:80"))
		for n := range 10 {
			c.Scraped("10.0.0.1:80", queued(time.Now(), float64(n)), Scrape{At: time.Now()})
			time.Sleep(time.Millisecond)
		}
		after(100 * time.Millisecond)
		if got := r.last().Endpoints[0].Load; got != 10 {
			t.Errorf("load %v, want 9 waiting + 1 running", got)
		}
	})
}

func TestEndpointsThatStayKeepTheirReports(t *testing.T) {
	inLoop(t, testOptions(), func(c *Cluster, r *recorder) {
		now := time.Now()
		c.SetEndpoints(addresses("10.0.0.1:80", "10.0.0.2:80"))
		c.Scraped("10.0.0.1:80", queued(now, 5), Scrape{At: now})
		c.Scraped("10.0.0.2:80", queued(now, 3), Scrape{At: now})
		after(100 * time.Millisecond)
		c.SetEndpoints(addresses("10.0.0.2:80", "10.0.0.3:80"))
		c.Scraped("10.0.0.1:80", queued(time.Now(), 9), Scrape{At: time.Now()}) // late, of one that is gone
		after(100 * time.Millisecond)
		d := r.last()
		if len(d.Endpoints) != 2 {
			t.Fatalf("%d endpoints, want 2", len(d.Endpoints))
		}
		if e := d.Endpoints[0]; e.Address != "10.0.0.2:80" || e.Load != 4 {
			t.Errorf("first endpoint %s with load %v, want 10.0.0.2:80 with 4", e.Address, e.Load)
		}
		if e := d.Endpoints[1]; e.Address != "10.0.0.3:80" || e.Reason != weighting.ReasonBlackout {
			t.Errorf("second endpoint %s for reason %s, want 10.0.0.3:80 in blackout", e.Address, e.Reason)
		}
	})
}

func TestMembersThatAreNoEndpointsAreIgnoredAndCounted(t *testing.T) {
	o := testOptions()
	o.Scraped, o.Counted = false, true
	inLoop(t, o, func(c *Cluster, r *recorder) {
		c.SetEndpoints(addresses("10.0.0.1:80"))
		ignored := c.Counted(map[string]float64{"10.0.0.1:80": 2, "10.9.9.9:80": 7, "x": 1}, time.Now(), nil)
		after(100 * time.Millisecond)
		if ignored != 2 {
			t.Errorf("%d members ignored, want 2", ignored)
		}
		if got := r.last().Endpoints[0]; got.Load != 2 || got.LoadSource != weighting.LoadInFlight {
			t.Errorf("load %v from %s, want 2 from in_flight", got.Load, got.LoadSource)
		}
		for _, s := range c.View(time.Now()).Sources {
			if s.Name == "redis" && s.IgnoredMembers != 2 {
				t.Errorf("%d ignored members shown, want 2", s.IgnoredMembers)
			}
		}
	})
}

func TestAMemberThatVanishesIsUnknownAndNotIdle(t *testing.T) {
	o := testOptions()
	o.Scraped, o.Counted = false, true
	inLoop(t, o, func(c *Cluster, r *recorder) {
		c.SetEndpoints(addresses("10.0.0.1:80", "10.0.0.2:80"))
		c.Counted(map[string]float64{"10.0.0.1:80": 2, "10.0.0.2:80": 2}, time.Now(), nil)
		after(100 * time.Millisecond)
		c.Counted(map[string]float64{"10.0.0.2:80": 2}, time.Now(), nil)
		after(100 * time.Millisecond)
		if got := r.last().Endpoints[0].Load; got != 2 {
			t.Errorf("load %v, want the 2 that were last known", got)
		}
	})
}

func TestTheHealthOfSourcesIsShown(t *testing.T) {
	o := testOptions()
	o.Counted = true
	refused := errors.New("connection refused")
	type want struct {
		state api.SourceState
		err   string
	}
	tests := []struct {
		name string
		do   func(c *Cluster)
		want map[string]want
	}{
		{"nothing heard yet", func(c *Cluster) {}, map[string]want{
			"discovery": {api.SourceOK, ""}, "scrape": {api.SourceDown, ""}, "redis": {api.SourceDown, ""},
		}},
		{"all well", func(c *Cluster) {
			c.Discovered(time.Now(), nil)
			c.Scraped("10.0.0.1:80", idle(time.Now()), Scrape{At: time.Now()})
			c.Scraped("10.0.0.2:80", idle(time.Now()), Scrape{At: time.Now()})
			c.Counted(map[string]float64{"10.0.0.1:80": 1}, time.Now(), nil)
		}, map[string]want{
			"discovery": {api.SourceOK, ""}, "scrape": {api.SourceOK, ""}, "redis": {api.SourceOK, ""},
		}},
		{"just failing", func(c *Cluster) {
			c.Discovered(time.Now(), refused)
			c.Scraped("10.0.0.2:80", weighting.ServerReport{}, Scrape{At: time.Now(), Err: refused})
			c.Counted(nil, time.Now(), refused)
		}, map[string]want{
			"discovery": {api.SourceStale, "connection refused"},
			"scrape":    {api.SourceStale, "1 of 2 endpoints fail, the first 10.0.0.2:80: connection refused"},
			"redis":     {api.SourceStale, "connection refused"},
		}},
		{"failing for longer than a report is held", func(c *Cluster) { time.Sleep(o.Push.Params.Hold + time.Second) },
			map[string]want{
				"discovery": {api.SourceStale, "connection refused"}, // a set of endpoints does not age
				"scrape":    {api.SourceDown, "1 of 2 endpoints fail, the first 10.0.0.2:80: connection refused"},
				"redis":     {api.SourceDown, "connection refused"},
			}},
		{"counts read in part, again and again", func(c *Cluster) {
			c.Counted(map[string]float64{"10.0.0.1:80": 1}, time.Now(), errors.New("10.0.0.2:80 left out"))
		}, map[string]want{
			"discovery": {api.SourceStale, "connection refused"},
			"scrape":    {api.SourceDown, "1 of 2 endpoints fail, the first 10.0.0.2:80: connection refused"},
			"redis":     {api.SourceStale, "10.0.0.2:80 left out"},
		}},
		{"no endpoints", func(c *Cluster) { c.SetEndpoints(nil) }, map[string]want{
			"discovery": {api.SourceStale, "connection refused"}, "scrape": {api.SourceIdle, ""},
			"redis": {api.SourceStale, "10.0.0.2:80 left out"},
		}},
		{"new endpoints, not scraped yet", func(c *Cluster) { c.SetEndpoints(addresses("10.0.0.3:80")) },
			map[string]want{
				"discovery": {api.SourceStale, "connection refused"}, "scrape": {api.SourceDown, ""},
				"redis": {api.SourceStale, "10.0.0.2:80 left out"},
			}},
	}
	inLoop(t, o, func(c *Cluster, r *recorder) {
		c.SetEndpoints(addresses("10.0.0.1:80", "10.0.0.2:80"))
		for _, tt := range tests { // one story
			tt.do(c)
			for _, s := range c.View(time.Now()).Sources {
				if got := (want{s.State, s.LastError}); got != tt.want[s.Name] {
					t.Errorf("%s: %s is %v, want %v", tt.name, s.Name, got, tt.want[s.Name])
				}
			}
		}
	})
}

// TestDiscoveryIsDownOnlyWhenNothingWasEverFound: what is left out of a set is a state of its own, and named.
func TestDiscoveryIsDownOnlyWhenNothingWasEverFound(t *testing.T) {
	small := api.Omission{Object: "Pod small", Reason: "it is too small"}
	omitted := discovery.Omit([]api.Omission{small})
	refused := errors.New("connection refused")
	type outcome struct {
		err       error
		endpoints []discovery.Endpoint // nil: those known stay
	}
	some, none := addresses("10.0.0.1:80"), []discovery.Endpoint{}
	for name, c := range map[string]struct {
		outcomes []outcome
		state    api.SourceState
		err      string
		named    int
	}{
		"nothing yet":        {nil, api.SourceDown, "", 0},
		"all is used":        {[]outcome{{nil, some}}, api.SourceOK, "", 0},
		"used in part":       {[]outcome{{omitted, some}}, api.SourcePartly, "", 1},
		"used with an error": {[]outcome{{refused, some}}, api.SourceStale, "connection refused", 0},
		"used in part and an error": {[]outcome{{discovery.Both(refused, omitted), some}}, api.SourceStale,
			"connection refused; Pod small: it is too small", 1},
		"nothing can be used": {[]outcome{{fmt.Errorf("unusable: %w", omitted), nil}}, api.SourceDown,
			"unusable: Pod small: it is too small", 1},
		"nothing can be used any more": {[]outcome{{nil, some}, {fmt.Errorf("unusable: %w", omitted), nil}},
			api.SourceStale, "unusable: Pod small: it is too small", 1},
		"nothing is there, for a reason": {[]outcome{{refused, none}}, api.SourceDown, "connection refused", 0},
		"nothing is there any more": {[]outcome{{refused, some}, {refused, none}}, api.SourceStale,
			"connection refused", 0},
		"all is used again": {[]outcome{{omitted, some}, {refused, nil}, {nil, some}}, api.SourceOK, "", 0},
	} {
		inLoop(t, testOptions(), func(cluster *Cluster, r *recorder) {
			for _, o := range c.outcomes {
				cluster.Discovered(time.Now(), o.err)
				if o.endpoints != nil {
					cluster.SetEndpoints(o.endpoints)
				}
			}
			got := cluster.View(time.Now()).Sources[0]
			if got.State != c.state || got.LastError != c.err || got.Omitted.Count != c.named ||
				len(got.Omitted.First) != c.named || c.named > 0 && got.Omitted.First[0] != small ||
				got.LastSuccess.IsZero() != (c.state == api.SourceDown) {
				t.Errorf("%s: %+v, want %s, %q and %d omissions", name, got, c.state, c.err, c.named)
			}
		})
	}
}

// TestAClusterIsBlindWhileWhatItIsDecidedByFails, for longer than a moment.
func TestAClusterIsBlindWhileWhatItIsDecidedByFails(t *testing.T) {
	inLoop(t, testOptions(), func(c *Cluster, _ *recorder) {
		blind := func(want string) {
			t.Helper()
			if got := c.Blind(time.Now()); got != want {
				t.Errorf("it is blind because %q, want %q", got, want)
			}
		}
		refused := errors.New("connection refused")
		blind("discovery has not answered yet")
		c.Discovered(time.Now(), nil)
		c.SetEndpoints(addresses("10.0.0.1:80", "10.0.0.2:80"))
		blind("")
		c.Discovered(time.Now(), refused)
		time.Sleep(blindAfter)
		c.Discovered(time.Now(), refused)
		blind("")
		time.Sleep(time.Millisecond)
		blind("discovery fails: connection refused")
		c.Discovered(time.Now(), nil)
		blind("")
		c.Scraped("10.0.0.1:80", weighting.ServerReport{}, Scrape{At: time.Now(), Err: refused})
		time.Sleep(blindAfter + time.Millisecond)
		c.Scraped("10.0.0.1:80", weighting.ServerReport{}, Scrape{At: time.Now(), Err: refused})
		blind("no endpoint can be scraped: connection refused")
		c.Scraped("10.0.0.2:80", idle(time.Now()), Scrape{At: time.Now()})
		blind("")
	})
}

// TestProxiesWithoutReportsAreIdleUnlessThePoolHasRequests: a pool without traffic is
// no fault, and one with traffic that no Envoy reports is seen.
func TestProxiesWithoutReportsAreIdleUnlessThePoolHasRequests(t *testing.T) {
	inLoop(t, testOptions(), func(c *Cluster, r *recorder) {
		r.sources = []api.SourceStatus{{Name: api.SourceAccessLog, State: api.SourceIdle,
			Envoys: api.Reporting{Expected: api.Num(3), Reporting: api.Num(0), Idle: api.Num(3)}}}
		c.SetEndpoints(addresses("10.0.0.1:80"))
		log := func() api.SourceStatus {
			all := c.View(time.Now()).Sources
			return all[len(all)-1]
		}
		done := 0.0
		serve := func(perSecond float64) {
			for range 40 {
				after(250 * time.Millisecond)
				done += perSecond / 4
				report := idle(time.Now())
				report.Completions = weighting.Reading{Value: done, At: time.Now()}
				c.Scraped("10.0.0.1:80", report, Scrape{At: time.Now()})
			}
			after(time.Second)
		}
		serve(0)
		if got := log(); got.State != api.SourceIdle {
			t.Errorf("no traffic: %+v", got)
		}
		serve(20)
		if got := log(); got.State != api.SourceOff || got.Envoys.Idle.Or(-1) != 0 ||
			!strings.Contains(got.LastError, "requests a second") {
			t.Errorf("traffic: %+v", got)
		}
		serve(0)
		serve(0)
		if got := log(); got.State != api.SourceIdle {
			t.Errorf("no traffic any more: %+v", got)
		}
	})
}

func TestTheAveragesOfTheProxiesAreShownWithTheirAge(t *testing.T) {
	inLoop(t, testOptions(), func(c *Cluster, r *recorder) {
		c.SetEndpoints(addresses("10.0.0.1:80", "10.0.0.2:80"))
		at := time.Now()
		r.report(ProxyCounts{Endpoints: []flight.Counts{{
			Address:       "10.0.0.1:80",
			ResponseBytes: weighting.Reading{Value: 1500, At: at.Add(-2 * time.Second)},
			FailedShare:   weighting.Reading{Value: 0.25, At: at.Add(-time.Second)},
		}}})
		c.Poke()
		after(time.Second)
		e := c.View(at).Endpoints
		if e[0].ResponseBytes.Or(0) != 1500 || e[0].ResponseBytesAgeSeconds.Or(0) != 2 ||
			e[0].FailedShare.Or(0) != 0.25 || e[0].FailedShareAgeSeconds.Or(0) != 1 {
			t.Errorf("%+v", e[0])
		}
		for _, n := range []api.Number{e[1].ResponseBytes, e[1].ResponseBytesAgeSeconds, e[1].FailedShare,
			e[1].FailedShareAgeSeconds} {
			if v, known := n.Value(); known {
				t.Errorf("unknown, and yet %v", v)
			}
		}
	})
}

func TestADecisionThatCannotBePushedIsShown(t *testing.T) {
	inLoop(t, testOptions(), func(c *Cluster, r *recorder) {
		r.err = errors.New("address without a port")
		c.SetEndpoints(addresses("10.0.0.1:80"))
		c.Scraped("10.0.0.1:80", idle(time.Now()), Scrape{At: time.Now()})
		after(100 * time.Millisecond)
		for _, s := range c.View(time.Now()).Sources {
			if s.Name == "push" && s.LastError == "address without a port" {
				return
			}
		}
		t.Error("the failure is not among the sources shown")
	})
}

func TestTheViewJoinsDecisionWeightAndScrape(t *testing.T) {
	inLoop(t, testOptions(), func(c *Cluster, r *recorder) {
		c.SetEndpoints([]discovery.Endpoint{{Address: "10.0.0.1:80", Zone: "a", Engine: "triton"}})
		c.Scraped("10.0.0.1:80", idle(time.Now()), Scrape{At: time.Now(), Took: 3 * time.Millisecond})
		after(100 * time.Millisecond)
		v := c.View(time.Now())
		if v.Name != "llama" || v.Engine != "vllm" || v.Pushes == 0 || v.LastPush.Version != "v1" ||
			v.LastPush.Reason != "membership" {
			t.Errorf("cluster %+v", v)
		}
		e := v.Endpoints[0]
		if e.Engine != "triton" || e.Zone != "a" || e.Weight.Or(0) != 37 ||
			e.LastScrape.DurationSeconds.Or(0) != 0.003 {
			t.Errorf("endpoint %+v", e)
		}
	})
}

func TestAClusterThatStopsLeavesEachItsPartAndRefusesNothing(t *testing.T) {
	o := testOptions()
	o.Push.Params.Shedding.Enabled = true
	o.Capacity = 1
	r := &recorder{}
	synctest.Test(t, func(t *testing.T) {
		c := NewCluster("llama", o, r, r, r, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		endpoints := addresses("10.0.0.1:80", "10.0.0.2:80")
		endpoints[1].Capacity = 3
		c.SetEndpoints(endpoints)
		defer func() { cancel(); <-done }()
		began := time.Now()
		for range 100 { // ten seconds of hundreds waiting for slots of one a second
			for i, e := range endpoints {
				report := queued(time.Now(), float64(200-100*i))
				report.Completions = weighting.Reading{Value: time.Since(began).Seconds(), At: time.Now()}
				c.Scraped(e.Address, report, Scrape{At: time.Now()})
			}
			after(100 * time.Millisecond)
		}
		if got := r.last(); got.DropFraction < 0.5 || !got.Endpoints[0].Overloaded {
			t.Fatalf("%+v while saturated, want most dropped and flags", got)
		}
		if !c.View(time.Now()).Shedding {
			t.Error("the view does not say that the cluster sheds")
		}
	})
	got := r.last()
	if got.DropFraction != 0 || len(got.Endpoints) != 2 {
		t.Fatalf("last push drops %v with %d endpoints, want none with 2", got.DropFraction, len(got.Endpoints))
	}
	for i, want := range []float64{0.25, 0.75} {
		if e := got.Endpoints[i]; math.Abs(e.Share-want) > 1e-9 || e.Overloaded {
			t.Errorf("%s is left with share %v (flagged %v), want %v and no flag", e.Address, e.Share, e.Overloaded,
				want)
		}
	}
}

// A process that ends does not send requests to an endpoint that it knows to answer none.
func TestAClusterThatStopsLeavesTheFlagsOfEndpointsThatStall(t *testing.T) {
	o := testOptions()
	o.Capacity = 1
	r := &recorder{}
	synctest.Test(t, func(t *testing.T) {
		c := NewCluster("llama", o, r, r, r, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		defer func() { cancel(); <-done }()
		endpoints := addresses("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80")
		c.SetEndpoints(endpoints)
		for range 50 { // five seconds: the first answers nothing, and the second has a long queue
			now := time.Now()
			read := func(v float64) weighting.Reading { return weighting.Reading{Value: v, At: now} }
			counts := ProxyCounts{
				Subscribers: push.Subscribers{Proxies: 1}, Watching: 1, Reporting: 1, Source: "access_log",
			}
			for i, n := range []float64{3, 41, 1, 1} {
				counts.Endpoints = append(counts.Endpoints, flight.Counts{
					Address: endpoints[i].Address, InFlight: read(n), Exact: true,
					Proxies: weighting.ProxyReport{Issued: read(n), Ended: read(0), Answered: read(0)},
				})
			}
			r.report(counts)
			for i, queue := range []float64{0, 40, 0, 0} {
				report := queued(now, queue)
				report.Running.Value = min(1, float64(i))
				c.Scraped(endpoints[i].Address, report, Scrape{At: now})
			}
			after(100 * time.Millisecond)
		}
		got := r.last()
		for i, failing := range []bool{true, false} {
			if e := got.Endpoints[i]; !e.Overloaded || e.Failing != failing {
				t.Fatalf("%s is flagged %v, failing %v: %s", e.Address, e.Overloaded, e.Failing, e.OverloadReason)
			}
		}
	})
	got, sum := r.last(), 0.0
	for i, e := range got.Endpoints {
		sum += e.Share
		switch stalls := i == 0; {
		case e.Overloaded != stalls || e.Overloaded != (e.OverloadReason != ""):
			t.Errorf("%s is left with the flag %v (%s)", e.Address, e.Overloaded, e.OverloadReason)
		case stalls && e.Share > 0.001, !stalls && math.Abs(e.Share-1.0/3) > 0.001:
			t.Errorf("%s is left with the share %v", e.Address, e.Share)
		}
	}
	if math.Abs(sum-1) > 1e-9 {
		t.Errorf("the shares add up to %v", sum)
	}
}

func TestARefusedScrapeReachesTheLaw(t *testing.T) {
	inLoop(t, testOptions(), func(c *Cluster, r *recorder) {
		list := []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"}
		c.SetEndpoints(addresses(list...))
		for _, a := range list {
			c.Scraped(a, idle(time.Now()), Scrape{At: time.Now()})
		}
		after(100 * time.Millisecond)
		c.Scraped(list[0], weighting.ServerReport{}, Scrape{At: time.Now(), Err: errors.New("refused"), Refused: true})
		after(100 * time.Millisecond)
		if got := r.decided().Endpoints[0].Reason; got != weighting.ReasonNeutral {
			t.Errorf("reason %s after a refused scrape, want neutral", got)
		}
		c.Scraped(list[0], idle(time.Now()), Scrape{At: time.Now()})
		after(100 * time.Millisecond)
		if got := r.decided().Endpoints[0].Reason; got != weighting.ReasonFill {
			t.Errorf("reason %s after the next answer, want fill", got)
		}
	})
}

// TestAServerThatRefusedTheLastScrapeIsNotGoneForEver: where scrapes are switched off, no later one
// says that the endpoint is back.
func TestAServerThatRefusedTheLastScrapeIsNotGoneForEver(t *testing.T) {
	o := testOptions()
	inLoop(t, o, func(c *Cluster, r *recorder) {
		list := []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"}
		c.SetEndpoints(addresses(list...))
		for _, a := range list {
			c.Scraped(a, idle(time.Now()), Scrape{At: time.Now()})
		}
		c.Scraped(list[0], weighting.ServerReport{}, Scrape{At: time.Now(), Err: errors.New("refused"), Refused: true})
		after(100 * time.Millisecond)
		o.Scraped = false
		c.SetOptions(o)
		after(time.Minute)
		counts := ProxyCounts{Subscribers: push.Subscribers{Proxies: 1}, Watching: 1, Reporting: 1}
		for _, a := range list {
			counts.Endpoints = append(counts.Endpoints,
				flight.Counts{Address: a, InFlight: weighting.Reading{Value: 1, At: time.Now()}, Exact: true})
		}
		r.report(counts)
		c.Poke()
		after(100 * time.Millisecond)
		if e := r.decided().Endpoints[0]; e.Reason != weighting.ReasonFill {
			t.Errorf("reason %s a minute after scrapes were switched off, with a count of its requests, want fill",
				e.Reason)
		}
	})
}

// TestWhatProxiesCountGoesByAddress: they may name the endpoints in any order, others too,
// and one that they name no more has no count.
func TestWhatProxiesCountGoesByAddress(t *testing.T) {
	const a, b, c = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"
	r, now := &recorder{}, time.Now()
	cluster := NewCluster("llama", Options{}, r, r, r, slog.New(slog.DiscardHandler))
	cluster.SetEndpoints([]discovery.Endpoint{{Address: a}, {Address: b}, {Address: c}, {Address: a}})
	count := func(address string, n float64) flight.Counts {
		return flight.Counts{Address: address, InFlight: weighting.Reading{Value: n, At: now}, Exact: true}
	}
	for i, round := range []struct {
		told []flight.Counts
		want []float64 // 0: unknown
	}{
		{[]flight.Counts{count(a, 1), count(b, 2), count(c, 3)}, []float64{1, 2, 3, 1}},
		{[]flight.Counts{count(c, 6), count("10.0.0.9:80", 9), count(a, 4), count(b, 5), count(b, 7)},
			[]float64{4, 7, 6, 4}},
		{[]flight.Counts{count(b, 8)}, []float64{0, 8, 0, 0}},
		{nil, []float64{0, 0, 0, 0}},
	} {
		r.report(ProxyCounts{Endpoints: round.told})
		for j, e := range cluster.snapshot(now).Endpoints {
			if e.InFlight.Value != round.want[j] || e.InFlight.Known() != (round.want[j] != 0) ||
				e.Exact != e.InFlight.Known() {
				t.Errorf("round %d, %s: %+v, exact %v; want %v", i, e.Address, e.InFlight, e.Exact, round.want[j])
			}
		}
	}
}

// TestScrapesAreGathered: where no source counts requests, of many endpoints there is always another
// page, and a step for each would be for little. What is counted is decided on at once.
func TestScrapesAreGathered(t *testing.T) {
	const floor, interval = 5 * time.Millisecond, 250 * time.Millisecond
	const first = "10.0.0.0:80"
	proxied := flight.Counts{Address: first, InFlight: weighting.Reading{Value: 1, At: time.Now()}}
	for name, c := range map[string]struct {
		endpoints int
		proxies   []flight.Counts
		redis     map[string]float64
		want      time.Duration // between two steps
	}{
		"scrapes only":        {21, nil, nil, interval / 20},
		"of few":              {20, nil, nil, floor},
		"and proxies' counts": {21, []flight.Counts{proxied}, nil, floor},
		"and those of Redis":  {21, nil, map[string]float64{first: 1}, floor},
	} {
		t.Run(name, func(t *testing.T) {
			o := withCPU()
			o.Counted, o.ScrapeInterval, o.Push.Budget.ProxyCPU = c.redis != nil, interval, 0
			inLoop(t, o, func(cluster *Cluster, r *recorder) {
				r.report(ProxyCounts{Subscribers: push.Subscribers{Proxies: 2}, Endpoints: c.proxies})
				var endpoints []discovery.Endpoint
				for i := range c.endpoints {
					endpoints = append(endpoints, discovery.Endpoint{Address: fmt.Sprintf("10.0.0.%d:80", i)})
				}
				cluster.SetEndpoints(endpoints)
				cluster.Counted(c.redis, time.Now(), nil)
				for i := range 1000 {
					after(time.Millisecond)
					cluster.Scraped(endpoints[i%len(endpoints)].Address, idle(time.Now()), Scrape{At: time.Now()})
				}
				times := r.stepTimes()[2:] // the first knew nothing of the proxies
				for i, at := range times[1:] {
					if apart := at.Sub(times[i]); apart < c.want || apart > c.want+time.Millisecond {
						t.Fatalf("steps %v apart, want %v", apart, c.want)
					}
				}
			})
		})
	}
}
