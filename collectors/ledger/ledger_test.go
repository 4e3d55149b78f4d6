package ledger

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"steelyard/internal/api"
	"steelyard/weighting"
	"steelyard/weighting/flight"
)

const one = "10.1.0.1:80"

// single returns an Envoy that watches a cluster of one endpoint.
func single() (*world, *testEnvoy) {
	w := newWorld()
	w.cluster("chat", one)
	e := w.envoy("a")
	w.watch("chat", e)
	return w, e
}

// read returns the reading of the one endpoint.
func (w *world) read(t *testing.T) flight.Counts {
	t.Helper()
	w.latest = w.ticked().Read("chat", w.now, w.latest)
	if len(w.latest) != 1 {
		t.Fatalf("%d endpoints, want 1", len(w.latest))
	}
	return w.latest[0]
}

// expect checks the one endpoint's count.
func (w *world) expect(t *testing.T, inFlight int) {
	t.Helper()
	w.mustBeSound(t)
	if got := w.read(t).InFlight; !got.Known() || int(got.Value) != inFlight {
		t.Fatalf("%v in flight, want %d", got, inFlight)
	}
}

// nextReport sends a report of the one endpoint.
func (w *world) nextReport(e *testEnvoy, inProgress, issued uint64) {
	w.after(time.Second)
	var loads []ClusterLoad
	if inProgress > 0 || issued > 0 {
		loads = []ClusterLoad{{Cluster: "chat",
			Endpoints: []EndpointLoad{{Address: one, InProgress: inProgress, Issued: issued}}}}
	}
	e.reports.Report(w.now, loads)
}

func (w *world) status(t *testing.T) EnvoyStatus {
	t.Helper()
	all := w.ticked().Envoys(w.now)
	if len(all) != 1 {
		t.Fatalf("%d Envoys, want 1", len(all))
	}
	return all[0]
}

func TestCountsWithoutAReportAreUnknownAndNotZero(t *testing.T) {
	w, e := single()
	if got := w.read(t); got.InFlight.Known() || got.Exact || got.Proxies != (weighting.ProxyReport{}) {
		t.Errorf("no stream, and yet %+v", got)
	}
	w.reporting(e)
	if got := w.read(t); got.InFlight.Known() {
		t.Errorf("no report yet, and yet %v", got.InFlight)
	}
	w.nextReport(e, 0, 0)
	w.expect(t, 0)
}

func TestAnEndWithoutABeginningLowersNothing(t *testing.T) {
	w, e := single()
	s := w.open(e)
	s.Begin(w.now, "1", one)
	s.End(w.now, "2", one, Outcome{Status: 200})
	w.expect(t, 1)
	s.End(w.now, "1", one, Outcome{ConnectFailed: true}) // the same id at another try
	w.expect(t, 1)
	s.End(w.now, "1", one, Outcome{Status: 200})
	w.expect(t, 0)
	s.End(w.now, "1", one, Outcome{Status: 200})
	w.expect(t, 0)
	if got := w.status(t); got.Unpaired != 2 || got.Received != 5 || got.OpenRequests != 0 {
		t.Errorf("%+v", got)
	}
}

func TestRequestsWithoutAnIDAreCountedByAddress(t *testing.T) {
	w, e := single()
	s := w.open(e)
	for range 3 {
		s.Begin(w.now, "", one)
	}
	s.End(w.now, "", one, Outcome{})
	w.expect(t, 2)
}

func TestADriftIsCorrectedByTheSecondReport(t *testing.T) {
	t.Run("of beginnings unseen", func(t *testing.T) {
		w, e := single()
		s := w.open(e)
		w.reporting(e)
		w.nextReport(e, 0, 0)
		w.nextReport(e, 3, 0)
		w.expect(t, 0) // it may be a race
		w.nextReport(e, 4, 0)
		w.expect(t, 3) // the smaller showing
		s.End(w.now, "unseen", one, Outcome{Status: 200})
		w.expect(t, 2)
		w.nextReport(e, 3, 0)
		w.expect(t, 3)
	})
	t.Run("of ends unseen", func(t *testing.T) {
		w, e := single()
		s := w.open(e)
		w.reporting(e)
		w.nextReport(e, 0, 0)
		for i := range 5 {
			s.Begin(w.now, strconv.Itoa(i), one)
		}
		w.nextReport(e, 2, 5)
		w.expect(t, 5)
		w.nextReport(e, 2, 0)
		w.expect(t, 2)
		if got := w.status(t).OpenRequests; got != 5 {
			t.Errorf("%d open, want 5: one more report before any is closed", got)
		}
		w.nextReport(e, 2, 0)
		w.expect(t, 2)
		if got := w.status(t).OpenRequests; got != 2 {
			t.Errorf("%d open, want 2: the oldest three are closed", got)
		}
		s.End(w.now, "4", one, Outcome{})
		w.expect(t, 1)
		s.End(w.now, "0", one, Outcome{}) // one of the closed ones
		w.expect(t, 1)
	})
}

