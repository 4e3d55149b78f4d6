package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"steelyard/internal/api"
	"steelyard/weighting"
)

// A scrapedEndpoint has the requests of some Envoys, as they and its own metrics report them. It advances in
// ticks of 50 ms, and is scraped at every fifth.
type scrapedEndpoint struct {
	*world
	ticks     int
	senders   []*sender
	completed float64
	stalled   bool
	seen      func(truth int) float64 // what its gauges show of the requests that it has; nil: it is not scraped
	uncounted bool                    // it does not report what it completes
	slots     float64                 // 0 unknown
}

const tick = 50 * time.Millisecond

// A sender is an Envoy that sends a request each so many ticks, which takes so many.
type sender struct {
	*testEnvoy
	stream                   *Stream // nil for one without a log
	every, take              int
	reports                  int // ticks between two load reports
	due                      []int
	alsoInFlight, alsoIssued func() uint64 // reported, though there are no such requests
	standing                 int           // of its requests, those that the endpoint does not see
	next                     int
}

func newScrapedEndpoint() *scrapedEndpoint {
	w := &scrapedEndpoint{world: newWorld(), seen: func(truth int) float64 { return float64(truth) }}
	w.cluster("chat", one)
	return w
}

// sender adds an Envoy: NODE, or NODE@HOST.
func (w *scrapedEndpoint) sender(name string, logs bool, every, take int) *sender {
	node, host, _ := strings.Cut(name, "@")
	s := &sender{testEnvoy: w.envoy(node), every: every, take: take, reports: 20}
	s.node.Host = cmp.Or(host, s.node.Host)
	w.senders = append(w.senders, s)
	var all []*testEnvoy
	for _, other := range w.senders {
		all = append(all, other.testEnvoy)
	}
	w.watch("chat", all...)
	if logs {
		s.stream = w.open(s.testEnvoy)
	}
	w.reporting(s.testEnvoy)
	return s
}

// step moves on by a tick.
func (w *scrapedEndpoint) step() {
	w.after(tick)
	w.ticks++
	truth := 0
	for i, s := range w.senders {
		if s.every > 0 && w.ticks%s.every == i%s.every {
			s.due = append(s.due, w.ticks+s.take)
			s.issued[one]++
			s.next++
			if s.stream != nil {
				s.stream.Begin(w.now, fmt.Sprint(s.next), one)
			}
			s.open = append(s.open, testRequest{fmt.Sprint(s.next), one})
		}
		for len(s.due) > 0 && s.due[0] <= w.ticks && !w.stalled {
			s.due = s.due[1:]
			w.completed++
			w.finish(s)
		}
		truth += len(s.due)
		if w.ticks%s.reports == (7*i)%s.reports {
			w.report(s)
		}
	}
	if w.ticks%5 == 0 && w.seen != nil {
		r := weighting.ServerReport{Queue: weighting.Reading{At: w.now},
			Running: weighting.Reading{Value: w.seen(truth), At: w.now}}
		if !w.uncounted {
			r.Completions = weighting.Reading{Value: w.completed, At: w.now}
		}
		w.ledger.Served(one, &r, w.slots, w.now)
	}
}

// finish ends the oldest request of a sender.
func (w *scrapedEndpoint) finish(s *sender) {
	if s.stream != nil {
		w.end(s.testEnvoy, s.stream, 0, true)
		return
	}
	s.open = s.open[1:]
}

// report sends a sender's load report, with what it invents.
func (w *scrapedEndpoint) report(s *sender) {
	load := EndpointLoad{Address: one, InProgress: uint64(len(s.open) + s.standing), Issued: s.issued[one]}
	s.issued[one] = 0
	if s.alsoInFlight != nil {
		load.InProgress += s.alsoInFlight()
	}
	if s.alsoIssued != nil {
		load.Issued += s.alsoIssued()
	}
	s.testEnvoy.reports.Report(w.now, []ClusterLoad{{Cluster: "chat", Endpoints: []EndpointLoad{load}}})
}

