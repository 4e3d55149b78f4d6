package ledger

import (
	"strconv"
	"testing"
	"time"
)

// mustHaveEnded checks the sums of the one endpoint.
func (w *world) mustHaveEnded(t *testing.T, issued, ended int) {
	t.Helper()
	w.mustBeSound(t)
	if got := w.read(t).Proxies; int(got.Issued.Value) != issued || int(got.Ended.Value) != ended {
		t.Errorf("%v issued and %v ended, want %d and %d", got.Issued.Value, got.Ended.Value, issued, ended)
	}
}

// TestAnEndThatComesAfterItsRequestWasClosedIsNotCountedAgain: an endpoint that is
// removed from the pool and comes back is not in the reports, while its requests go on.
func TestAnEndThatComesAfterItsRequestWasClosedIsNotCountedAgain(t *testing.T) {
	w, e := single()
	s := w.open(e)
	w.reporting(e)
	w.nextReport(e, 0, 0)
	for i := range 5 {
		s.Begin(w.now, strconv.Itoa(i), one)
	}
	w.nextReport(e, 2, 5)
	w.nextReport(e, 2, 0)
	w.nextReport(e, 2, 0)
	w.mustHaveEnded(t, 5, 3) // the oldest three are closed
	if got := w.status(t).OpenRequests; got != 2 {
		t.Errorf("%d open, want 2", got)
	}
	for i := range 5 {
		s.End(w.now, strconv.Itoa(i), one, Outcome{Status: 200})
	}
	w.expect(t, 0)
	w.mustHaveEnded(t, 5, 5)
	if got := w.status(t); got.Unpaired != 0 {
		t.Errorf("%d unpaired: they have beginnings", got.Unpaired)
	}
}

// TestAClosedRequestIsNotEndedAgainByReports: it was not in progress by two reports, and
// is by the next ones.
func TestAClosedRequestIsNotEndedAgainByReports(t *testing.T) {
	w, e := single()
	s := w.open(e)
	w.reporting(e)
	w.nextReport(e, 0, 0)
	for i := range 5 {
		s.Begin(w.now, strconv.Itoa(i), one)
	}
	w.nextReport(e, 2, 5)
	w.nextReport(e, 2, 0)
	w.nextReport(e, 2, 0)
	s.Close()
	w.nextReport(e, 5, 0)
	w.expect(t, 5)
	w.mustHaveEnded(t, 5, 3)
	w.nextReport(e, 0, 0)
	w.mustHaveEnded(t, 5, 5)
}

// TestALogThatEndsBetweenReportsLeavesTheSumsRight: what it showed since the report before,
// the next one shows, too.
func TestALogThatEndsBetweenReportsLeavesTheSumsRight(t *testing.T) {
	w, e := single()
	s := w.open(e)
	w.reporting(e)
	w.nextReport(e, 0, 0)
	for i := range 4 {
		s.Begin(w.now, strconv.Itoa(i), one)
	}
	w.nextReport(e, 4, 4)
	for i := range 4 {
		s.End(w.now, strconv.Itoa(i), one, Outcome{Status: 200})
		s.Begin(w.now, strconv.Itoa(9+i), one)
	}
	w.mustHaveEnded(t, 8, 4)
	s.Close()
	w.nextReport(e, 3, 4+2) // two more began unseen, and three ended
	w.mustHaveEnded(t, 10, 7)
	w.nextReport(e, 0, 0)
	w.mustHaveEnded(t, 10, 10)
}