func TestAnEventThatCrossesAReportMovesNothing(t *testing.T) {
	w, e := single()
	s := w.open(e)
	w.reporting(e)
	w.nextReport(e, 0, 0)
	for i, seen := range []uint64{0, 1, 2, 0, 1} { // late by one, early by one, …
		id := strconv.Itoa(i)
		s.Begin(w.now, id, one)
		w.expect(t, 1)
		w.nextReport(e, seen, 1)
		w.expect(t, 1)
		w.nextReport(e, 1, 0)
		s.End(w.now, id, one, Outcome{})
		w.expect(t, 0)
	}
	if got := w.status(t).Reconciled; got != 0 {
		t.Errorf("%d reconciled", got)
	}
}

// TestWhatEndedIsNoDriftAnyMore: a crossing that comes right after a drift was
// over must not look like its second showing.
func TestWhatEndedIsNoDriftAnyMore(t *testing.T) {
	t.Run("of requests unseen", func(t *testing.T) {
		w, e := single()
		s := w.open(e)
		w.reporting(e)
		w.nextReport(e, 2, 0)
		w.expect(t, 2) // the first report is trusted
		for range 2 {
			s.End(w.now, "unseen", one, Outcome{})
		}
		w.nextReport(e, 1, 1) // its beginning is under way
		w.expect(t, 0)
	})
	t.Run("of requests closed", func(t *testing.T) {
		w, e := single()
		s := w.open(e)
		w.reporting(e)
		w.nextReport(e, 0, 0)
		for range 3 {
			s.Begin(w.now, "1", one)
		}
		for range 3 {
			w.nextReport(e, 0, 0)
		}
		s.Begin(w.now, "2", one)
		w.nextReport(e, 0, 1) // its end is under way
		w.expect(t, 1)
	})
}

func TestABrokenStreamTakesItsRequestsAndOneReportBringsThemBack(t *testing.T) {
	w, e := single()
	first, second := w.open(e), w.open(e)
	w.reporting(e)
	w.nextReport(e, 0, 0)
	first.Begin(w.now, "1", one)
	second.Begin(w.now, "2", one)
	first.Close()
	w.expect(t, 1)
	w.nextReport(e, 2, 2) // it goes on
	w.expect(t, 2)
	second.End(w.now, "1", one, Outcome{}) // and ends
	w.expect(t, 1)
	second.End(w.now, "2", one, Outcome{})
	w.expect(t, 0)
}

func TestWithoutLogStreamsTheGaugeCounts(t *testing.T) {
	w, e := single()
	w.reporting(e)
	w.nextReport(e, 7, 9)
	w.expect(t, 7)
	s := w.open(e) // opens with the first entry, and knows nothing of the seven
	w.expect(t, 7)
	s.Begin(w.now, "8", one)
	w.expect(t, 8)
	s.End(w.now, "unseen", one, Outcome{})
	w.expect(t, 7)
	s.Close()
	w.expect(t, 7)
	w.nextReport(e, 0, 0) // left out
	w.expect(t, 0)
	w.nextReport(e, 2, 1)
	e.reports.Close()
	if got := w.read(t).InFlight; got.Known() || got.Value != 0 {
		t.Errorf("no Envoy is left, and yet %v", got)
	}
}

func TestTheNewestReportStreamCounts(t *testing.T) {
	w, e := single()
	w.reporting(e)
	old := e.reports
	w.nextReport(e, 3, 0)
	w.reporting(e)
	w.expect(t, 3)
	w.nextReport(e, 4, 0)
	old.Report(w.now, nil)
	w.expect(t, 4)
	old.Close()
	w.expect(t, 4)
}

// Two Envoys of one id behind one address: when the newer one leaves, the other counts.
func TestAnOlderReportStreamCountsAgainWhenTheNewerOneEnds(t *testing.T) {
	w, e := single()
	w.reporting(e)
	old := e.reports
	w.nextReport(e, 3, 0)
	w.reporting(e)
	w.nextReport(e, 4, 0)
	e.reports.Close()
	e.reports = old
	w.nextReport(e, 5, 0)
	w.expect(t, 5)
	w.nextReport(e, 6, 0)
	w.expect(t, 6)
	old.Close()
	if n := len(w.ticked().Envoys(w.now)); n != 0 {
		t.Errorf("%d Envoys are left", n)
	}
}

func TestASilentEnvoyCountsNoMore(t *testing.T) {
	w, e := single()
	w.open(e).Begin(w.now, "1", one)
	w.reporting(e)
	w.nextReport(e, 1, 1)
	w.after(3 * time.Second)
	w.expect(t, 1)
	w.after(300 * time.Millisecond)
	if got := w.read(t).InFlight; got.Known() {
		t.Errorf("silent, and yet %v", got)
	}
	if w.woken["chat"] == 0 {
		t.Error("no wake")
	}
	if got := w.ticked().Cluster("chat", w.now); got.Watching != 1 || got.Events != 0 || got.Reports != 0 {
		t.Errorf("%+v", got)
	}
	if got := w.status(t); !got.Silent {
		t.Errorf("%+v", got)
	}
	w.nextReport(e, 1, 0)
	w.expect(t, 1)
	if got := w.ticked().Cluster("chat", w.now); got.Events != 1 {
		t.Errorf("%+v", got)
	}
	if got := w.status(t); got.Silent {
		t.Errorf("%+v", got)
	}
}

