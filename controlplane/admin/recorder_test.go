package admin

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"steelyard/controlplane/admin/history"
	"steelyard/internal/api"
)

// A stage is a source that a test changes, with a recorder and a clock of its own.
type stage struct {
	mu sync.Mutex
	fixed
	now      time.Time
	recorder *history.Recorder
	history  *history.History
}

func newStage(endpoints int) *stage {
	s := &stage{now: noon, history: history.NewHistory()}
	c := large(noon, endpoints)
	c.Name = "llama"
	s.clusters = []api.Cluster{c}
	s.clients = envoys(noon)[:1]
	s.status = api.Status{ConfigGeneration: 1}
	s.record(nil)
	return s
}

// record begins with a new Recorder.
func (s *stage) record(log *slog.Logger) {
	s.recorder = history.NewRecorder(history.RecorderOptions{Source: s, History: s.history, Now: s.clock, Log: log})
}

// together is the time within which events of one kind are one.
const together = 5 * time.Second

func (s *stage) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// second lets one pass: f changes the source, and the recorder looks.
func (s *stage) second(f func()) {
	s.mu.Lock()
	s.now = s.now.Add(time.Second)
	if f != nil {
		f()
	}
	s.mu.Unlock()
	s.recorder.Tick()
}

func (s *stage) Clusters() []api.Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(s.clusters)
	for i := range out {
		out[i].Endpoints = slices.Clone(out[i].Endpoints)
	}
	return out
}

func (s *stage) Clients() []api.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.clients)
}

func (s *stage) Elsewhere() []api.OtherEnvoy { return nil }

func (s *stage) Status() api.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func (s *stage) Cluster(name string) (api.Cluster, bool) {
	for _, c := range s.Clusters() {
		if c.Name == name {
			return c, true
		}
	}
	return api.Cluster{}, false
}

func (s *stage) handler() http.Handler {
	return New(Options{Source: s, Recorder: s.recorder, Now: s.clock})
}

func (s *stage) cluster(t *testing.T) api.Cluster {
	t.Helper()
	return decode[api.Cluster](t, ask(t, s.handler(), http.MethodGet, "/api/v1/clusters/llama"))
}

func (s *stage) events(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, e := range decode[api.EventList](t, ask(t, s.handler(), http.MethodGet, "/api/v1/events")).Events {
		out = append(out, e.Text)
	}
	return out
}

func near(n api.Number, want, within float64) bool {
	v, known := n.Value()
	return known && math.Abs(v-want) <= within
}

func TestServedSharesAreThoseOfTheRequestsThatBegan(t *testing.T) {
	s := newStage(4)
	s.second(nil)
	if c := s.cluster(t); c.Endpoints[0].ServedShare10s != (api.Number{}) {
		t.Errorf("known after the first look: %v", c.Endpoints[0].ServedShare10s)
	}
	for second := range 70 {
		s.second(func() {
			for i := range s.clusters[0].Endpoints {
				e := &s.clusters[0].Endpoints[i]
				n := float64(i + 1) // 1, 2, 3, 4 requests a second
				if second >= 60 {
					n = 5 // and in the last ten seconds as many
				}
				e.Requests = api.Num(e.Requests.Or(1000) + n)
			}
		})
	}
	c := s.cluster(t)
	if c.Served.Source != api.ServedBegun || !near(c.Served.Requests10s, 200, 0) ||
		!near(c.Served.Requests1m, 700, 0) {
		t.Errorf("%+v", c.Served)
	}
	for i, e := range c.Endpoints {
		minute := (50*float64(i+1) + 50) / 700
		if !near(e.ServedShare10s, 0.25, 1e-9) || !near(e.ServedShare1m, minute, 1e-9) ||
			!near(e.ServedRequests1m, minute*700, 1e-6) {
			t.Errorf("endpoint %d: %v, %v, %v", i, e.ServedShare10s, e.ServedShare1m, e.ServedRequests1m)
		}
	}
}

func TestWithoutEnvoysReportsTheServedSharesAreThoseOfCompletions(t *testing.T) {
	s := newStage(2)
	for range 20 {
		s.second(func() {
			for i := range s.clusters[0].Endpoints {
				e := &s.clusters[0].Endpoints[i]
				e.CompletionRate = api.Num(float64(30 * (i + 1)))
				if i == 0 { // which has a counter, too
					e.CompletedRequests = api.Num(e.CompletedRequests.Or(0) + 30)
				}
			}
		})
	}
	c := s.cluster(t)
	if c.Served.Source != api.ServedCompleted || !near(c.Endpoints[0].ServedShare10s, 1.0/3, 1e-9) ||
		!near(c.Endpoints[1].ServedShare10s, 2.0/3, 1e-9) || c.Served.VsDecided != (api.Number{}) {
		t.Errorf("%+v, %v, %v", c.Served, c.Endpoints[0].ServedShare10s, c.Endpoints[1].ServedShare10s)
	}
}

