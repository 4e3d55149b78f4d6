package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"steelyard/weighting"
	"steelyard/weighting/flight"
)

// Begin notes that a request got its connection to an endpoint.
func (s *Stream) Begin(now time.Time, id, address string) {
	s.Events(now, []Event{{ID: []byte(id), Address: []byte(address)}})
}

// End notes that a request to an endpoint is over.
func (s *Stream) End(now time.Time, id, address string, o Outcome) {
	s.Events(now, []Event{{Ended: true, ID: []byte(id), Address: []byte(address), Outcome: o}})
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is what really happens, and a ledger of it.
type world struct {
	ledger *Ledger
	now    time.Time
	woken  map[string]int

	clusters map[string][]string // members
	watchers map[string][]Envoy
	envoys   []*testEnvoy
	latest   []flight.Counts // the last reading of the one endpoint
}

// testEnvoy is an Envoy with its requests.
type testEnvoy struct {
	node    Envoy
	open    []testRequest
	issued  map[string]uint64 // since the last report
	streams []*Stream
	reports *Reports
	older   []*Reports // streams of reports that were not closed
}

type testRequest struct{ id, address string }

func newWorld() *world {
	w := &world{now: start, woken: map[string]int{}, clusters: map[string][]string{}, watchers: map[string][]Envoy{}}
	w.ledger = New(func(cluster string) { w.woken[cluster]++ })
	return w
}

// ticked returns the ledger after a tick at this moment.
func (w *world) ticked() *Ledger {
	w.ledger.Tick(w.now)
	return w.ledger
}

func (w *world) cluster(name string, members ...string) {
	w.clusters[name] = members
	w.ledger.SetMembers(name, members)
}

func (w *world) watch(name string, envoys ...*testEnvoy) {
	var watchers []Envoy
	for _, e := range envoys {
		watchers = append(watchers, e.node)
	}
	w.watchers[name] = watchers
	w.ledger.SetWatchers(name, watchers)
}

func (w *world) envoy(id string) *testEnvoy {
	e := &testEnvoy{node: Envoy{NodeID: id, Host: "10.0.0.1"}, issued: map[string]uint64{}}
	w.envoys = append(w.envoys, e)
	return e
}

func (w *world) after(d time.Duration) { w.now = w.now.Add(d) }

func (w *world) open(e *testEnvoy) *Stream {
	s := w.ledger.Open(e.node, w.now)
	e.streams = append(e.streams, s)
	return s
}

func (w *world) reporting(e *testEnvoy) {
	if e.reports != nil {
		e.older = append(e.older, e.reports)
	}
	e.reports = w.ledger.Reporting(e.node, time.Second, w.now)
}

// begin has a request begin, and logged unless the entry is lost.
func (w *world) begin(e *testEnvoy, s *Stream, id, address string, logged bool) {
	e.open = append(e.open, testRequest{id, address})
	e.issued[address]++
	if logged {
		s.Begin(w.now, id, address)
	}
}

// end has the i-th open request end.
func (w *world) end(e *testEnvoy, s *Stream, i int, logged bool) {
	r := e.open[i]
	e.open = slices.Delete(e.open, i, i+1)
	if logged {
		s.End(w.now, r.id, r.address, Outcome{Status: 200, Latency: time.Second, Bytes: 10})
	}
}

// report sends an Envoy's report, over two clusters of its own.
func (w *world) report(e *testEnvoy) {
	loads := map[string]EndpointLoad{}
	for _, r := range e.open {
		load := loads[r.address]
		load.Address, load.InProgress = r.address, load.InProgress+1
		loads[r.address] = load
	}
	for address, n := range e.issued {
		load := loads[address]
		load.Address, load.Issued = address, n
		loads[address] = load
	}
	e.issued = map[string]uint64{}
	parts := make([]ClusterLoad, 2)
	for i, address := range slices.Sorted(maps.Keys(loads)) {
		parts[i%2].Endpoints = append(parts[i%2].Endpoints, loads[address])
	}
	e.reports.Report(w.now, parts)
}

// truth returns what is in flight at an address from the watchers of a cluster.
func (w *world) truth(cluster, address string) (n int) {
	for _, e := range w.envoys {
		if !slices.Contains(w.watchers[cluster], e.node) {
			continue
		}
		for _, r := range e.open {
			if r.address == address {
				n++
			}
		}
	}
	return n
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// mustBeTrue compares the ledger with the truth.
func (w *world) mustBeTrue(t fataler) {
	t.Helper()
	for name := range w.clusters {
		for _, c := range w.ticked().Read(name, w.now, nil) {
			if want := w.truth(name, c.Address); !c.InFlight.Known() || int(c.InFlight.Value) != want {
				t.Fatalf("%s: %s has %v in flight, really %d", name, c.Address, c.InFlight, want)
			}
		}
	}
}

// mustBeSound checks what holds at any time: no count below zero, sums that are
// the sums, lists that agree, and no more kept than there is.
func (w *world) mustBeSound(t fataler) {
	t.Helper()
	l := w.ledger
	slots := map[*member]int64{}
	open, accounts, services := 0, 0, 0
	var reporters Reporters
	for _, e := range l.envoys {
		mustKnowRequests(t, e)
		open += e.open
		services += len(e.services)
		switch {
		case !w.watches(e.node):
		case e.reportsOnly():
			reporters.ReportsOnly += len(e.reports)
		default:
			reporters.WithAccessLog += len(e.reports)
		}
		for _, a := range e.accounts {
			accounts++
			if a.watched {
				slots[a.member] += int64(a.count.InFlight())
			}
		}
	}
	if reporters != l.reporters {
		t.Fatalf("%+v report, counted %+v", reporters, l.reporters)
	}
	if open != l.open || accounts != l.accounts || services != l.services {
		t.Fatalf("%d of %d requests, %d of %d accounts, %d of %d names", open, l.open, accounts, l.accounts, services,
			l.services)
	}
	mustKnowWatchers(t, l)
	for _, c := range l.clusters {
		for _, s := range c.members {
			if s.inFlight < 0 || s.inFlight != slots[s] {
				t.Fatalf("%s: %s has %d in flight, its accounts %d", c.name, s.address, s.inFlight, slots[s])
			}
		}
	}
}

func (w *world) watches(node Envoy) bool {
	for _, watchers := range w.watchers {
		if slices.Contains(watchers, node) {
			return true
		}
	}
	return false
}

// mustKnowRequests compares an Envoy's lists of requests, by id, by account and closed,
// and its streams of reports, with what it counts.
func mustKnowRequests(t fataler, e *envoy) {
	t.Helper()
	inRequests, inAccounts, counting := 0, 0, 0
	closed := map[*account]int32{}
	for r := e.closed.head; r != nil; r = r.links[inAccount].next {
		inAccounts++
		closed[r.key.account]++
	}
	if inAccounts != e.closings || inAccounts > maxClosed {
		t.Fatalf("%d closed requests, counted %d", inAccounts, e.closings)
	}
	for _, r := range e.reports {
		if r.counts {
			counting++
		}
	}
	if counting != e.counting {
		t.Fatalf("%d streams of reports count, and not %d", counting, e.counting)
	}
	for k, r := range e.requests {
		for ; r != nil; r = r.links[ofOneID].next {
			inRequests++
			if r.key != k || r.stream.envoy != e {
				t.Fatalf("a request stands under another's key")
			}
		}
	}
	for _, a := range e.accounts {
		inAccounts += mustAddUp(t, e, a)
		if a.closed != closed[a] {
			t.Fatalf("%d closed requests of an account, counted %d", closed[a], a.closed)
		}
	}
	if inRequests != e.open || inAccounts != e.open {
		t.Fatalf("%d open requests, %d by id, %d by account", e.open, inRequests, inAccounts)
	}
}

// mustKnowWatchers compares what each Envoy watches with the clusters' own lists.
func mustKnowWatchers(t fataler, l *Ledger) {
	t.Helper()
	watches := map[Envoy]watching{}
	for _, c := range l.clusters {
		for node := range c.watchers {
			n := watches[node]
			if n.clusters++; !c.idle {
				n.busy++
			}
			watches[node] = n
		}
	}
	if len(watches) != len(l.watching) {
		t.Fatalf("%d Envoys watch a cluster, counted %d", len(watches), len(l.watching))
	}
	for node, n := range watches {
		if *l.watching[node] != n {
			t.Fatalf("%v watches %+v, counted %+v", node, n, *l.watching[node])
		}
	}
}

// mustAddUp compares an account with its open requests and the reports, and returns how
// many requests are open.
func mustAddUp(t fataler, e *envoy, a *account) int {
	t.Helper()
	n := int32(0)
	for r := a.open.head; r != nil; r = r.links[inAccount].next {
		n++
	}
	if n != a.count.Open() {
		t.Fatalf("an account with %d open requests counts %d", n, a.count.Open())
	}
	if !e.reported() && a.count.InProgress() != 0 {
		t.Fatalf("no report, and yet %d in progress", a.count.InProgress())
	}
	return int(n)
}

// twoClusters share an endpoint; a third Envoy watches neither.
func twoClusters() *world {
	w := newWorld()
	w.cluster("chat", "10.1.0.1:80", "10.1.0.2:80", "10.1.0.3:80")
	w.cluster("embed", "10.1.0.3:80", "10.1.0.4:80")
	a, b := w.envoy("a"), w.envoy("b")
	w.watch("chat", a, b)
	w.watch("embed", b)
	return w
}

var drawnAddresses = []string{"10.1.0.1:80", "10.1.0.2:80", "10.1.0.3:80", "10.1.0.4:80"}

func drawEnvoy(t *rapid.T, w *world) *testEnvoy { return rapid.SampledFrom(w.envoys).Draw(t, "envoy") }

func drawStream(t *rapid.T, e *testEnvoy) *Stream {
	return rapid.SampledFrom(e.streams).Draw(t, "stream")
}

// TestCountsAreTheTruthWhenNothingIsLost: also with ids that come again, retries
// at one endpoint, ends over another stream, failed connections, and strangers.
func TestCountsAreTheTruthWhenNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := twoClusters()
		stranger := w.ledger.Open(Envoy{NodeID: "a", Host: "10.9.9.9"}, w.now)
		for _, e := range w.envoys {
			w.open(e)
			w.open(e)
			w.reporting(e)
		}
		w.watched(t, map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				e := drawEnvoy(t, w)
				id := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "id"))
				w.begin(e, drawStream(t, e), id, rapid.SampledFrom(drawnAddresses).Draw(t, "address"), true)
			},
			"end": func(t *rapid.T) {
				if e := drawEnvoy(t, w); len(e.open) > 0 {
					w.end(e, drawStream(t, e), rapid.IntRange(0, len(e.open)-1).Draw(t, "which"), true)
				}
			},
			"report": w.allReport,
			"refused": func(t *rapid.T) {
				e := drawEnvoy(t, w)
				drawStream(t, e).End(w.now, "0", rapid.SampledFrom(drawnAddresses).Draw(t, "address"),
					Outcome{ConnectFailed: true})
			},
			"stranger": func(t *rapid.T) {
				stranger.Begin(w.now, "0", rapid.SampledFrom(drawnAddresses).Draw(t, "address"))
				stranger.End(w.now, "1", rapid.SampledFrom(drawnAddresses).Draw(t, "address"), Outcome{Status: 500})
			},
			"elsewhere": func(t *rapid.T) {
				drawStream(t, drawEnvoy(t, w)).Begin(w.now, "0", "10.66.0.1:80")
			},
			"": func(t *rapid.T) {
				w.mustBeTrueAndSound(t)
				for _, c := range w.ticked().Read("chat", w.now, nil) {
					if p := c.Proxies; p.Issued.Value-p.Ended.Value != c.InFlight.Value {
						t.Fatalf("%s: %v issued and %v ended, with %v in flight", c.Address, p.Issued.Value,
							p.Ended.Value, c.InFlight.Value)
					}
				}
			},
		})
	})
}