func TestASlowReporterIsNotSilent(t *testing.T) {
	w, e := single()
	w.reporting(e)
	e.reports.Asked(5 * time.Second)
	e.reports.Report(w.now, nil)
	w.after(14 * time.Second)
	w.expect(t, 0)
	w.after(2 * time.Second)
	if got := w.read(t).InFlight; got.Known() {
		t.Errorf("three intervals passed, and yet %v", got)
	}
}

func TestAnIdleEnvoyWithoutReportsIsNotSilent(t *testing.T) {
	w, e := single()
	w.open(e).Begin(w.now, "1", one)
	w.after(time.Hour)
	w.expect(t, 1)
}

func TestReportsAddUpByAddress(t *testing.T) {
	w, e := single()
	w.reporting(e)
	part := func(n uint64) ClusterLoad {
		return ClusterLoad{Endpoints: []EndpointLoad{{Address: one, InProgress: n, Issued: n}}}
	}
	e.reports.Report(w.now, []ClusterLoad{part(1), part(2)})
	w.expect(t, 3)
	w.after(time.Second)
	e.reports.Report(w.now, []ClusterLoad{part(4), part(2)})
	w.expect(t, 6)
	if got := w.read(t).Proxies; got.Issued.Value != 6 || got.Ended.Value != 3 {
		t.Errorf("issued %v, ended %v; want 6 and 3", got.Issued, got.Ended)
	}
}

func TestForgedGaugesAreClamped(t *testing.T) {
	w, e := single()
	w.reporting(e)
	w.nextReport(e, 1<<63, 1<<63)
	w.nextReport(e, 1<<63, 1<<63)
	w.expect(t, maxInProgress)
	if got := w.read(t).Proxies.Issued.Value; got != 0 {
		t.Errorf("%v issued, want none of what there cannot be", got)
	}
}

// TestAReportHasNoMoreRequestsThanItsIntervalAllows: what is beyond that is none of the sums, nor of the rate, and is a
// dispute until ten seconds after the last such report.
func TestAReportHasNoMoreRequestsThanItsIntervalAllows(t *testing.T) {
	for name, c := range map[string]struct {
		load    EndpointLoad
		dropped uint64
		after   time.Duration // since the report before
		counts  bool
	}{
		"as many as six cores log":         {EndpointLoad{Issued: maxPerSecond}, 7, time.Second, true},
		"more":                             {EndpointLoad{Issued: maxPerSecond + 1}, 7, time.Second, false},
		"a hundred million":                {EndpointLoad{Issued: 100_000_000}, 7, time.Second, false},
		"more than a number holds":         {EndpointLoad{Issued: math.MaxUint64}, 7, time.Second, false},
		"of a longer interval":             {EndpointLoad{Issued: 3 * maxPerSecond}, 7, 3 * time.Second, true},
		"of a stream that was silent":      {EndpointLoad{Issued: 100_000_000}, 7, 1000 * time.Second, false},
		"the most of such a stream":        {EndpointLoad{Issued: 10 * maxPerSecond}, 7, 1000 * time.Second, true},
		"of a report right behind another": {EndpointLoad{Issued: maxPerSecond}, 7, time.Millisecond, true},
		"more that succeeded":              {EndpointLoad{Succeeded: maxPerSecond + 1}, 7, time.Second, false},
		"more errors":                      {EndpointLoad{Errors: maxPerSecond + 1}, 7, time.Second, false},
		"more that were dropped":           {EndpointLoad{Issued: 5}, maxPerSecond + 1, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			w, e := single()
			w.reporting(e)
			c.load.Address = one
			w.nextReport(e, 0, 0)
			w.after(c.after)
			e.reports.Report(w.now, []ClusterLoad{{Cluster: "chat", Dropped: c.dropped,
				Endpoints: []EndpointLoad{c.load}}})
			want, dropped := EndpointLoad{Address: one}, c.dropped
			if c.counts {
				want = c.load
			}
			if dropped > maxPerSecond {
				dropped = 0
			}
			got := w.read(t).Proxies
			if got.Issued.Value != float64(want.Issued) || got.Succeeded.Value != float64(want.Succeeded) ||
				got.Errors.Value != float64(want.Errors) || w.ledger.Cluster("chat", w.now).Dropped != dropped {
				t.Errorf("%+v, %d dropped, want %+v and %d", got, w.ledger.Cluster("chat", w.now).Dropped, want,
					dropped)
			}
			if rate := w.ledger.Envoys(w.now)[0].RequestRate; rate > float64(want.Issued)*1000 {
				t.Errorf("%v requests a second", rate)
			}
			var disputes []Dispute
			if !c.counts {
				disputes = []Dispute{{api.DisputeIssued, e.node, one, int(min(c.load.Issued, math.MaxInt32)), w.now}}
			}
			if diff := cmp.Diff(disputes, w.ledger.Disputes("chat", w.now)); diff != "" {
				t.Error(diff)
			}
			w.after(rowPause + time.Second)
			if left := w.ledger.Disputes("chat", w.now); len(left) > 0 {
				t.Errorf("%+v", left)
			}
		})
	}
}