// followedBy decides 75 % for the first endpoint, and sends so many requests a second to each, of the first some by a
// hash.
func followedBy(t *testing.T, first, second, hashed float64, shadows ...api.Client) api.Served {
	t.Helper()
	s := newStage(2)
	s.clients = append(s.clients, shadows...)
	addresses := []string{s.clusters[0].Endpoints[0].Address, s.clusters[0].Endpoints[1].Address}
	for range 70 {
		for k := range 10 { // decisions leap, and are 75 % in the mean
			share := 0.5
			if k%2 == 0 {
				share = 1
			}
			s.recorder.Pushed("llama", s.now.Add(time.Duration(k)*100*time.Millisecond), history.Decided{
				Addresses: addresses,
				Shares:    []float64{share, 1 - share}, Flagged: []bool{false, false},
				Unused: []bool{false, false}, ArrivalRate: 40})
		}
		s.second(func() {
			e := s.clusters[0].Endpoints
			e[0].Requests, e[1].Requests = api.Num(e[0].Requests.Or(0)+first), api.Num(e[1].Requests.Or(0)+second)
			e[0].HashedRequests, e[1].HashedRequests = api.Num(e[0].HashedRequests.Or(0)+hashed), api.Num(0)
		})
	}
	return s.cluster(t).Served
}

func TestServedAgainstDecided(t *testing.T) {
	if got := followedBy(t, 30, 10, 0); !near(got.VsDecided, 0, 0.001) || !near(got.Noise, 0.007, 0.002) {
		t.Errorf("followed: %+v", got)
	}
	if got := followedBy(t, 20, 20, 0); !near(got.VsDecided, 0.25, 0.001) {
		t.Errorf("not followed: %+v", got)
	}
	if got := followedBy(t, 230, 10, 200); !near(got.VsDecided, 0, 0.001) || !near(got.Noise, 0.007, 0.002) ||
		!near(got.Requests1m, 240*60, 1) || !near(got.Hashed1m, 200*60, 1) {
		t.Errorf("followed, besides what a hash placed: %+v", got)
	}
	if got := followedBy(t, 220, 20, 200); !near(got.VsDecided, 0.25, 0.001) {
		t.Errorf("not followed, besides what a hash placed: %+v", got)
	}
	shadow := api.Client{Connection: api.Connection{Node: api.Node{NodeID: "edge-9"}, Subscriptions: []api.Subscription{
		{Resource: "llama/members", Cluster: "llama", Known: true, InSync: true}}}}
	if got := followedBy(t, 20, 20, 0, shadow); got.VsDecided != (api.Number{}) || !near(got.Requests1m, 40*60, 1) {
		t.Errorf("an Envoy only reports: %+v", got)
	}
}

func TestTheCapacityInUseAndWithoutEndpoints(t *testing.T) {
	s := newStage(4)
	for range 30 {
		s.second(func() {
			c := &s.clusters[0]
			c.Decision.ArrivalRate, c.Decision.ArrivalRateSource, c.Decision.Unit =
				api.Num(29.9), "issued", api.UnitRequests
			for i := range c.Endpoints {
				e := &c.Endpoints[i]
				e.Capacity, e.CompletionRate, e.BusyFraction = api.Num(8), api.Num(7.5), api.Num(0.5)
				if i == 3 {
					e.BusyFraction = api.Num(0.01) // never seen busy
				}
			}
		})
	}
	c := s.cluster(t)
	if !near(c.Use.CapacityUsed, 0.5, 0.01) || !c.Use.Estimate || !near(c.Use.ToSpare, 2, 0) {
		t.Errorf("%+v", c.Use)
	}
	if len(c.Use.IfLost) != 3 || !near(c.Use.IfLost[0].CapacityUsed, 30.0/45, 0.01) ||
		!near(c.Use.IfLost[2].CapacityUsed, 2, 0.04) {
		t.Errorf("%+v", c.Use.IfLost)
	}
	if e := c.Endpoints[0]; !near(e.UseWithout, 30.0/45, 0.01) || !near(e.CapacityShare, 0.25, 1e-9) {
		t.Errorf("%v, %v", e.UseWithout, e.CapacityShare)
	}
	s.second(func() { s.clusters[0].Endpoints[0].Outlier, s.clusters[0].Endpoints[1].Probed = true, "it fails" })
	if use := s.cluster(t).Use; !near(use.CapacityUsed, 1, 0.01) || !near(use.ToSpare, 0, 0) {
		t.Errorf("with one that fails and one that is tried again: %+v", use)
	}
	s.second(func() { s.clusters[0].Endpoints[2].Reason = "unused" })
	if use := s.cluster(t).Use; !near(use.CapacityUsed, 2, 0.02) {
		t.Errorf("with one more that the Envoys do not use: %+v", use)
	}
}