// stand has requests begin that never end, and that the endpoint does not see.
func (w *scrapedEndpoint) stand(s *sender, n int) {
	s.standing += n
	for range n {
		s.next++
		if s.stream != nil {
			s.stream.Begin(w.now, fmt.Sprint("standing", s.next), one)
		}
	}
}

// allCounts reports whether all that is reported counts.
func (w *scrapedEndpoint) allCounts() bool {
	c := w.ticked().Read("chat", w.now, nil)[0]
	_, all := w.ledger.addresses[one].inFlight()
	return c.Exact && int64(c.InFlight.Value) == all
}

// run steps for a time and returns how long some of what is reported did not count, when that was
// first, negative for never, and which Envoy was named for it.
func (w *scrapedEndpoint) run(length time.Duration) (discounted, first time.Duration, named []string) {
	first = -1
	for begun := w.now; w.now.Sub(begun) < length; {
		w.step()
		if !w.allCounts() {
			if discounted += tick; first < 0 {
				first = w.now.Sub(begun)
			}
		}
		for _, d := range w.ledger.Disputes("chat", w.now) {
			if !slices.Contains(named, d.Envoy.NodeID) {
				named = append(named, d.Envoy.NodeID)
			}
		}
	}
	return discounted, first, named
}

func constantly(n uint64) func() uint64 { return func() uint64 { return n } }

// fleet are three Envoys with logs that send 20 requests a second each, which take 200 ms.
func (w *scrapedEndpoint) fleet() {
	for _, name := range []string{"a", "b", "c"} {
		w.sender(name, true, 1, 4)
	}
	w.run(5 * time.Second)
}

// TestNoClaimCountsForMoreThanAnEndpointShows: the requests of Envoys that no endpoint has confirmed, in any number,
// together with the others' are as many as in the endpoint's own report, or as the others'; and those that began since.
// Here it completes nothing that could be theirs.
func TestNoClaimCountsForMoreThanAnEndpointShows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.cluster("chat", one)
		honest := w.envoy("honest")
		envoys := []*testEnvoy{honest}
		for i := range rapid.IntRange(1, 5).Draw(t, "strangers") {
			envoys = append(envoys, w.envoy(fmt.Sprint("stranger-", i)))
		}
		w.watch("chat", envoys...)
		report := func(e *testEnvoy, inProgress, issued uint64) {
			e.reports.Report(w.now, []ClusterLoad{{Cluster: "chat", Endpoints: []EndpointLoad{
				{Address: one, InProgress: inProgress, Issued: issued}}}})
		}
		shows := func(requests, completed float64) {
			at := func(n float64) weighting.Reading { return weighting.Reading{Value: n, At: w.now} }
			w.ledger.Served(one, &weighting.ServerReport{Queue: at(0), Running: at(requests),
				Completions: at(completed)}, 0, w.now)
		}
		w.reporting(honest)
		completed := 0.0
		if rapid.Bool().Draw(t, "one is confirmed") {
			report(honest, 0, 0)
			completed = 1
			shows(0, completed)
			w.after(time.Second)
			report(honest, 0, 1)
		}
		others := uint64(0)
		for _, e := range envoys[1:] {
			w.after(time.Second)
			shows(0, completed) // it is idle before they come
			w.reporting(e)
		}
		claims := rapid.SampledFrom([]uint64{0, 1, 2, 8, 9, 100, 1000, 1 << 40})
		for range rapid.IntRange(1, 30).Draw(t, "rounds") {
			w.after(time.Duration(rapid.IntRange(50, 1500).Draw(t, "ms")) * time.Millisecond)
			for _, e := range envoys[1:] {
				report(e, claims.Draw(t, "claim"), 0)
			}
			if completed > 0 {
				others = uint64(rapid.IntRange(0, 8).Draw(t, "others"))
				report(honest, others, 0)
			}
			shown := float64(rapid.IntRange(0, 12).Draw(t, "shown"))
			shows(shown, completed)
			if got := w.ticked().Read("chat", w.now, nil)[0].InFlight.Value; got > max(shown, float64(others)) {
				t.Fatalf("%v count, of which others have %d, and the endpoint shows %v", got, others, shown)
			}
		}
	})
}

