package ledger

import (
	"fmt"
	"strconv"
	"testing"
	"time"
)

// traffic runs requests of a quarter of a second at a rate for a while, every 10 ms, and sends a
// report each second if there are reports. What the Envoy does not log in its
// mode is not logged.
func (w *world) traffic(e *testEnvoy, perSecond int, d time.Duration) {
	const tick = 10 * time.Millisecond
	until, due, id := w.now.Add(d), 0.0, 0
	for w.now.Before(until) {
		w.after(tick)
		_, modes := w.ledger.Modes()
		logged := modes[e.node] != ModeReports
		for due += float64(perSecond) * tick.Seconds(); due >= 1; due-- {
			id++
			w.begin(e, e.streams[0], strconv.Itoa(id%1000), one, logged)
			for len(e.open) > perSecond/4 {
				w.end(e, e.streams[0], 0, logged)
			}
		}
		if e.reports != nil && w.now.Sub(start)%time.Second == 0 {
			w.report(e)
		}
	}
}

func (w *world) mode(e *testEnvoy) Mode {
	_, modes := w.ledger.Modes()
	return modes[e.node]
}

// loggedAndReported returns an Envoy with a log and load reports, whose log comes in batches above 300
// requests a second and is off above 1,000.
func loggedAndReported() (*world, *testEnvoy, *Stream) {
	w, e := single()
	w.ledger.SetModeThresholds(300, 1000)
	s := w.open(e)
	w.reporting(e)
	return w, e, s
}

// batching returns an Envoy without load reports, whose log comes in batches.
func batching(t *testing.T) (*world, *testEnvoy, *Stream) {
	t.Helper()
	w, e := single()
	w.ledger.SetModeThresholds(300, 0)
	s := w.open(e)
	w.traffic(e, 600, 5*time.Second)
	if got := w.mode(e); got != ModeBatched {
		t.Fatalf("%v, want batched", got)
	}
	return w, e, s
}

func TestABusyEnvoyBatchesAndThenReports(t *testing.T) {
	w, e, _ := loggedAndReported()
	generation := w.ledger.ModeGeneration()
	for _, step := range []struct {
		perSecond int
		lasting   time.Duration
		want      Mode
	}{
		{200, 10 * time.Second, ModeEvents},
		{400, 10 * time.Second, ModeBatched},
		{250, 20 * time.Second, ModeBatched}, // above 0.7 · 300
		{2000, 10 * time.Second, ModeReports},
		{800, 20 * time.Second, ModeReports}, // above 0.7 · 1000
		{500, 3 * time.Second, ModeReports},  // not for 5 s yet
		{500, 10 * time.Second, ModeBatched},
		{100, 20 * time.Second, ModeEvents},
	} {
		w.traffic(e, step.perSecond, step.lasting)
		if got := w.mode(e); got != step.want {
			t.Fatalf("%d requests/s for %v: %v, want %v", step.perSecond, step.lasting, got, step.want)
		}
		w.mustBeSound(t)
		if got := w.status(t); got.RequestRate < 0.7*float64(step.perSecond) ||
			got.RequestRate > 1.3*float64(step.perSecond) {
			t.Errorf("%d requests/s are taken for %.0f", step.perSecond, got.RequestRate)
		}
	}
	if got := w.ledger.ModeGeneration() - generation; got != 4 {
		t.Errorf("%d changes of the mode, want 4", got)
	}
}

// TestAChangeOfTheModeLeavesNoDrift: two reports after going over, and at each
// report before that as far as reports go, counts are the truth.
func TestAChangeOfTheModeLeavesNoDrift(t *testing.T) {
	w, e, _ := loggedAndReported()
	for round := range 3 {
		for _, perSecond := range []int{1500, 100} {
			w.traffic(e, perSecond, 15*time.Second)
			if want := map[int]Mode{1500: ModeReports, 100: ModeEvents}[perSecond]; w.mode(e) != want {
				t.Fatalf("round %d: %v, want %v", round, w.mode(e), want)
			}
			w.report(e)
			w.mustBeTrue(t)
			w.mustBeSound(t)
		}
	}
}

func TestACountGoesOverWithTheReport(t *testing.T) {
	w, e, s := loggedAndReported()
	w.nextReport(e, 0, 0)
	for i := range 4000 {
		s.Begin(w.now, fmt.Sprint(i), one)
	}
	if w.mode(e) != ModeBatched {
		t.Fatalf("%v, want batched: there is no report to go over with", w.mode(e))
	}
	w.expect(t, 4000)
	w.nextReport(e, 3900, 4000)
	if w.mode(e) != ModeReports {
		t.Fatalf("%v, want reports", w.mode(e))
	}
	w.expect(t, 3900)
	if got := w.status(t).OpenRequests; got != 0 {
		t.Errorf("%d open: their ends will not be logged", got)
	}
	s.Begin(w.now, "a straggler", one)
	s.End(w.now, "1", one, Outcome{})
	w.expect(t, 3900)
	if at := w.read(t).InFlight.At; !at.Equal(w.now) {
		t.Errorf("as of %v, want the report's %v", at, w.now)
	}
}