// A short KV cache or a limit on sequences holds requests back long before the engine computes all that it could.
func TestTheCapacityInUseOfEnginesThatHoldRequestsBack(t *testing.T) {
	const tokens, prefill = 1000 + 1.5*200, 12_000.0 // of a request; per second
	s := newStage(4)
	var refused api.Number
	run := func(seconds int, arriving, completed float64, waiting ...float64) api.Use {
		for range seconds {
			s.second(func() {
				c := &s.clusters[0]
				c.DroppedRequests = refused
				d := &c.Decision
				d.ArrivalRate, d.ArrivalRateSource, d.Unit = api.Num(arriving), "issued", api.UnitWork
				d.Work.PromptTokens, d.Work.OutputTokens = api.Num(1000), api.Num(200)
				for i := range c.Endpoints {
					e := &c.Endpoints[i]
					e.Capacity, e.CompletionRate = api.Num(1), api.Num(completed)
					e.Work.PrefillRate = api.Num(prefill)
					e.Inputs = []api.Input{{Field: "queue", Value: api.Num(waiting[i]), State: "fresh"}}
				}
			})
		}
		return s.cluster(t).Use
	}
	none := []float64{0, 0, 0, 0}
	if use := run(20, 4, 1, none...); !near(use.CapacityUsed, 4*tokens/4/prefill, 0.001) || use.Estimate {
		t.Errorf("while no request waits: %+v", use)
	}
	if use := run(8, 6, 1, 9, 9, 9, 0); !near(use.CapacityUsed, 6*tokens/4/prefill, 0.001) {
		t.Errorf("after waits of some seconds: %+v", use)
	}
	run(2, 6, 1, none...)
	if use := run(40, 6, 1, 9, 9, 9, 0); !near(use.CapacityUsed, 1.5, 0.02) || !use.Estimate {
		t.Errorf("at what the engines can do, but one that is taken to be like the others: %+v", use)
	}
	if use := run(300, 2, 0.5, none...); !near(use.CapacityUsed, 0.5, 0.02) {
		t.Errorf("at half of it, after the overload: %+v", use)
	}
	if use := run(600, 8, 2, none...); !near(use.CapacityUsed, 1, 0.02) {
		t.Errorf("at more than it was, which the engines do without waiting: %+v", use)
	}
	for second := range 60 {
		refused = api.Num(1e6 + 4*float64(second))
		run(1, 8, 2, none...)
	}
	if use := run(1, 8, 2, none...); !near(use.CapacityUsed, 1.5, 0.05) {
		t.Errorf("while four requests a second are refused: %+v", use)
	}
	last := refused
	refused = api.Number{}
	run(60, 8, 2, none...)
	refused = last
	if use := run(1, 8, 2, none...); !near(use.CapacityUsed, 1, 0.02) {
		t.Errorf("when the count of refused requests is known again: %+v", use)
	}
}

// The completion rate is a mean of seconds, and the busy fraction is of a moment.
func TestTheCapacityInUseOfAPoolThatMostlyIdles(t *testing.T) {
	s := newStage(4)
	const perBusySecond, tau = 2.4, 5
	var rate float64
	for second := range 120 {
		busy := 0.0
		if second%10 == 0 {
			busy = 1
		}
		rate += (perBusySecond*busy - rate) * (1 - math.Exp(-1.0/tau))
		s.second(func() {
			c := &s.clusters[0]
			c.Decision.ArrivalRate, c.Decision.ArrivalRateSource, c.Decision.Unit =
				api.Num(4*perBusySecond/10), "issued", api.UnitRequests
			for i := range c.Endpoints {
				e := &c.Endpoints[i]
				e.Capacity, e.CompletionRate, e.BusyFraction = api.Num(1), api.Num(rate), api.Num(busy)
			}
		})
	}
	if c := s.cluster(t); !near(c.Use.CapacityUsed, 0.1, 0.01) {
		t.Errorf("endpoints that are busy a second in ten use %v of the capacity", c.Use.CapacityUsed)
	}
}