// TestAnIdleEndpointIsNotKeptFromRequests: while nothing else runs, by any claim, in any way, and whether or not there
// are other Envoys.
func TestAnIdleEndpointIsNotKeptFromRequests(t *testing.T) {
	for name, c := range map[string]struct {
		others, claim int
		logs          bool
		issued        uint64
	}{
		"a thousand in progress":           {3, 1000, false, 0},
		"the same of the only Envoy":       {0, 1000, false, 0},
		"two":                              {3, 2, false, 0},
		"a thousand in a log":              {3, 1000, true, 0},
		"a thousand, and ends of as many":  {3, 1000, false, 1000},
		"more than can have been issued":   {3, 1000, false, 1 << 40},
		"eight in a log of the only Envoy": {0, 8, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newScrapedEndpoint()
			for i := range c.others {
				w.sender(fmt.Sprint("idle-", i), true, 0, 0)
			}
			w.run(3 * time.Second)
			liar := w.sender("liar", c.logs, 0, 0)
			if c.logs {
				w.stand(liar, c.claim)
			} else {
				liar.alsoInFlight, liar.alsoIssued = constantly(uint64(c.claim)), constantly(c.issued)
			}
			for begun := w.now; w.now.Sub(begun) < 10*time.Second; {
				w.step()
				read := w.ticked().Read("chat", w.now, nil)[0].InFlight.Value
				if w.now.Sub(begun) > 3*time.Second && read > 0 {
					t.Fatalf("%v in flight after %v", read, w.now.Sub(begun))
				}
			}
			d := w.ledger.Disputes("chat", w.now)
			if len(d) == 0 || d[0].Envoy.NodeID != "liar" || d[0].Kind != api.DisputeInFlight {
				t.Errorf("disputes %+v", d)
			}
		})
	}
}

// TestAServerThatHangsKeepsWhatItsOnlySenderHasThere: the others have no requests there that would be stuck as well.
func TestAServerThatHangsKeepsWhatItsOnlySenderHasThere(t *testing.T) {
	for name, others := range map[string]int{"of several Envoys": 2, "of one": 0} {
		t.Run(name, func(t *testing.T) {
			w := newScrapedEndpoint()
			for i := range others {
				w.sender(fmt.Sprintf("other-%d@10.0.0.%d", i, i+2), true, 1, 4)
			}
			w.sender("only", true, 1, 8)
			w.run(5 * time.Second)
			for _, s := range w.senders[:others] {
				s.every = 0
			}
			w.run(5 * time.Second)
			w.stalled, w.seen = true, func(int) float64 { return 0 }
			for range 1000 {
				w.step()
				c := w.ticked().Read("chat", w.now, nil)[0]
				if c.InFlight.Value < 7 || others == 0 && !w.allCounts() {
					t.Fatalf("%v in flight", c.InFlight.Value)
				}
			}
		})
	}
}