func TestWithoutReportsBatchedIsTheLastMode(t *testing.T) {
	w, e := single()
	w.ledger.SetModeThresholds(300, 1000)
	w.open(e)
	w.traffic(e, 1300, 10*time.Second)
	if got := w.mode(e); got != ModeBatched {
		t.Errorf("%v, want batched", got)
	}
	w.mustBeTrue(t)
	w.reporting(e)
	w.traffic(e, 1300, 3*time.Second)
	if got := w.mode(e); got != ModeReports {
		t.Errorf("%v, want reports", got)
	}
	e.reports.Close()
	if got := w.mode(e); got != ModeBatched {
		t.Errorf("%v after the reports ended, want batched", got)
	}
}

func TestThresholdsOfZeroAreNever(t *testing.T) {
	w, e := single()
	w.open(e)
	w.reporting(e)
	w.traffic(e, 1300, 8*time.Second)
	if got := w.mode(e); got != ModeEvents {
		t.Errorf("%v, want events", got)
	}
	w.ledger.SetModeThresholds(0, 1000)
	w.traffic(e, 1300, 8*time.Second)
	if got := w.mode(e); got != ModeReports {
		t.Errorf("%v, want reports", got)
	}
}

func TestAnEnvoyThatFellQuietLeavesTheBatch(t *testing.T) {
	w, e, _ := batching(t)
	for range 10 {
		w.after(time.Second)
		w.read(t)
	}
	if got := w.mode(e); got != ModeEvents {
		t.Errorf("%v, want events", got)
	}
}

func TestAnEnvoyWithTooManyOpenRequestsGoesOverToReports(t *testing.T) {
	w, e := single()
	s := w.open(e)
	for i := range maxOpen + 10 {
		s.Begin(w.now, strconv.Itoa(i), one)
	}
	w.expect(t, maxOpen)
	if got := w.status(t); got.Mode != ModeEvents {
		t.Errorf("%+v", got)
	}
	w.reporting(e)
	w.nextReport(e, maxOpen+10, 0)
	w.expect(t, maxOpen+10)
	if got := w.mode(e); got != ModeReports {
		t.Errorf("%v, want reports", got)
	}
	for range 10 { // it stays while there are as many
		w.nextReport(e, maxOpen+10, 10)
	}
	if got := w.mode(e); got != ModeReports {
		t.Errorf("%v, want reports", got)
	}
	for range 10 {
		w.nextReport(e, 10, 10)
	}
	if got := w.mode(e); got != ModeEvents {
		t.Errorf("%v, want events", got)
	}
	w.expect(t, 10)
}

func TestAnEnvoyThatLeftIsInNoMode(t *testing.T) {
	w, _, s := batching(t)
	before := w.ledger.ModeGeneration()
	s.Close()
	after, modes := w.ledger.Modes()
	if len(modes) != 0 || after == before {
		t.Errorf("%v, generation %d as before", modes, after)
	}
}

func TestStrangersLeaveRoom(t *testing.T) {
	w, e := single()
	for i := range maxEnvoys {
		w.ledger.Open(Envoy{NodeID: strconv.Itoa(i), Host: "10.9.9.9"}, w.now).Begin(w.now, "1", one)
	}
	if got := len(w.ledger.envoys); got != maxEnvoys/strangers {
		t.Errorf("%d strangers, want %d", got, maxEnvoys/strangers)
	}
	w.open(e).Begin(w.now, "1", one)
	w.expect(t, 1)
	w.ledger.Reporting(Envoy{NodeID: "one too many"}, time.Second, w.now).Report(w.now, nil)
	w.mustBeSound(t)
}