// allReport is a second in which every Envoy sends its report.
func (w *world) allReport(*rapid.T) {
	w.after(time.Second)
	for _, e := range w.envoys {
		w.report(e)
	}
}

func (w *world) mustBeTrueAndSound(t *rapid.T) {
	w.mustBeSound(t)
	w.mustBeTrue(t)
}

// watched runs the actions and checks that a reading never changes without a wake.
func (w *world) watched(t *rapid.T, actions map[string]func(*rapid.T)) {
	clear(w.woken) // of the setting up
	before := w.readings()
	check := actions[""]
	actions[""] = func(t *rapid.T) {
		check(t)
		now := w.readings()
		for name := range now {
			if now[name] != before[name] && w.woken[name] == 0 {
				t.Fatalf("%s changed without a wake:\n%s\n%s", name, before[name], now[name])
			}
			if now[name] == before[name] && w.woken[name] > 0 {
				t.Fatalf("%s was woken and nothing had changed: %s", name, now[name])
			}
		}
		before = now
		clear(w.woken)
	}
	t.Repeat(actions)
}

// readings returns the counts and sums of each cluster, without their times.
func (w *world) readings() map[string]string {
	all := map[string]string{}
	for name := range w.clusters {
		var b strings.Builder
		for _, c := range w.ticked().Read(name, w.now, nil) {
			p := c.Proxies
			fmt.Fprintln(&b, c.Address, c.InFlight.Value, p.Issued.Value, p.Ended.Value, p.Failed.Value, p.Errors.Value,
				p.Succeeded.Value, p.Answered.Value, p.LatencySeconds.Value, p.Sized.Value, p.SizedBytes.Value,
				p.Refused.Value, p.RefusedBytes.Value)
		}
		all[name] = b.String()
	}
	return all
}