func TestOneEnvoyDoesNotOverruleAnEndpoint(t *testing.T) {
	for name, lie := range map[string]func(w *scrapedEndpoint){
		"a thousand requests": func(w *scrapedEndpoint) {
			w.sender("liar", false, 0,
				0).alsoInFlight = constantly(1000)
		},
		"twenty": func(w *scrapedEndpoint) { w.sender("liar", false, 0, 0).alsoInFlight = constantly(20) },
		"with ends that no log showed": func(w *scrapedEndpoint) {
			s := w.sender("liar", false, 0, 0)
			s.alsoInFlight, s.alsoIssued = constantly(1000), constantly(100_000)
		},
		"among requests of its own": func(w *scrapedEndpoint) {
			w.sender("liar", false, 4,
				4).alsoInFlight = constantly(1000)
		},
		"in its log, too": func(w *scrapedEndpoint) { w.stand(w.sender("liar", true, 0, 0), 1000) },
		"a server that does not count what it completes": func(w *scrapedEndpoint) {
			w.uncounted = true
			w.sender("liar", false, 0, 0).alsoInFlight = constantly(1000)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newScrapedEndpoint()
			w.fleet()
			lie(w)
			_, first, named := w.run(10 * time.Second)
			if first < 0 || first > 4500*time.Millisecond {
				t.Errorf("contradicted after %v, want within 4.5 s of its stream, of which its first report may be one",
					first)
			}
			if !slices.Equal(named, []string{"liar"}) {
				t.Errorf("named %v, want the liar", named)
			}
			if c := w.ticked().Read("chat", w.now, nil)[0]; !c.Exact || c.InFlight.Value < 12 || c.InFlight.Value > 13 {
				t.Errorf("%v in flight, exact %t; want the 12 or 13 of the server", c.InFlight.Value, c.Exact)
			}
			if d := w.ledger.Disputes("chat", w.now)[0]; d.Requests < 20 || d.Address != one ||
				w.now.Sub(d.Since) < 4*time.Second {
				t.Errorf("%+v", d)
			}
			w.senders[3].testEnvoy.reports.Close()
			if w.senders[3].stream != nil {
				w.senders[3].stream.Close()
			}
			w.step()
			if discounted, _, _ := w.run(5 * time.Second); discounted > 250*time.Millisecond {
				t.Errorf("not all counts for %v after it has gone", discounted)
			}
		})
	}
}

// TestOneThatLiesNowAndThenIsNotGivenTimeAgain: once it was contradicted, its next wrong report counts for no longer
// than a scrape.
func TestOneThatLiesNowAndThenIsNotGivenTimeAgain(t *testing.T) {
	w := newScrapedEndpoint()
	w.fleet()
	reports := 0
	w.sender("liar", false, 0, 0).alsoInFlight = func() uint64 {
		if reports++; reports%4 == 0 {
			return 0
		}
		return 1000
	}
	w.run(10 * time.Second)
	counted := time.Duration(0)
	for begun := w.now; w.now.Sub(begun) < 20*time.Second; w.step() {
		if c := w.ticked().Read("chat", w.now, nil)[0]; c.InFlight.Value > 500 {
			counted += tick
		}
	}
	if most := 5 * 300 * time.Millisecond; counted > most {
		t.Errorf("counted for %v of twenty seconds, want at most %v: a scrape interval each time it starts again",
			counted,
			most)
	}
}

// TestSeveralLiarsAreContradicted: they do not confirm one another.
func TestSeveralLiarsAreContradicted(t *testing.T) {
	w := newScrapedEndpoint()
	w.fleet()
	for i := range 10 {
		w.sender(fmt.Sprint("liar-", i), false, 0, 0).alsoInFlight = constantly(1000)
	}
	_, first, named := w.run(10 * time.Second)
	if first < 0 || len(named) != 10 {
		t.Errorf("contradicted after %v: %v", first, named)
	}
}

// TestOneWhoseReportsLeaveAnEndpointWithoutRequestsIsContradicted: by one request of others now and then,
// that the floor of the weights sends there.
func TestOneWhoseReportsLeaveAnEndpointWithoutRequestsIsContradicted(t *testing.T) {
	w := newScrapedEndpoint()
	w.fleet()
	w.sender("liar", false, 0, 0).alsoInFlight = constantly(1000)
	for _, s := range w.senders[:3] {
		s.every = 200
	}
	if _, first, named := w.run(20 * time.Second); first < 0 || first > 12*time.Second ||
		!slices.Equal(named, []string{"liar"}) {
		t.Errorf("contradicted after %v: %v", first, named)
	}
}