// An endpoint that answers nothing can take over nothing: once it is all that is left, there is no number to show.
func TestWhatIsLeftOfThePoolLeavesOutEndpointsThatAnswerNothing(t *testing.T) {
	s := newStage(3)
	second := func(stalled bool) {
		s.second(func() {
			c := &s.clusters[0]
			c.Decision.ArrivalRate, c.Decision.ArrivalRateSource, c.Decision.Unit =
				api.Num(15), "issued", api.UnitRequests
			for i := range c.Endpoints {
				e := &c.Endpoints[i]
				e.Capacity, e.CompletionRate, e.BusyFraction = api.Num(8), api.Num(7.5), api.Num(0.5)
			}
			c.Endpoints[2].Outlier = stalled
		})
	}
	for range 30 {
		second(false)
	}
	if c := s.cluster(t); len(c.Use.IfLost) != 2 {
		t.Fatalf("%+v", c.Use.IfLost)
	}
	second(true)
	if c := s.cluster(t); len(c.Use.IfLost) != 1 || !near(c.Use.CapacityUsed, 0.5, 0.01) ||
		!near(c.Use.IfLost[0].CapacityUsed, 1, 0.02) {
		t.Errorf("%v in use, without others %+v", c.Use.CapacityUsed, c.Use.IfLost)
	}
}

func TestEventsAreWhatChangedBetweenTwoLooks(t *testing.T) {
	s := newStage(3)
	s.second(nil)
	if got := s.events(t); len(got) != 0 {
		t.Fatalf("what was there before just happened: %v", got)
	}
	steps := []struct {
		change func(c *api.Cluster)
		want   string
	}{
		{func(c *api.Cluster) { c.Endpoints = append(c.Endpoints, api.Endpoint{Address: "10.9.0.1:80"}) },
			"llama: endpoint 10.9.0.1:80 joined"},
		{func(c *api.Cluster) {
			c.Endpoints[0].Overloaded, c.Endpoints[0].OverloadReason = true, "queue per slot 5 >= 4"
		},
			"llama: endpoint 10.1.0.1:8000 was flagged: queue per slot 5 >= 4"},
		{func(c *api.Cluster) { c.Endpoints[0].Overloaded = false },
			"llama: the flag of endpoint 10.1.0.1:8000 was cleared"},
		{func(c *api.Cluster) { c.Endpoints = c.Endpoints[:3] }, "llama: endpoint 10.9.0.1:80 left"},
		{func(c *api.Cluster) {
			c.Sources = []api.SourceStatus{{Name: "redis", State: api.SourceDown, LastError: "refused"}}
		}, "llama: source redis was lost: refused"},
		{func(c *api.Cluster) { c.Sources = []api.SourceStatus{{Name: "redis", State: api.SourceOK}} },
			"llama: source redis is back"},
		{func(c *api.Cluster) { c.Decision.DropFraction = api.Num(0.1) }, "llama: Envoys began to refuse requests"},
		{func(c *api.Cluster) { c.Decision.DropFraction = api.Num(0) }, "llama: Envoys refuse no more requests"},
		{func(c *api.Cluster) {
			e := &c.Endpoints[1]
			e.LastScrape.Error = "get http://x/metrics: refused"
			e.Inputs = []api.Input{{Field: "queue", Value: api.Num(1), AgeSeconds: api.Num(5), State: "decay"}}
		}, "llama: the metrics endpoint of 10.1.0.2:8000 was lost: get http://x/metrics: refused"},
		{func(*api.Cluster) {
			s.clients[0].Subscriptions = []api.Subscription{{Cluster: "llama", Nacks: 1,
				Nack: api.Nack{Message: "no such field", Current: true}}}
		}, "llama: Envoy edge-1 refused an assignment: no such field"},
		{func(*api.Cluster) { s.clients = nil }, "Envoy edge-1 left"},
		{func(*api.Cluster) { s.clients = envoys(noon)[:1] }, "Envoy edge-1 connected"},
	}
	for i, step := range steps {
		s.second(func() {
			s.now = s.now.Add(together)
			step.change(&s.clusters[0])
		})
		got := s.events(t)
		if len(got) != i+1 || got[i] != step.want {
			t.Fatalf("step %d: %q, want %q", i, got, step.want)
		}
	}
}