// TestWhateverIsLostIsCorrectedByTwoReports: entries lost at will, streams that break,
// members and watchers that change; then two reports make all counts true.
func TestWhateverIsLostIsCorrectedByTwoReports(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := twoClusters()
		for _, e := range w.envoys {
			w.open(e)
			w.open(e)
			w.reporting(e)
		}
		logged := rapid.Bool()
		fresh := 0
		repair := func(t *rapid.T) {
			for range 2 {
				w.allReport(t)
				for range rapid.IntRange(0, 3).Draw(t, "requests between") { // with no loss
					e := drawEnvoy(t, w)
					fresh++
					w.begin(e, e.streams[0], fmt.Sprint("fresh", fresh),
						rapid.SampledFrom(drawnAddresses).Draw(t, "address"), true)
					if rapid.Bool().Draw(t, "ends") {
						w.end(e, e.streams[1], len(e.open)-1, true)
					}
				}
			}
			w.mustBeTrue(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				e := drawEnvoy(t, w)
				id := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "id"))
				w.begin(e, drawStream(t, e), id, rapid.SampledFrom(drawnAddresses).Draw(t, "address"),
					logged.Draw(t, "logged"))
			},
			"end": func(t *rapid.T) {
				if e := drawEnvoy(t, w); len(e.open) > 0 {
					w.end(e, drawStream(t, e), rapid.IntRange(0, len(e.open)-1).Draw(t, "which"),
						logged.Draw(t, "logged"))
				}
			},
			"break": func(t *rapid.T) {
				e := drawEnvoy(t, w)
				i := rapid.IntRange(0, 1).Draw(t, "stream")
				e.streams[i].Close()
				e.streams[i] = w.ledger.Open(e.node, w.now)
			},
			"report": func(t *rapid.T) { w.after(time.Second); w.report(drawEnvoy(t, w)) },
			"report stream": func(t *rapid.T) {
				e := drawEnvoy(t, w)
				e.reports.Close()
				w.reporting(e)
			},
			"members": func(t *rapid.T) {
				w.cluster("chat",
					rapid.SliceOfDistinct(rapid.SampledFrom(drawnAddresses), rapid.ID).Draw(t, "members")...)
			},
			"watchers": func(t *rapid.T) {
				w.watch("embed", rapid.SliceOfDistinct(rapid.SampledFrom(w.envoys), rapid.ID).Draw(t, "watchers")...)
				w.watch("chat", w.envoys...)
				if len(w.watchers["embed"]) == 0 {
					w.watch("embed", w.envoys[0])
				}
			},
			"repair": repair,
			"":       func(t *rapid.T) { w.mustBeSound(t) },
		})
		repair(t)
	})
}