func TestWhatIsNoLieStaysExact(t *testing.T) {
	for name, honest := range map[string]func(w *scrapedEndpoint){
		"a gauge that lags by iterations of two seconds": func(w *scrapedEndpoint) {
			w.fleet()
			for _, s := range w.senders {
				s.take = 15
			}
			last, at := 0.0, 0
			w.seen = func(truth int) float64 {
				if w.ticks-at >= 40 {
					last, at = float64(truth), w.ticks
				}
				return last
			}
		},
		"a burst through one Envoy that the gauge shows two seconds later": func(w *scrapedEndpoint) {
			w.fleet()
			s := w.senders[0]
			for range 60 {
				s.due = append(s.due, w.ticks+42)
				s.next++
				s.stream.Begin(w.now, fmt.Sprint(s.next), one)
				s.open = append(s.open, testRequest{fmt.Sprint(s.next), one})
			}
			from := w.ticks
			w.seen = func(truth int) float64 {
				if w.ticks-from < 40 {
					return float64(min(truth, 12))
				}
				return float64(truth)
			}
		},
		"a server that stalls, and is idle by its own report": func(w *scrapedEndpoint) {
			w.fleet()
			w.stalled = true
			w.seen = func(int) float64 { return 0 }
		},
		"the same, where one Envoy has nearly all requests": func(w *scrapedEndpoint) {
			w.sender("a", true, 1, 4)
			w.sender("b", true, 40, 4)
			w.run(10 * time.Second)
			w.stalled = true
			w.seen = func(int) float64 { return 0 }
		},
		"the same without logs, and clients give up": func(w *scrapedEndpoint) {
			for _, name := range []string{"a", "b", "c"} {
				w.sender(name, false, 1, 4)
			}
			w.run(10 * time.Second)
			w.stalled = true
			w.seen = func(int) float64 {
				for _, s := range w.senders {
					if len(s.due) > 100 {
						s.due = s.due[1:]
						w.finish(s)
					}
				}
				return 0
			}
		},
		"slow uploads": func(w *scrapedEndpoint) {
			w.fleet()
			w.stand(w.senders[1], tolerated)
		},
		"slow uploads through all": func(w *scrapedEndpoint) {
			w.fleet()
			for _, s := range w.senders {
				w.stand(s, 30)
			}
		},
		"a frontend that is full, where one Envoy has most requests": func(w *scrapedEndpoint) {
			w.sender("a", true, 1, 60)
			w.sender("b", true, 10, 60)
			w.sender("c", true, 10, 60)
			w.seen = func(truth int) float64 { return float64(min(truth, 16)) }
		},
		"the only Envoy, with many slow uploads": func(w *scrapedEndpoint) {
			w.stand(w.sender("a", true, 1, 4), 200)
		},
		"the only Envoy that sends there": func(w *scrapedEndpoint) {
			w.sender("a", true, 1, 4)
			w.sender("b", true, 0, 0)
			w.sender("c", false, 0, 0)
			w.stand(w.senders[0], 200)
		},
		"load reports only, each five seconds, of requests that come in bursts": func(w *scrapedEndpoint) {
			bursts := w.sender("a", false, 1, 40)
			bursts.reports = 100
			bursts.testEnvoy.reports.Asked(5 * time.Second)
			w.sender("b", true, 5, 4)
			w.sender("c", true, 5, 4)
			w.seen = func(truth int) float64 {
				if bursts.every = 0; w.ticks%100 >= 60 { // just before its report
					bursts.every = 1
				}
				return float64(truth)
			}
			w.run(15 * time.Second) // until each is confirmed
		},
	} {
		for _, slots := range []float64{0, 4, 16, 64} {
			for _, uncounted := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s at %v slots, uncounted %t", name, slots, uncounted), func(t *testing.T) {
					w := newScrapedEndpoint()
					w.slots, w.uncounted = slots, uncounted
					honest(w)
					for begun := w.now; !w.allCounts(); w.step() { // until all have reported
						if w.now.Sub(begun) > time.Minute {
							t.Fatal("not all counts")
						}
					}
					if discounted, first, named := w.run(40 * time.Second); discounted > 0 {
						t.Errorf("not all counts for %v, first after %v: %v", discounted, first, named)
					}
				})
			}
		}
	}
}