// TestAStreamOfReportsThatEndsEndsNoRequests: of Envoys that share a node id one left, and
// how its requests ended is unknown.
func TestAStreamOfReportsThatEndsEndsNoRequests(t *testing.T) {
	for _, log := range []Mode{ModeEvents, ModeReports} { // none, and one that was switched off
		t.Run(log.String(), func(t *testing.T) {
			w, e := single()
			if log == ModeReports {
				w.ledger.SetModeThresholds(0, 0.1)
				s := w.open(e)
				for range 10 {
					s.Begin(w.now, "1", one)
					s.End(w.now, "1", one, Outcome{Status: 200})
				}
			}
			w.reporting(e)
			leaves := *e
			w.reporting(&leaves)
			w.nextReport(e, 0, 0)
			w.nextReport(&leaves, 0, 0)
			w.nextReport(e, 3, 3)
			w.nextReport(&leaves, 2, 2)
			if got := w.mode(e); got != log {
				t.Fatalf("%v, want %v", got, log)
			}
			w.expect(t, 5)
			before := w.read(t).Proxies
			issued, ended := int(before.Issued.Value), int(before.Ended.Value)
			leaves.reports.Close()
			w.expect(t, 3)
			w.nextReport(e, 3, 0)
			w.mustHaveEnded(t, issued, ended)
			w.nextReport(e, 0, 0)
			w.mustHaveEnded(t, issued, ended+3)
		})
	}
}

func TestClosedRequestsAreBounded(t *testing.T) {
	w, e := single()
	s := w.open(e)
	w.reporting(e)
	w.nextReport(e, 0, 0)
	for i := range 2 * maxClosed {
		s.Begin(w.now, strconv.Itoa(i), one)
	}
	for range 3 {
		w.nextReport(e, 0, 0)
	}
	w.expect(t, 0)
	if got := w.ledger.open; got != maxClosed {
		t.Errorf("%d requests are kept, want %d", got, maxClosed)
	}
	w.nextReport(e, 0, 0)
	w.cluster("chat")
	if got := w.ledger.open; got != 0 {
		t.Errorf("%d requests are kept of an endpoint that is gone", got)
	}
}

// TestForgedReportsOverflowNothing: as many as may be issued in each, and a thousand
// before the sums are next compared.
func TestForgedReportsOverflowNothing(t *testing.T) {
	w, e := single()
	s := w.open(e)
	w.reporting(e)
	w.nextReport(e, 0, 0)
	before := 0.0
	for i := range 5000 {
		w.after(time.Millisecond)
		w.gauge(e, 0, 1<<62)
		if i%1000 == 0 {
			s.Begin(w.now, "1", one)
		}
		got := w.read(t).Proxies
		if got.Issued.Value < before || got.Ended.Value > got.Issued.Value {
			t.Fatalf("%v issued after %v, %v ended", got.Issued.Value, before, got.Ended.Value)
		}
		before = got.Issued.Value
	}
}

// TestEndpointsThatLeaveDoNotSearchWhatIsRemembered: of each Envoy that lost ends as many
// requests are remembered as may be, and none of them is of most endpoints. Searching them
// for each would take seconds here, in which all others wait.
func TestEndpointsThatLeaveDoNotSearchWhatIsRemembered(t *testing.T) {
	leave := func(f *fleet) time.Duration {
		begun := time.Now()
		f.ledger.SetMembers("chat", f.addresses[:1])
		return time.Since(begun)
	}
	nothing := leave(newFleet(300, 1000))
	f := newFleet(300, 1000)
	for _, s := range f.streams {
		for i := range maxClosed {
			s.Begin(f.now, strconv.Itoa(i), f.addresses[0])
		}
	}
	for range 3 {
		f.now = f.now.Add(time.Second)
		for _, r := range f.reports {
			r.Report(f.now, nil)
		}
	}
	if got := f.streams[0].envoy.closings; got != maxClosed {
		t.Fatalf("%d requests are remembered, want %d", got, maxClosed)
	}
	// A search for each endpoint would take a hundred times as long.
	if took := leave(f); took > 20*nothing+time.Second {
		t.Errorf("%d endpoints left %d Envoys in %v, and in %v with nothing remembered", len(f.addresses)-1,
			len(f.streams), took, nothing)
	}
	f.ledger.SetMembers("chat", nil)
	if got := f.streams[0].envoy.closings; got != 0 {
		t.Errorf("%d requests are remembered of endpoints that are gone", got)
	}
}