// TestWhichEnvoysHaveReportsOnly: of an Envoy whose log was switched off, and of one that
// has requests and no log; not of one without requests, whose log would open with the first.
func TestWhichEnvoysHaveReportsOnly(t *testing.T) {
	w, e := single()
	w.ledger.SetModeThresholds(300, 1000)
	expect := func(when string, want bool) {
		t.Helper()
		w.mustBeSound(t)
		all, reportsOnly, _ := w.ledger.ReportersWith(e.node)
		if reportsOnly != want || all.ReportsOnly+all.WithAccessLog != 1 || all.ReportsOnly == 1 != want {
			t.Errorf("%s: reports only %t, %+v; want %t", when, reportsOnly, all, want)
		}
	}
	expect("no report yet", false)
	w.reporting(e)
	w.nextReport(e, 0, 0)
	expect("no requests", false)
	w.nextReport(e, 1, 0)
	expect("requests and no log", true)
	w.nextReport(e, 0, 0)
	expect("no requests for now, and still no log", true)
	w.open(e)
	expect("a log", false)
	w.traffic(e, 2000, 10*time.Second)
	expect("too busy for its log", true)
	w.traffic(e, 100, 20*time.Second)
	expect("no longer too busy", false)
	e.streams[0].Close()
	w.nextReport(e, 0, 0)
	expect("no log and no requests", false)
	w.nextReport(e, 2, 2)
	expect("its log broke", true)
}

// TestEnvoysThatWatchNothingMakeNoOtherReportLessOften: whatever node ids are made up, an Envoy
// that watches a cluster is asked as if they were not there.
func TestEnvoysThatWatchNothingMakeNoOtherReportLessOften(t *testing.T) {
	w, e := single()
	expect := func(when string, node Envoy, want Reporters, watching bool) {
		t.Helper()
		w.mustBeSound(t)
		got, _, watches := w.ledger.ReportersWith(node)
		if got != want || watches != watching {
			t.Errorf("%s, %s is one of %+v and watches a cluster: %t; want %+v, %t", when, node.NodeID, got, watches,
				want, watching)
		}
	}
	w.reporting(e)
	for i := range 100 {
		madeUp := Envoy{NodeID: strconv.Itoa(i), Host: "10.9.9.9"}
		for range 8 {
			w.ledger.Reporting(madeUp, time.Second, w.now)
		}
		expect("made up", madeUp, Reporters{WithAccessLog: 2}, false)
	}
	expect("with others made up", e.node, Reporters{WithAccessLog: 1}, true)

	late := w.envoy("late")
	expect("no report yet", late.node, Reporters{WithAccessLog: 2}, true)
	w.reporting(late)
	expect("not subscribed yet", late.node, Reporters{WithAccessLog: 2}, false)
	expect("when another has not subscribed yet", e.node, Reporters{WithAccessLog: 1}, true)
	w.watch("chat", e, late)
	expect("subscribed", late.node, Reporters{WithAccessLog: 2}, true)
	expect("when another subscribed", e.node, Reporters{WithAccessLog: 2}, true)
	w.watch("chat", e)
	expect("when another has left", e.node, Reporters{WithAccessLog: 1}, true)
	w.ledger.Forget("chat")
	delete(w.watchers, "chat")
	delete(w.clusters, "chat")
	expect("when its only cluster is gone", e.node, Reporters{WithAccessLog: 1}, false)
	w.mustBeSound(t)
}

// TestTheLogOfAnEnvoyWithOtherTrafficStaysOff: its entries cost the Envoy as much whatever
// the requests are for. Were the rate by the reports only that of the clusters here, the log
// would be switched on again after a few seconds, and off again, for ever.
func TestTheLogOfAnEnvoyWithOtherTrafficStaysOff(t *testing.T) {
	for _, c := range []struct {
		name      string
		logged    bool // the other requests, too
		perSecond int  // to the endpoint
		want      Mode
	}{
		{"which the log shows", true, 100, ModeReports},
		{"which it does not", false, 100, ModeEvents},
		{"which it does not, and as much of its own", false, 600, ModeReports},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, e := single()
			w.ledger.SetModeThresholds(200, 500)
			s := w.open(e)
			w.reporting(e)
			before, id := w.ledger.ModeGeneration(), 0
			for tick := 1; tick <= 12_000; tick++ {
				w.after(10 * time.Millisecond)
				for range c.perSecond / 100 {
					id++
					if w.mode(e) != ModeReports {
						s.Begin(w.now, strconv.Itoa(id), one)
						s.End(w.now, strconv.Itoa(id), one, Outcome{Status: 200})
					}
				}
				for range 5 {
					if c.logged && w.mode(e) != ModeReports {
						s.Begin(w.now, "other", "10.9.9.9:80")
					}
				}
				if tick%100 == 0 {
					e.reports.Report(w.now, []ClusterLoad{
						{Cluster: "chat", Endpoints: []EndpointLoad{{Address: one, Issued: uint64(c.perSecond)}}},
						{Cluster: "other", Endpoints: []EndpointLoad{{Address: "10.9.9.9:80", Issued: 500}}},
					})
				}
			}
			if got := w.mode(e); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
			if got := w.ledger.ModeGeneration() - before; got > 2 {
				t.Errorf("%d changes of the mode in two minutes of the same traffic", got)
			}
		})
	}
}