// TestAnEndpointThatIsNotHeardAnyMoreDeniesNothing: its last report is no news after ten seconds.
func TestAnEndpointThatIsNotHeardAnyMoreDeniesNothing(t *testing.T) {
	w := newScrapedEndpoint()
	w.fleet()
	w.sender("liar", false, 0, 0).alsoInFlight = constantly(1000)
	w.run(10 * time.Second)
	if w.allCounts() {
		t.Fatal("it is trusted")
	}
	w.seen = nil
	if discounted, _, _ := w.run(20 * time.Second); discounted < 9*time.Second || discounted > 11*time.Second ||
		!w.allCounts() {
		t.Errorf("not trusted for %v without a report", discounted)
	}
	if got := w.ledger.Disputes("chat", w.now); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

// TestTheLastAnswersBeforeAClaimAreEnough: where nothing is sent any more because of it.
func TestTheLastAnswersBeforeAClaimAreEnough(t *testing.T) {
	w := newScrapedEndpoint()
	w.fleet()
	liar := w.sender("liar", false, 0, 0)
	w.run(5 * time.Second)
	for w.ticks%5 != 0 {
		w.step()
	}
	for _, s := range w.senders { // what is under way ends before the next scrape
		s.every = 0
		for i := range s.due {
			s.due[i] = w.ticks + 2
		}
	}
	liar.alsoInFlight = constantly(1000)
	liar.reports = 3
	if _, first, named := w.run(5 * time.Second); first < 0 || first > 3500*time.Millisecond ||
		!slices.Equal(named, []string{"liar"}) {
		t.Errorf("contradicted after %v: %v", first, named)
	}
}

// TestAFewRequestsDoNotOverruleAnEndpoint: as many as are tolerated of Envoys that are confirmed.
func TestAFewRequestsDoNotOverruleAnEndpoint(t *testing.T) {
	for name, c := range map[string]struct {
		slots    float64
		liars    int
		invented uint64 // requests in flight, by each
		every    int    // ticks between two requests of the others; 0 is their usual rate
	}{
		"eight, at four slots":              {4, 1, 8, 0},
		"one of each of forty node ids":     {4, 40, 1, 0},
		"eight, slots are unknown":          {0, 1, 8, 6},
		"eight of forty, slots are unknown": {0, 40, 8, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newScrapedEndpoint()
			w.slots = c.slots
			w.fleet()
			for i := range c.liars {
				w.sender(fmt.Sprint("liar-", i), false, 0, 0).alsoInFlight = constantly(c.invented)
			}
			for _, s := range w.senders[:3] {
				s.every = max(s.every, c.every)
			}
			w.run(5 * time.Second)
			for range 100 {
				w.step()
				if read := w.ticked().Read("chat", w.now, nil)[0].InFlight.Value; read > 12 {
					t.Fatalf("%v in flight, want at most the 12 of the others", read)
				}
			}
			disputes := w.ledger.Disputes("chat", w.now)
			for _, d := range disputes {
				if d.Envoy.NodeID[:4] != "liar" {
					t.Errorf("%+v is no liar", d)
				}
			}
			if len(disputes) != c.liars {
				t.Errorf("%d are named, want %d", len(disputes), c.liars)
			}
		})
	}
}

// TestAnEnvoyWithLongRequestsIsNotContradictedForOthers: its requests are in the endpoint's report, and what is missing
// there is less than they are.
func TestAnEnvoyWithLongRequestsIsNotContradictedForOthers(t *testing.T) {
	for name, invented := range map[string]uint64{"a thousand requests of a liar": 1000, "six of a liar": 6} {
		t.Run(name, func(t *testing.T) {
			w := newScrapedEndpoint()
			w.slots = 16
			w.fleet()
			w.sender("long", true, 20, 600) // 30 requests of half a minute, against 12 of 200 ms
			w.run(40 * time.Second)
			w.sender("liar", false, 0, 0).alsoInFlight = constantly(invented)
			if _, _, named := w.run(40 * time.Second); !slices.Equal(named, []string{"liar"}) {
				t.Errorf("named %v, want the liar", named)
			}
		})
	}
}