// What becomes of endpoints and requests is in the log, too, which lasts longer than an hour and the process.
func TestFlagsAndRefusalsHaveLinesInTheLog(t *testing.T) {
	s := newStage(14)
	var out strings.Builder
	s.record(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
	s.second(nil)
	flag := func(endpoints int, reason string) func() {
		return func() {
			for i := range s.clusters[0].Endpoints {
				e := &s.clusters[0].Endpoints[i]
				e.Overloaded, e.OverloadReason = i < endpoints, reason
			}
		}
	}
	s.second(flag(1, "stalled since 12:00:02Z"))
	s.second(flag(0, ""))
	s.second(flag(12, "queue per slot 5 >= 4"))
	last := &s.clusters[0].Endpoints[12]
	s.second(func() { last.Probed, last.OverloadReason = "it failed", "" })
	s.second(func() { last.Probed, last.Outlier, last.Overloaded, last.OverloadReason = "", true, true, "it fails" })
	s.second(func() { s.clusters[0].Decision.DropFraction = api.Num(0.1) })
	s.second(func() { s.clusters[0].Decision.DropFraction = api.Num(0) })
	first := make([]string, 12)
	for i := range first {
		first[i] = s.clusters[0].Endpoints[i].Address
	}
	slices.Sort(first)
	want := `level=INFO msg="endpoints flagged" cluster=llama endpoints=[10.1.0.1:8000] count=1 ` +
		`reason="stalled since 12:00:02Z"
level=INFO msg="flags of endpoints cleared" cluster=llama endpoints=[10.1.0.1:8000] count=1
level=INFO msg="endpoints flagged" cluster=llama endpoints="` + fmt.Sprint(first[:10]) + `" count=12 ` +
		`reason="queue per slot 5 >= 4"
level=INFO msg="endpoints flagged" cluster=llama endpoints=[10.1.0.13:8000] count=1
level=INFO msg="endpoints failed another probe" cluster=llama endpoints=[10.1.0.13:8000] count=1 reason="it fails"
level=INFO msg="Envoys begin to refuse requests" cluster=llama
level=INFO msg="Envoys refuse no more requests" cluster=llama
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("the log (-want +got):\n%s", diff)
	}
}

// The part of the capacity is that of the decision that is shown, as in the sentence about it, not of the last look.
func TestAPartOfTheCapacityIsOfTheDecisionThatIsShown(t *testing.T) {
	s := newStage(4)
	s.second(nil)
	for i, capacity := range []float64{1, 2, 3, 4} {
		s.clusters[0].Endpoints[i].Capacity = api.Num(capacity)
	}
	for i, e := range s.cluster(t).Endpoints {
		if !near(e.CapacityShare, float64(i+1)/10, 1e-9) {
			t.Errorf("endpoint %d: %v", i, e.CapacityShare)
		}
	}
}

// Each time that a server without answers is tried again its flag is down for a while, which does not mean that it is
// well: the timeline has one event for each try, and another when it answers.
func TestATryOfAServerThatAnswersNothingIsOneEvent(t *testing.T) {
	s := newStage(3)
	s.second(nil)
	const stalled = "stalled since 12:00:00Z: none of 4 requests in flight ends"
	in := func(outlier, flagged bool, probed string) func(*api.Endpoint) {
		return func(e *api.Endpoint) {
			e.Outlier, e.Overloaded, e.Probed, e.OverloadReason = outlier, flagged, probed, ""
			if flagged {
				e.OverloadReason = stalled
			}
		}
	}
	flagged, probed, well := in(true, true, ""), in(false, false, stalled), in(false, false, "")
	want := []string{}
	for i, step := range []struct {
		change func(*api.Endpoint)
		want   string
	}{
		{flagged, "llama: endpoint 10.1.0.1:8000 was flagged: " + stalled},
		{probed, ""},
		{flagged, "llama: endpoint 10.1.0.1:8000 failed another probe: " + stalled},
		{probed, ""},
		{flagged, "llama: endpoint 10.1.0.1:8000 failed another probe: " + stalled},
		{probed, ""},
		{in(false, true, stalled), ""}, // for its queue
		{in(false, true, ""), ""},
		{well, "llama: the flag of endpoint 10.1.0.1:8000 was cleared"},
	} {
		s.second(func() {
			s.now = s.now.Add(together)
			step.change(&s.clusters[0].Endpoints[0])
		})
		if step.want != "" {
			want = append(want, step.want)
		}
		if got := s.events(t); !slices.Equal(got, want) {
			t.Fatalf("step %d: %q, want %q", i, got, want)
		}
	}
}

// A queue that refuses requests now and then is one event and one incident, until it has refused none for a while.
func TestWhatAQueueRefusesIsAnEventAndAnIncident(t *testing.T) {
	s := newStage(2)
	class := &api.QueueClass{Name: "batch", RefusedFull: 7} // before the first look
	s.clusters[0].Queue = &api.Queue{Classes: []api.QueueClass{*class}}
	class = &s.clusters[0].Queue.Classes[0]
	incidents := func() (n int) {
		for _, i := range s.recorder.Latest().Incidents {
			if i.ID == "drops/llama/queue" {
				n++
			}
		}
		return n
	}
	s.second(nil)
	if got := s.events(t); len(got) != 0 || incidents() != 0 {
		t.Fatalf("what it had refused before just happened: %v", got)
	}
	for range 3 {
		s.second(func() { class.RefusedTimeout++ })
		for range 5 {
			s.second(nil)
		}
	}
	if got := s.events(t); len(got) != 1 || got[0] != "llama: Envoys began to refuse requests" || incidents() != 1 {
		t.Errorf("%v, %d incidents", got, incidents())
	}
	for range int(2 * 10 * time.Second / time.Second) {
		s.second(nil)
	}
	if got := s.events(t); len(got) != 2 || got[1] != "llama: Envoys refuse no more requests" || incidents() != 0 {
		t.Errorf("%v, %d incidents", got, incidents())
	}
}

func TestEventsOfAKindWithinFiveSecondsAreOne(t *testing.T) {
	s := newStage(2)
	s.second(nil)
	for i := range 4 {
		s.second(func() {
			s.clusters[0].Endpoints = append(s.clusters[0].Endpoints,
				api.Endpoint{Address: fmt.Sprintf("10.9.0.%d:80", i)})
		})
	}
	list := decode[api.EventList](t, ask(t, s.handler(), http.MethodGet, "/api/v1/events"))
	if len(list.Events) != 1 || list.Events[0].Text != "llama: 4 endpoints joined" || list.Events[0].Count != 4 ||
		list.Events[0].LastAt.Sub(list.Events[0].At.Time) != 3*time.Second {
		t.Fatalf("%+v", list.Events)
	}
}

func TestAnEnvoyThatLeftIsListedForAnHour(t *testing.T) {
	s := newStage(2)
	s.second(nil)
	s.second(func() {
		s.clients = nil
		s.status.GoneEnvoys = []api.GoneEnvoy{{NodeID: "edge-1", Address: "127.0.0.1:50001", Since: api.At(s.now),
			Cause: "the connection was reset"}}
	})
	left := func() []api.LeftEnvoy {
		return decode[api.ClientList](t, ask(t, s.handler(), http.MethodGet, "/api/v1/clients")).Left
	}
	got := left()
	if len(got) != 1 || got[0].NodeID != "edge-1" || !got[0].Vanished ||
		got[0].LeftReason != "the connection was reset" || got[0].LeftAt.IsZero() ||
		!slices.Equal(got[0].Clusters, []string{"llama"}) {
		t.Fatalf("%+v", got)
	}
	if i := decode[api.IncidentList](t, ask(t, s.handler(), http.MethodGet,
		"/api/v1/incidents")); i.Incidents[0].Kind != "envoy_gone" {
		t.Errorf("%+v", i.Incidents)
	}
	s.second(func() { s.clients = envoys(noon)[:1] })
	if got := left(); len(got) != 0 {
		t.Errorf("it is back, and listed: %+v", got)
	}
	s.second(func() { s.clients, s.status.GoneEnvoys = nil, nil })
	if got := left(); len(got) != 1 || got[0].Vanished || got[0].LeftReason != "it closed its streams" {
		t.Errorf("%+v", got)
	}
	s.second(func() { s.now = s.now.Add(time.Hour) })
	if got := left(); len(got) != 0 {
		t.Errorf("after an hour: %+v", got)
	}
}

func TestAnExplanationOfThePastIsTheDecisionOfThatTime(t *testing.T) {
	s := newStage(2)
	for range 30 {
		s.second(func() {
			d := llamaDecision(s.now)
			d.Endpoints[0].Share = float64(s.now.Second()) / 100
			c := &s.clusters[0]
			c.Decision, c.Endpoints = api.FromDecision(d, s.now)
			c.Working = api.WorkingOf(d)
		})
	}
	ask10 := func(at string) api.Explanation {
		return decode[api.Explanation](t, ask(t, s.handler(), http.MethodGet,
			"/api/v1/clusters/llama/explain?endpoint=10.0.0.1:8000&at="+at))
	}
	got := ask10("10s")
	if want := float64(s.now.Second()-10-1) / 100; !near(got.Endpoint.Share, want, 0.011) {
		t.Errorf("ten seconds ago it was %v, want %v", got.Endpoint.Share, want)
	}
	if !strings.HasPrefix(got.Endpoint.Why, "It gets ") || got.Decision.Arrivals != api.Num(12.9) ||
		got.StepSeconds != api.Num(1) || !near(got.KeptSeconds, 29, 1) ||
		!near(got.Endpoint.CapacityShare, 0.125, 1e-9) {
		t.Errorf("%+v", got)
	}
	if a := ask(t, s.handler(), http.MethodGet,
		"/api/v1/clusters/llama/explain?endpoint=10.0.0.1:8000&at=14m"); a.code != http.StatusNotFound ||
		!strings.Contains(a.body, "they go back") {
		t.Errorf("%d %s", a.code, a.body)
	}
	if a := ask(t, s.handler(), http.MethodGet, "/api/v1/clusters/llama/explain?endpoint=nobody"); a.code !=
		http.StatusNotFound {
		t.Errorf("%d %s", a.code, a.body)
	}
}

// A watch reads a stream.
type watch struct {
	t      *testing.T
	lines  *bufio.Scanner
	cancel func()
}

func (s *stage) watch(t *testing.T, url, lastID string) *watch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" ||
		answer.Header.Get("Cache-Control") != "no-store" || answer.Header.Get("X-Accel-Buffering") != "no" {
		t.Fatalf("%s %v", answer.Status, answer.Header)
	}
	t.Cleanup(func() { cancel(); answer.Body.Close() })
	w := &watch{t: t, lines: bufio.NewScanner(answer.Body), cancel: cancel}
	w.lines.Buffer(nil, 1<<22)
	return w
}

// next is the next event that is no heartbeat.
func (w *watch) next() (id, event, data string) {
	w.t.Helper()
	for w.lines.Scan() {
		key, value, _ := strings.Cut(w.lines.Text(), ": ")
		switch key {
		case "id":
			id = value
		case "event":
			event = value
		case "data":
			return id, event, value
		}
	}
	w.t.Fatalf("the stream ended: %v", w.lines.Err())
	return "", "", ""
}

// ticking has seconds pass until the test ends.
func (s *stage) ticking(t *testing.T) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				s.second(nil)
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
}

func TestAStreamHasAFrameEachSecondAndAddressesOnlyWhenTheyChange(t *testing.T) {
	s := newStage(50)
	for range 5 {
		s.second(nil)
	}
	server := httptest.NewServer(s.handler())
	t.Cleanup(server.Close)
	w := s.watch(t, server.URL+"/api/v1/stream?cluster=llama&endpoint=10.1.0.3:8000&matrix=1", "")
	s.ticking(t)
	var before api.Frame
	for i := range 4 {
		id, event, data := w.next()
		var f api.Frame
		if err := json.Unmarshal([]byte(data), &f); err != nil || event != "frame" {
			t.Fatalf("%s: %v", event, err)
		}
		if id != fmt.Sprint(f.At.Unix()) {
			t.Errorf("id %s at %s", id, f.At)
		}
		if f.Endpoint == nil || f.Endpoint.Address != "10.1.0.3:8000" || f.Matrix == nil || f.Matrix.Total == 0 ||
			len(f.Fleet.Clusters) != 1 || f.Cluster == nil || f.Cluster.Cluster.Name != "llama" {
			t.Fatalf("%s", data)
		}
		if (f.Cluster.Addresses != nil) !=
			(f.Cluster.Order != 0 && (i == 0 || f.Cluster.Order != before.Cluster.Order)) && i > 1 {
			t.Errorf("frame %d has addresses: %v", i, f.Cluster.Addresses != nil)
		}
		if i == 0 && len(f.Cluster.Addresses) != 50 {
			t.Errorf("the first frame has %d addresses", len(f.Cluster.Addresses))
		}
		columns, err := base64.StdEncoding.DecodeString(f.Cluster.Columns)
		if err != nil || len(columns) != 50*(2*5+1) {
			t.Fatalf("%d bytes: %v", len(columns), err)
		}
		share := math.Pow(10, float64(binary.LittleEndian.Uint16(columns[2*7:]))/65534*14-7)
		if math.Abs(share-0.02) > 1e-5 || columns[2*5*50+17] != history.StateCode(api.EndpointBlind) {
			t.Errorf("share %g, state %d", share, columns[2*5*50+17])
		}
		before = f
	}
}

// A link may name a cluster that a reload has removed: the fleet is known, and the page says what is missing.
func TestAStreamOfAClusterThatIsNotThereHasTheFleet(t *testing.T) {
	s := newStage(3)
	s.second(nil)
	server := httptest.NewServer(s.handler())
	t.Cleanup(server.Close)
	since := fmt.Sprint(s.now.Unix())
	s.ticking(t)
	for _, last := range []string{"", since} {
		w := s.watch(t, server.URL+"/api/v1/stream?cluster=gone&endpoint=10.1.0.3:8000&matrix=1", last)
		_, event, data := w.next()
		if event == "missed" {
			_, event, data = w.next()
		}
		var f api.Frame
		if err := json.Unmarshal([]byte(data), &f); err != nil || event != "frame" {
			t.Fatalf("%s: %v", event, err)
		}
		if f.Fleet == nil || len(f.Fleet.Clusters) != 1 || f.Cluster != nil || f.Endpoint != nil || f.Matrix != nil {
			t.Errorf("%s", data)
		}
	}
}

func TestAReaderThatComesBackGetsWhatItMissed(t *testing.T) {
	s := newStage(3)
	for range 30 {
		s.second(nil)
	}
	server := httptest.NewServer(s.handler())
	t.Cleanup(server.Close)
	last := s.now.Add(-12 * time.Second).Unix()
	_, event, data := s.watch(t, server.URL+"/api/v1/stream?cluster=llama", fmt.Sprint(last)).next()
	var w api.Window
	if err := json.Unmarshal([]byte(data), &w); err != nil || event != "missed" {
		t.Fatalf("%s: %v", event, err)
	}
	if len(w.At) != 12 || w.At[0].Unix() != last+1 || len(w.Endpoints) != 3 || len(w.Endpoints[0].States) != 12 {
		t.Errorf("%d moments since %s of %d endpoints", len(w.At), w.At[0], len(w.Endpoints))
	}
}

func TestSixtyFourStreamsAndNoMore(t *testing.T) {
	s := newStage(1)
	server := httptest.NewServer(s.handler())
	t.Cleanup(server.Close)
	var first *watch
	for range 64 {
		if w := s.watch(t, server.URL+"/api/v1/stream", ""); first == nil {
			first = w
		}
	}
	refused := func() int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		a, err := http.DefaultClient.Do(r.WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		return a.StatusCode
	}
	if got := refused(); got != http.StatusServiceUnavailable {
		t.Errorf("one more: %d", got)
	}
	first.cancel()
	for end := time.Now().Add(10 * time.Second); refused() != http.StatusOK; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("one left, and there is still no room")
		}
	}
}

func TestStreamsEndWithTheRecorder(t *testing.T) {
	s := newStage(1)
	server := httptest.NewServer(s.handler())
	t.Cleanup(server.Close)
	w := s.watch(t, server.URL+"/api/v1/stream", "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.recorder.Run(ctx) }()
	w.next()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for w.lines.Scan() {
	}
	if err := w.lines.Err(); err != nil {
		t.Errorf("the stream broke: %v", err)
	}
}

// BenchmarkASecond is all that a recorder does in a second for 1,000 endpoints, with none and with ten readers of the
// cluster.
func BenchmarkASecond(b *testing.B) {
	for _, readers := range []int{0, 1, 10} {
		b.Run(fmt.Sprint(readers, " readers"), func(b *testing.B) {
			s := newStage(1000)
			s.second(nil)
			var shared frames
			b.ReportAllocs()
			for b.Loop() {
				s.second(nil)
				for i := range readers {
					latest, _ := s.recorder.Hub().Second()
					asked := topic{cluster: "llama", endpoint: fmt.Sprintf("10.1.0.%d:8000", i%2+1)}
					shared.of(latest, s, s.history).frame(asked, 0)
				}
			}
		})
	}
}