// TestALogThatNoLongerShowsOtherTrafficIsNotKeptOffByIt: what it showed is learned again
// each time that it is on.
func TestALogThatNoLongerShowsOtherTrafficIsNotKeptOffByIt(t *testing.T) {
	w, e := single()
	w.ledger.SetModeThresholds(0, 500)
	s := w.open(e)
	w.reporting(e)
	id := 0
	second := func(own, other uint64, logged bool) {
		for range own {
			id++
			if w.mode(e) != ModeReports {
				s.Begin(w.now, strconv.Itoa(id), one)
				s.End(w.now, strconv.Itoa(id), one, Outcome{Status: 200})
			}
		}
		for range other {
			if logged && w.mode(e) != ModeReports {
				s.Begin(w.now, "other", "10.9.9.9:80")
			}
		}
		w.after(time.Second)
		e.reports.Report(w.now, []ClusterLoad{
			{Cluster: "chat", Endpoints: []EndpointLoad{{Address: one, Issued: own}}},
			{Cluster: "other", Endpoints: []EndpointLoad{{Address: "10.9.9.9:80", Issued: other}}},
		})
	}
	for _, step := range []struct {
		own, other uint64
		logged     bool
		want       Mode
	}{
		{10, 1000, true, ModeReports},
		{10, 0, true, ModeEvents},
		{1000, 1000, false, ModeReports},
		{10, 1000, false, ModeEvents},
	} {
		for range 20 {
			second(step.own, step.other, step.logged)
		}
		if got := w.mode(e); got != step.want {
			t.Fatalf("%+v: %v", step, got)
		}
	}
}

// TestABatchedCountIsAsOldAsItsLastEntry: but no older than the logger keeps one.
func TestABatchedCountIsAsOldAsItsLastEntry(t *testing.T) {
	w, _, _ := batching(t)
	last := w.now
	for _, c := range []struct{ since, age time.Duration }{
		{0, 0},
		{400 * time.Millisecond, 400 * time.Millisecond},
		{3 * time.Second, batchedAge},
	} {
		w.now = last.Add(c.since)
		age := w.now.Sub(w.read(t).InFlight.At)
		if (age - c.age).Abs() > time.Millisecond {
			t.Errorf("%v after the last entry the count is %v old, want %v", c.since, age, c.age)
		}
	}
}

// TestAPeakThatIsOverDoesNotEndTheLog: reports of a large fleet are seconds apart, and the
// next is no reason to go by what was before it.
func TestAPeakThatIsOverDoesNotEndTheLog(t *testing.T) {
	w, e, s := loggedAndReported()
	w.nextReport(e, 0, 0)
	for i := range 4000 {
		s.Begin(w.now, strconv.Itoa(i), one)
		s.End(w.now, strconv.Itoa(i), one, Outcome{Status: 200})
	}
	w.after(20 * time.Second)
	w.nextReport(e, 0, 4000)
	if got := w.mode(e); got == ModeReports {
		t.Errorf("%v, 20 s after the last request", got)
	}
}

// TestAnEndThatOvertakesTheLastBatchLeavesNothingOpen: without load reports nothing else would
// ever end the request.
func TestAnEndThatOvertakesTheLastBatchLeavesNothingOpen(t *testing.T) {
	w, e := single()
	w.ledger.SetModeThresholds(300, 0)
	batched, immediate := w.open(e), w.open(e)
	w.traffic(e, 600, 5*time.Second)
	for len(e.open) > 0 {
		w.end(e, batched, 0, true)
	}
	for w.mode(e) == ModeBatched {
		w.after(100 * time.Millisecond)
		w.read(t)
	}
	ok := Outcome{Status: 200, Latency: time.Second}
	immediate.End(w.now, "1", one, ok)
	immediate.End(w.now, "2", one, ok)
	w.expect(t, 0)
	w.after(time.Second)
	for _, id := range []string{"1", "2", "3"} {
		batched.Begin(w.now, id, one)
	}
	w.expect(t, 1) // the third goes on
	immediate.Begin(w.now, "1", one)
	w.expect(t, 2) // another try of the first
	immediate.End(w.now, "1", one, ok)
	immediate.End(w.now, "3", one, ok)
	w.expect(t, 0)
	if got := w.read(t).Proxies; got.Issued.Value != got.Ended.Value {
		t.Errorf("%v issued and %v ended", got.Issued.Value, got.Ended.Value)
	}
	immediate.End(w.now, "lost", one, ok)
	w.after(unbatchTime)
	w.read(t)
	if got := len(w.ledger.envoys[e.node].early); got != 0 {
		t.Errorf("%d ends are remembered for ever", got)
	}
	immediate.End(w.now, "4", one, ok)
	batched.Begin(w.now, "4", one)
	w.expect(t, 1)
}