func TestAnExactCountHasReportsFromAll(t *testing.T) {
	w, a := single()
	b := w.envoy("b")
	w.watch("chat", a, b)
	w.open(a)
	w.reporting(a)
	w.nextReport(a, 0, 0)
	if !w.read(t).Exact {
		t.Error("the only one that is counted reports: want exact")
	}
	w.open(b)
	if w.read(t).Exact {
		t.Error("b has a log and no reports: want not exact")
	}
	w.reporting(b)
	w.nextReport(b, 0, 0)
	if !w.read(t).Exact {
		t.Error("both report: want exact")
	}
	b.reports.Close()
	if w.read(t).Exact {
		t.Error("b's reports ended: want not exact")
	}
}

func TestACountIsAsOldAsWhatIsMissingInIt(t *testing.T) {
	w, events := single()
	reports := w.envoy("reports")
	w.watch("chat", events, reports)
	s := w.open(events)
	w.reporting(reports)
	w.nextReport(reports, 0, 0)
	for range 200 { // two rates in the ratio of 3 to 1
		w.after(50 * time.Millisecond)
		for range 3 {
			s.Begin(w.now, "1", one)
			s.End(w.now, "1", one, Outcome{})
		}
		reports.reports.Report(w.now, []ClusterLoad{{Endpoints: []EndpointLoad{{Address: one, Issued: 1}}}})
	}
	if age := w.read(t).InFlight.Age(w.now); age != 0 {
		t.Errorf("all reports are from now, and yet the age is %v", age)
	}
	w.after(800 * time.Millisecond)
	age := w.read(t).InFlight.Age(w.now)
	if want := 200 * time.Millisecond; age < want*9/10 || age > want*11/10 {
		t.Errorf("an age of %v, want about %v: a quarter of the requests comes with the report of 0.8 s ago", age, want)
	}
}

// An Envoy that has load reports and no traffic has no log stream either: it must not make the
// counts of the others look as late as its reports.
func TestAnIdleEnvoyDoesNotMakeTheCountsLate(t *testing.T) {
	w, busy := single()
	idle := w.envoy("idle")
	w.watch("chat", busy, idle)
	s := w.open(busy)
	w.reporting(idle)
	w.nextReport(idle, 0, 0)
	w.nextReport(idle, 0, 0)
	for range 200 {
		w.after(5 * time.Millisecond)
		s.Begin(w.now, "1", one)
		s.End(w.now, "1", one, Outcome{})
	}
	if got := w.ticked().Cluster("chat", w.now); got.Events != 1 || got.Reports != 1 ||
		got.Interval > time.Millisecond {
		t.Errorf("%+v, want next to no interval", got)
	}
	w.open(idle)
	if got := w.ticked().Cluster("chat", w.now); got.Interval != 0 {
		t.Errorf("%+v, want no interval", got)
	}
}

// A reader ignores a reading that is older than the one before.
func TestAReadingIsNewerThanTheOneBefore(t *testing.T) {
	w, events := single()
	reports := w.envoy("reports")
	w.watch("chat", events, reports)
	w.reporting(reports)
	w.nextReport(reports, 1, 10)
	w.nextReport(reports, 1, 10)
	s := w.open(events)
	for range 100 {
		w.after(9 * time.Millisecond)
		s.Begin(w.now, "1", one)
		s.End(w.now, "1", one, Outcome{})
	}
	before := w.read(t).InFlight
	s.Close() // what is left was reported 0.9 s ago
	w.after(10 * time.Millisecond)
	other := w.ticked().Read("chat", w.now, nil)[0].InFlight
	after := w.read(t).InFlight
	if !other.At.Before(before.At) {
		t.Errorf("as of %v for another reader, that did not see the one as of %v", other.At, before.At)
	}
	if !after.At.After(before.At) || after.At.After(w.now) {
		t.Errorf("as of %v, and before as of %v", after.At, before.At)
	}
}

// An idle cluster needs less of what its Envoys can take. One with an Envoy that reports nothing
// may have any traffic.
func TestAClusterIsIdleAfterTenSecondsWithoutARequest(t *testing.T) {
	w, e := single()
	w.cluster("other", "[::1]:80")
	w.watch("other", e)
	s := w.open(e)
	expect := func(when string, chat, other bool, busy int) {
		t.Helper()
		for name, idle := range map[string]bool{"chat": chat, "other": other} {
			got := w.ticked().Cluster(name, w.now)
			if got.Idle != idle || got.WidestBusy != busy || got.Widest != 2 {
				t.Errorf("%s: %s is idle %t, %d of %d have traffic; want %t, %d of 2", when, name, got.Idle,
					got.WidestBusy, got.Widest, idle, busy)
			}
		}
	}
	expect("at first", false, false, 2)
	for range 11 {
		w.after(time.Second)
		s.Begin(w.now, w.now.String(), one)
		w.ticked().Cluster("chat", w.now)
	}
	expect("after eleven seconds of traffic in one", false, true, 1)
	for range 11 {
		w.after(time.Second)
		w.ticked().Cluster("chat", w.now)
	}
	expect("after as many without", true, true, 0)
	s.Begin(w.now, "again", one)
	expect("at the next request", false, true, 1)
	w.watch("other", e, w.envoy("silent"))
	w.after(time.Second)
	expect("with one that reports nothing", false, false, 2)
	w.watch("other", e)
	for range 11 {
		w.after(time.Second)
		w.ticked().Cluster("chat", w.now)
	}
	expect("and when that has left", true, true, 0)
}