// TestTheSumOfIssuedFollowsALogThatLagsAndLoses: whatever the log shows late or never,
// the sum never falls and never counts more than the requests and those that the log
// logged late; and once nothing is late any more, later requests bring it to the truth.
func TestTheSumOfIssuedFollowsALogThatLagsAndLoses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, e := single()
		s := w.open(e)
		w.reporting(e)
		interval := time.Duration(rapid.SampledFrom([]int{100, 300, 1000}).Draw(t, "interval")) * time.Millisecond
		var truth, late, everLate, sum uint64
		var sized, unsized float64
		begin := func(n uint64, logged bool) {
			truth, e.issued[one] = truth+n, e.issued[one]+n
			for range n {
				if logged {
					s.Events(w.now, []Event{{ID: []byte("id"), Address: []byte(one), Body: drawBody(t)}})
				}
			}
		}
		report := func(*rapid.T) { w.after(interval); w.report(e) }
		check := func(t *rapid.T) {
			w.mustBeSound(t)
			c := w.ticked().Read("chat", w.now, nil)[0]
			with, without := c.Proxies.Sized.Value, c.Proxies.Issued.Value-c.Proxies.Sized.Value
			if with < sized || without < unsized || c.Proxies.SizedBytes.Value != 7*with {
				t.Fatalf("after %v sized and %v not: %+v", sized, unsized, c)
			}
			sized, unsized = with, without
			now := uint64(c.Proxies.Issued.Value)
			if now < sum || now > truth+everLate {
				t.Fatalf("%d issued after %d, really %d, of them %d logged late", now, sum, truth, everLate)
			}
			sum = now
		}
		report(t)
		few := rapid.Uint64Range(1, 5)
		t.Repeat(map[string]func(*rapid.T){
			"begin":  func(t *rapid.T) { begin(few.Draw(t, "requests"), true) },
			"lost":   func(t *rapid.T) { begin(few.Draw(t, "requests"), false) },
			"lagged": func(t *rapid.T) { n := few.Draw(t, "requests"); begin(n, false); late += n; everLate += n },
			"logged late": func(*rapid.T) {
				for ; late > 0; late-- {
					s.Begin(w.now, "id", one)
				}
			},
			"report": report,
			"":       check,
		})
		for ; late > 0; late-- {
			s.Begin(w.now, "id", one)
		}
		settle := func() {
			for range 2 * int(time.Second/interval+1) {
				report(t)
				check(t)
			}
		}
		settle()
		begin(everLate, true) // what was overcounted is made up for
		settle()
		if sum != truth {
			t.Fatalf("%d issued, really %d", sum, truth)
		}
	})
}