// Between two reports of a large fleet, up to a minute apart, no request is seen.
func TestAClusterWithTrafficIsNotIdleBetweenTwoReports(t *testing.T) {
	w, e := single()
	r := w.ledger.Reporting(e.node, time.Minute, w.now)
	idle := func(seconds int) (n int) {
		for range seconds {
			w.after(time.Second)
			if w.ticked().Cluster("chat", w.now).Idle {
				n++
			}
		}
		return n
	}
	r.Report(w.now, nil)
	for range 3 {
		if got := idle(60); got > 0 {
			t.Errorf("idle for %d s of a minute of which the report has a thousand requests", got)
		}
		r.Report(w.now, []ClusterLoad{{Cluster: "chat", Endpoints: []EndpointLoad{{Address: one, Issued: 1000}}}})
	}
	for range 3 {
		idle(60)
		r.Report(w.now, nil)
	}
	if !w.ticked().Cluster("chat", w.now).Idle {
		t.Error("not idle after three reports without a request")
	}
}

// Of a hundred clusters some turn idle or busy at any time. Each time to look again at all
// Envoys of all of them would take a tenth of a core, with the lock held.
func TestTrafficOfOneClusterChangesNoBasis(t *testing.T) {
	w, e := single()
	w.cluster("other", "[::1]:80")
	w.watch("other", e)
	s := w.open(e)
	w.ticked().Cluster("chat", w.now)
	before, changes := w.ledger.epoch, 0
	for round := range 3 {
		for range 12 {
			w.after(time.Second)
			w.ticked().Cluster("chat", w.now)
		}
		if got := w.ticked().Cluster("other", w.now); got.BusyClusters == 0 && got.Idle {
			changes++
		}
		s.Begin(w.now, strconv.Itoa(round), one)
		if got := w.ticked().Cluster("other", w.now); got.BusyClusters == 1 && got.Idle {
			changes++
		}
		w.mustBeSound(t)
	}
	if changes != 6 || w.ledger.epoch != before {
		t.Errorf("%d changes, want 6; epoch %d, before %d", changes, w.ledger.epoch, before)
	}
}

// Requests that reports showed first add nothing to those issued when the log shows as many.
func TestAClusterIsBusyAtItsFirstRequestWhateverWasOvercounted(t *testing.T) {
	w, e := single()
	s := w.open(e)
	w.reporting(e)
	w.nextReport(e, 0, 0)
	w.nextReport(e, 0, 5)
	w.nextReport(e, 0, 0)
	for i := range 5 { // late
		s.Begin(w.now, strconv.Itoa(i), one)
		s.End(w.now, strconv.Itoa(i), one, Outcome{Status: 200})
	}
	for range 15 {
		w.nextReport(e, 0, 0)
		w.ticked().Cluster("chat", w.now)
	}
	if !w.ticked().Cluster("chat", w.now).Idle {
		t.Fatal("not idle after fifteen seconds without a request")
	}
	before := w.read(t).Proxies.Issued.Value
	s.Begin(w.now, "first", one)
	if got := w.read(t).Proxies.Issued.Value; got != before {
		t.Fatalf("%v issued, want %v: nothing was overcounted", got, before)
	}
	if w.ticked().Cluster("chat", w.now).Idle {
		t.Error("idle with a request in flight that just began")
	}
}

// With load reports only, the first report with a request shows it.
func TestAClusterIsBusyAtItsFirstRequestByReportsOnly(t *testing.T) {
	w, e := single()
	w.reporting(e)
	for range 15 {
		w.nextReport(e, 0, 0)
		w.ticked().Cluster("chat", w.now)
	}
	if !w.ticked().Cluster("chat", w.now).Idle {
		t.Fatal("not idle after fifteen seconds without a request")
	}
	w.nextReport(e, 1, 1)
	if w.ticked().Cluster("chat", w.now).Idle {
		t.Error("idle with a request in flight that just began")
	}
}

// The endpoints of all clusters are set whenever those of one change.
func TestTheSameMembersWakeNoLoop(t *testing.T) {
	w, _ := single()
	woken := w.woken["chat"]
	w.cluster("chat", one)
	if got := w.woken["chat"] - woken; got != 0 {
		t.Errorf("woken %d times by the same endpoints", got)
	}
	w.cluster("chat", one, "10.1.0.2:80")
	w.cluster("chat", "10.1.0.2:80", one)
	if got := w.woken["chat"] - woken; got != 2 {
		t.Errorf("woken %d times by another set and another order, want 2", got)
	}
}

func TestWatchersAndMembersComeAndGo(t *testing.T) {
	w, e := single()
	w.watch("chat")
	s := w.open(e)
	s.Begin(w.now, "1", one)
	if got := w.read(t); got.InFlight.Known() || got.InFlight.Value != 0 {
		t.Errorf("no Envoy watches, and yet %v", got.InFlight)
	}
	w.ticked()
	if got := w.status(t); got.Ignored != 1 {
		t.Errorf("%+v", got)
	}
	w.watch("chat", e)
	w.expect(t, 1) // what it reported before counts
	if got := w.read(t).Proxies.Issued.Value; got != 0 {
		t.Errorf("%v issued: the sums start with the watching", got)
	}
	w.cluster("other", "[::1]:80", one)
	w.watch("other", e)
	for _, name := range []string{"chat", "other"} {
		if got := w.ticked().Cluster(name, w.now).Clusters; got != 2 {
			t.Errorf("%s: its Envoy watches %d clusters, want 2", name, got)
		}
	}
	s.Begin(w.now, "2", one) // whichever it went through
	w.expect(t, 2)
	both := w.ticked().Read("other", w.now, nil)
	if both[0].InFlight.Value != 0 || both[1].InFlight.Value != 1 || both[0].Address != "[::1]:80" {
		t.Errorf("%+v", both)
	}
	w.cluster("chat")
	w.mustBeSound(t)
	w.cluster("chat", one)
	w.expect(t, 0) // what came before it was a member is not its own
	w.ledger.Forget("other")
	delete(w.clusters, "other")
	w.expect(t, 0)
	w.ledger.Forget("other")
	w.ledger.Forget("chat")
	if got := w.ticked().Read("chat", w.now, nil); got != nil {
		t.Errorf("forgotten, and yet %v", got)
	}
	if l := w.ledger; l.accounts != 0 || l.open != 0 || len(l.addresses) != 0 || len(l.watching) != 0 {
		t.Errorf("left: %d accounts, %d requests, %d addresses, %d watching", l.accounts, l.open, len(l.addresses),
			len(l.watching))
	}
}