// drawBody returns a size of seven bytes, or unknown.
func drawBody(t *rapid.T) Size {
	if rapid.Bool().Draw(t, "sized") {
		return Size{Bytes: 7, Known: true}
	}
	return Size{}
}

// serve has an endpoint report anything of its own requests.
func (w *world) serve(t *rapid.T) {
	w.after(time.Second)
	requests := rapid.SampledFrom([]float64{0, 1, 1e9}).Draw(t, "requests")
	w.ledger.Served(rapid.SampledFrom(drawnAddresses).Draw(t, "address"), &weighting.ServerReport{
		Queue: weighting.Reading{At: w.now}, Running: weighting.Reading{Value: requests, At: w.now},
		Completions: weighting.Reading{Value: rapid.Float64Range(0, 10).Draw(t, "completed"), At: w.now},
	}, 0, w.now)
	for name := range w.clusters {
		w.ledger.Disputes(name, w.now)
		for _, c := range w.ticked().Read(name, w.now, nil) {
			if c.InFlight.Value < 0 {
				t.Fatalf("%v in flight", c.InFlight.Value)
			}
		}
	}
}

// TestClosedStreamsLeaveNothing: whatever was reported, when all streams are closed
// nothing is counted, known or kept.
func TestClosedStreamsLeaveNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := twoClusters()
		logged := rapid.Bool()
		t.Repeat(map[string]func(*rapid.T){
			"open":      func(t *rapid.T) { w.open(drawEnvoy(t, w)) },
			"reporting": func(t *rapid.T) { w.reporting(drawEnvoy(t, w)) },
			"begin": func(t *rapid.T) {
				if e := drawEnvoy(t, w); len(e.streams) > 0 {
					w.begin(e, drawStream(t, e), "id", rapid.SampledFrom(drawnAddresses).Draw(t, "address"),
						logged.Draw(t, "logged"))
				}
			},
			"report": func(t *rapid.T) {
				if e := drawEnvoy(t, w); e.reports != nil {
					w.report(e)
				}
			},
			"report of an older stream": func(t *rapid.T) {
				if e := drawEnvoy(t, w); len(e.older) > 0 {
					e.reports, e.older[0] = e.older[0], e.reports
					w.report(e)
				}
			},
			"watchers": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"chat", "embed"}).Draw(t, "cluster")
				w.watch(name, rapid.SliceOfDistinct(rapid.SampledFrom(w.envoys), rapid.ID).Draw(t, "watchers")...)
			},
			"time":   func(*rapid.T) { w.after(2 * time.Second); w.ticked().Read("chat", w.now, nil) },
			"served": w.serve,
			"":       func(t *rapid.T) { w.mustBeSound(t) },
		})
		for _, e := range w.envoys {
			for _, s := range e.streams {
				s.Close()
				s.Close()
				s.Begin(w.now, "late", drawnAddresses[0])
			}
			for _, r := range e.older {
				r.Close()
			}
			if e.reports != nil {
				e.reports.Close()
				w.report(e)
			}
		}
		w.mustBeSound(t)
		l := w.ledger
		if len(l.envoys) != 0 || l.open != 0 || l.accounts != 0 {
			t.Fatalf("%d Envoys, %d requests and %d accounts are left", len(l.envoys), l.open, l.accounts)
		}
		for _, c := range l.Read("chat", w.now, nil) {
			if c.InFlight.Known() || c.Exact || c.Proxies.Issued.Known() {
				t.Fatalf("no Envoy reports, and yet %+v", c)
			}
		}
	})
}