func TestMembersAreReadInTheOrderGiven(t *testing.T) {
	w := newWorld()
	for _, order := range [][]string{{"10.0.0.2:1", "10.0.0.1:1"}, {"10.0.0.1:1", "10.0.0.3:1", "10.0.0.2:1"},
		{"x:1", "x:1"}} {
		w.cluster("chat", order...)
		var got []string
		for _, c := range w.ticked().Read("chat", w.now, nil) {
			got = append(got, c.Address)
		}
		if diff := cmp.Diff(order, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestAnAddressIsOneHoweverItIsWritten(t *testing.T) {
	w, e := single()
	w.cluster("chat", "[2001:DB8:0::1]:80")
	w.open(e).Begin(w.now, "1", "[2001:db8::1]:80")
	if got := w.read(t); got.InFlight.Value != 1 || got.Address != "[2001:DB8:0::1]:80" {
		t.Errorf("%+v", got)
	}
}

func TestSums(t *testing.T) {
	cases := []struct {
		name string
		o    Outcome
		want flight.Sums
	}{
		{"an answer", Outcome{Status: 200, Latency: 2 * time.Second, Bytes: 9},
			flight.Sums{Ended: 1, Succeeded: 1, Answered: 1, Latency: 2}},
		{"a redirect", Outcome{Status: 307, Latency: time.Second},
			flight.Sums{Ended: 1, Succeeded: 1, Answered: 1, Latency: 1}},
		{"a broken server", Outcome{Status: 500, Latency: time.Second, Bytes: 1},
			flight.Sums{Ended: 1, Failed: 1, Answered: 1, Latency: 1}},
		{"a full queue", Outcome{Status: 503, Latency: time.Second},
			flight.Sums{Ended: 1, Failed: 1, Answered: 1, Latency: 1}},
		{"a full engine", Outcome{Status: 429, Latency: time.Second},
			flight.Sums{Ended: 1, Errors: 1, Answered: 1, Latency: 1}},
		{"a failed generation", Outcome{Status: 424, Latency: time.Second},
			flight.Sums{Ended: 1, Errors: 1, Answered: 1, Latency: 1}},
		{"a model that is gone", Outcome{Status: 404, Latency: time.Second},
			flight.Sums{Ended: 1, Errors: 1, Answered: 1, Latency: 1}},
		{"a request too late", Outcome{Status: 408, Latency: time.Second},
			flight.Sums{Ended: 1, Errors: 1, Answered: 1, Latency: 1}},
		{"the client's mistake", Outcome{Status: 400, Latency: time.Second},
			flight.Sums{Ended: 1, Errors: 1, Answered: 1, Latency: 1}},
		{"a gRPC server that is not available", Outcome{Status: 200, GRPCStatus: 14, Latency: time.Second},
			flight.Sums{Ended: 1, Errors: 1, Answered: 1, Latency: 1}},
		{"a gRPC error of the server", Outcome{Status: 200, GRPCStatus: 13, Latency: time.Second},
			flight.Sums{Ended: 1, Errors: 1, Answered: 1, Latency: 1}},
		{"a gRPC call of a model that is gone", Outcome{Status: 200, GRPCStatus: 5, Latency: time.Second},
			flight.Sums{Ended: 1, Errors: 1, Answered: 1, Latency: 1}},
		{"a gRPC call that its client gave up", Outcome{Status: 200, GRPCStatus: 1, Latency: time.Second},
			flight.Sums{Ended: 1, Answered: 1, Latency: 1}},
		{"a gRPC error of a broken proxy", Outcome{Status: 502, GRPCStatus: 14, Latency: time.Second},
			flight.Sums{Ended: 1, Failed: 1, Answered: 1, Latency: 1}},
		{"no connection", Outcome{ConnectFailed: true}, flight.Sums{Failed: 1}},
		{"a reset in the answer", Outcome{Status: 200, Latency: time.Second, Bytes: 4, Reset: true},
			flight.Sums{Ended: 1, Failed: 1}},
		{"the client went away", Outcome{Status: 200}, flight.Sums{Ended: 1}},
		{"a timeout", Outcome{}, flight.Sums{Ended: 1}},
		{"a forged latency", Outcome{Status: 200, Latency: 1 << 62},
			flight.Sums{Ended: 1, Succeeded: 1, Answered: 1, Latency: maxLatency.Seconds()}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w, e := single()
			s := w.open(e)
			if !c.o.ConnectFailed {
				s.Begin(w.now, "1", one)
				c.want.Issued = 1
			}
			s.End(w.now, "1", one, c.o)
			at := func(v float64) weighting.Reading { return weighting.Reading{Value: v, At: w.now} }
			want := weighting.ProxyReport{
				Hashed: weighting.Reading{At: w.now},
				Issued: at(float64(c.want.Issued)), Ended: at(float64(c.want.Ended)),
				Failed: at(float64(c.want.Failed)),
				Errors: at(float64(c.want.Errors)), Succeeded: at(float64(c.want.Succeeded)),
				Answered: at(float64(c.want.Answered)), LatencySeconds: at(c.want.Latency), Sized: at(0),
				SizedBytes: at(0), Refused: at(0), RefusedBytes: at(0),
			}
			if diff := cmp.Diff(want, w.read(t).Proxies); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatOnlyLogsShowIsUnknownFromReportsOnly(t *testing.T) {
	w, e := single()
	w.reporting(e)
	w.nextReport(e, 1, 0)
	w.nextReport(e, 1, 4)
	got := w.read(t).Proxies
	if got.Issued.Value != 4 || got.Ended.Value != 4 || !got.Issued.Known() {
		t.Errorf("issued %v, ended %v; want 4 and 4", got.Issued, got.Ended)
	}
	if got.Failed.Known() || got.Answered.Known() || got.LatencySeconds.Known() {
		t.Errorf("%+v", got)
	}
}

func TestWhatOnlyLogsShowIsPartialWhereOneHasNone(t *testing.T) {
	w, a := single()
	b := w.envoy("b")
	w.watch("chat", a, b)
	w.open(a)
	if w.read(t).Proxies.Partial {
		t.Error("the only one that is counted has a log: want all of it")
	}
	w.reporting(b)
	w.nextReport(b, 1, 0)
	if got := w.read(t).Proxies; !got.Partial || !got.Answered.Known() {
		t.Errorf("b has reports only: %+v, want partial", got)
	}
	w.open(b)
	if w.read(t).Proxies.Partial {
		t.Error("both have a log: want all of it")
	}
}

func TestRequestsIssuedUnseenAreAddedAfterTwoReports(t *testing.T) {
	w, e := single()
	s := w.open(e)
	w.reporting(e)
	w.nextReport(e, 0, 1000) // of a time before this process
	issued := func(want float64) {
		t.Helper()
		if got := w.read(t).Proxies.Issued.Value; got != want {
			t.Errorf("%v issued, want %v", got, want)
		}
	}
	s.Begin(w.now, "1", one)
	w.nextReport(e, 0, 6) // five were not seen
	issued(1)
	w.nextReport(e, 0, 0)
	issued(6)
	s.Begin(w.now, "2", one) // crosses the report
	w.nextReport(e, 0, 0)
	w.nextReport(e, 0, 1)
	w.nextReport(e, 0, 0)
	issued(7)
}

func TestALostReportHidesNoRequestsOfTheNext(t *testing.T) {
	w, e := single()
	s := w.open(e)
	w.reporting(e)
	w.nextReport(e, 0, 0)
	for range 3 {
		s.Begin(w.now, "1", one)
	}
	w.nextReport(e, 0, 0) // without the contents of the lost one
	w.nextReport(e, 0, 0)
	s.Begin(w.now, "2", one)
	w.nextReport(e, 0, 3) // two were not seen
	w.nextReport(e, 0, 0)
	if got := w.read(t).Proxies.Issued.Value; got != 6 {
		t.Errorf("%v issued, want 6", got)
	}
}

func TestWhatALogShowsLateIsCountedOnce(t *testing.T) {
	w, e := single()
	s := w.open(e)
	w.reporting(e)
	w.nextReport(e, 0, 0)
	issued := func(want float64) {
		t.Helper()
		if got := w.read(t).Proxies.Issued.Value; got != want {
			t.Errorf("%v issued, want %v", got, want)
		}
	}
	w.nextReport(e, 0, 6)
	w.nextReport(e, 0, 0)
	issued(6) // two reports in a row, and no word of them from the log
	for range 4 {
		s.Begin(w.now, "1", one)
	}
	issued(10) // four of them, or four more
	w.nextReport(e, 0, 0)
	w.nextReport(e, 0, 0)
	issued(10) // four of them: overcounted
	for range 3 {
		s.Begin(w.now, "2", one)
	}
	issued(10)
	w.nextReport(e, 0, 3)
	for range 3 {
		s.Begin(w.now, "3", one)
	}
	issued(12)
	w.nextReport(e, 0, 3)
	w.nextReport(e, 0, 0)
	issued(12) // 6 + 3 + 3
}

func TestALagShorterThanThePeriodAddsNothing(t *testing.T) {
	w, e := single()
	s := w.open(e)
	w.reporting(e)
	w.report(e)
	for i := range 100 { // at 10 reports a second, entries that come half a second late
		w.after(100 * time.Millisecond)
		if i < 5 {
			e.issued[one] += 20
		}
		if i >= 5 && i < 10 {
			for range 20 {
				s.Begin(w.now, "1", one)
			}
		}
		w.report(e)
	}
	if got := w.read(t).Proxies.Issued.Value; got != 100 {
		t.Errorf("%v issued, want 100", got)
	}
}

func TestDroppedRequestsAreCountedForWatchedClusters(t *testing.T) {
	w, e := single()
	w.cluster("other", "10.1.0.9:80")
	w.reporting(e)
	loads := []ClusterLoad{{Cluster: "chat", Dropped: 3}, {Cluster: "chat/failsafe", Dropped: 4},
		{Cluster: "other", Dropped: 5}, {Cluster: "?", Dropped: 6}}
	e.reports.Report(w.now, loads)
	if got := w.ticked().Cluster("chat", w.now).Dropped; got != 0 {
		t.Errorf("%d dropped by the first report, want 0", got)
	}
	e.reports.Report(w.now, loads)
	if got := w.ticked().Cluster("chat", w.now).Dropped; got != 7 {
		t.Errorf("%d dropped, want 7", got)
	}
	if got := w.ticked().Cluster("other", w.now).Dropped; got != 0 {
		t.Errorf("%d dropped of a cluster that is not watched, want 0", got)
	}
}

// attempt returns an entry of one attempt of a request: its beginning, or its end.
func attempt(id string, ended bool, received uint64) Event {
	ev := Event{Ended: ended, ID: []byte(id), Address: []byte(one), Outcome: Outcome{Bytes: received}}
	if ended {
		ev.Status, ev.Latency = 200, time.Second
	}
	return ev
}

func TestTheBytesOfAnAttemptAreItsOwn(t *testing.T) {
	cases := []struct {
		name   string
		events []Event
		want   float64
	}{
		{"one attempt", []Event{attempt("1", false, 0), attempt("1", true, 9)}, 9},
		{"two in a row", []Event{attempt("1", false, 0), attempt("1", true, 9), attempt("2", false, 9),
			attempt("2", true, 30)}, 21},
		{"two that overlap", []Event{attempt("1", false, 0), attempt("2", false, 5), attempt("1", true, 9),
			attempt("2", true, 12)}, 7},
		{"fewer than before", []Event{attempt("1", false, 9), attempt("1", true, 2)}, 0},
		{"no beginning", []Event{attempt("1", true, 9)}, 9},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w, e := single()
			w.ledger.SetAlpha("chat", 1) // the last attempt is all
			w.open(e).Events(w.now, c.events)
			if got := w.read(t).ResponseBytes.Value; got != c.want {
				t.Errorf("%v bytes, want %v", got, c.want)
			}
		})
	}
}

// TestTheBytesOfAllAttemptsAreWhatWasReceived: Envoy adds up over the attempts of a
// request, one after the other; other requests are in between.
func TestTheBytesOfAllAttemptsAreWhatWasReceived(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, e := single()
		w.ledger.SetAlpha("chat", 1) // the last attempt is all
		s := w.open(e)
		type request struct {
			received uint64
			attempts int
			open     bool
		}
		requests := make([]request, 3)
		want, got := uint64(0), 0.0
		for range rapid.IntRange(0, 30).Draw(t, "events") {
			i := rapid.IntRange(0, len(requests)-1).Draw(t, "request")
			r := &requests[i]
			if r.open {
				n := rapid.Uint64Range(0, 100).Draw(t, "bytes")
				want, r.received = want+n, r.received+n
			} else {
				r.attempts++
			}
			s.Events(w.now, []Event{attempt(fmt.Sprint(i, "/", r.attempts), r.open, r.received)})
			if r.open {
				got += w.ticked().Read("chat", w.now, nil)[0].ResponseBytes.Value
			}
			r.open = !r.open
		}
		if got != float64(want) {
			t.Fatalf("%v bytes, want %d", got, want)
		}
	})
}

// TestTheMedianWatcherDecidesHowManyClustersCount: one that watches everything does not slow the others down.
func TestTheMedianWatcherDecidesHowManyClustersCount(t *testing.T) {
	w, e := single()
	for i := range 10 {
		w.cluster(fmt.Sprint("other-", i), fmt.Sprintf("10.9.0.%d:80", i))
	}
	greedy := w.envoy("greedy")
	for i := range 10 {
		w.watch(fmt.Sprint("other-", i), greedy)
	}
	w.watch("chat", e, greedy)
	if got := w.ticked().Cluster("chat", w.now); got.Clusters != 1 || got.Widest != 11 {
		t.Errorf("with one of two: %d clusters, %d at most", got.Clusters, got.Widest)
	}
	other := w.envoy("other")
	for i := range 5 {
		w.watch(fmt.Sprint("other-", i), greedy, other)
	}
	w.watch("chat", e, greedy, other)
	if got := w.ticked().Cluster("chat", w.now); got.Clusters != 6 || got.Widest != 11 {
		t.Errorf("with two of three: %d clusters, %d at most", got.Clusters, got.Widest)
	}
}
