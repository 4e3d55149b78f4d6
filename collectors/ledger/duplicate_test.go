package ledger

import (
	"strconv"
	"testing"
	"time"
)

// twins are two Envoys with one id behind one address, of which each has a stream of
// load reports.
func twins() (w *world, a, b *realEnvoy) {
	w, a = single()
	b = w.envoy("a")
	w.reporting(a)
	w.reporting(b)
	return w, a, b
}

// gauge sends a report of the one endpoint now.
func (w *world) gauge(e *realEnvoy, inProgress, issued uint64) {
	e.reports.Report(w.now, []ClusterLoad{{Cluster: "chat", Endpoints: []EndpointLoad{{Address: one, InProgress: inProgress, Issued: issued}}}})
}

func TestEnvoysOfOneNameAddUp(t *testing.T) {
	w, a, b := twins()
	for range 5 {
		w.after(500 * time.Millisecond)
		w.gauge(a, 3, 2)
		w.after(500 * time.Millisecond)
		w.gauge(b, 4, 1)
		w.expect(t, 7)
	}
	if got := w.read(t).Proxies; got.Issued.Value != 4*3 || got.Ended.Value != 4*3 {
		t.Errorf("%v issued, %v ended, want 12 each", got.Issued.Value, got.Ended.Value)
	}
	if got := w.status(t); got.ReportStreams != 2 {
		t.Errorf("%d streams of reports count, want 2", got.ReportStreams)
	}
	if got := w.ledger.envoys[a.who].progress; got != 7 {
		t.Errorf("%d in progress, want 7", got)
	}
	b.reports.Close(w.now)
	w.expect(t, 3)
	if got := w.status(t); got.ReportStreams != 1 {
		t.Errorf("%d streams of reports count, want 1", got.ReportStreams)
	}
}

// TestAStreamOfOneOfTwoThatGoesSilentCountsNoMore, and again when it is heard.
func TestAStreamOfOneOfTwoThatGoesSilentCountsNoMore(t *testing.T) {
	w, a, b := twins()
	for range 3 {
		w.after(time.Second)
		w.gauge(a, 3, 0)
		w.gauge(b, 4, 0)
	}
	for range 3 {
		w.after(time.Second)
		w.gauge(b, 4, 0)
		w.expect(t, 7)
	}
	w.after(time.Second)
	w.gauge(b, 4, 0)
	w.expect(t, 4)
	w.gauge(a, 2, 0)
	w.expect(t, 6)
}

// TestAStreamThatReconnectedDoesNotCountTwice: the one from before it is still open,
// until the connection is found to be dead.
func TestAStreamThatReconnectedDoesNotCountTwice(t *testing.T) {
	for name, logged := range map[string]bool{"by reports": false, "by its log": true} {
		t.Run(name, func(t *testing.T) {
			w, e := single()
			if logged {
				s := w.open(e)
				for i := range 3 {
					s.Begin(w.now, strconv.Itoa(i), one)
				}
			}
			w.reporting(e)
			w.says(e, 3, 0)
			w.says(e, 3, 0)
			w.after(200 * time.Millisecond)
			w.reporting(e)
			for range 5 {
				w.says(e, 3, 0)
				w.expect(t, 3)
			}
			if got := w.status(t); got.ReportStreams != 1 || got.Reconciled != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestTheEventsOfTwoAreNotTakenForADrift: when one reports, what the other last said is
// older than what the log says.
func TestTheEventsOfTwoAreNotTakenForADrift(t *testing.T) {
	w, a, b := twins()
	s := w.open(a)
	began, open, issued := 0, map[*realEnvoy][]string{}, map[*realEnvoy]uint64{}
	begin := func(e *realEnvoy) {
		for range 2 {
			began++
			id := strconv.Itoa(began)
			s.Begin(w.now, id, one)
			open[e], issued[e] = append(open[e], id), issued[e]+1
		}
	}
	end := func(e *realEnvoy) {
		for _, id := range open[e] {
			s.End(w.now, id, one, Outcome{Status: 200})
		}
		open[e] = nil
	}
	tell := func(e *realEnvoy) {
		t.Helper()
		w.after(500 * time.Millisecond)
		w.gauge(e, uint64(len(open[e])), issued[e])
		issued[e] = 0
		w.expect(t, len(open[a])+len(open[b]))
	}
	tell(a)
	tell(b)
	for range 20 {
		begin(b)
		tell(a)
		begin(a)
		tell(b)
		end(b)
		tell(a)
		end(a)
		tell(b)
	}
	tell(a)
	tell(b)
	tell(a)
	if got := w.status(t); got.Reconciled != 0 {
		t.Errorf("%d reconciled, want none", got.Reconciled)
	}
	w.mustHaveEnded(t, began, began)
}

// TestADriftOfTwoIsMended: within two rounds of reports, and the one that it began in.
func TestADriftOfTwoIsMended(t *testing.T) {
	w, a, b := twins()
	s := w.open(a)
	both := func(inA, inB uint64) {
		w.after(500 * time.Millisecond)
		w.gauge(a, inA, 0)
		w.after(500 * time.Millisecond)
		w.gauge(b, inB, 0)
	}
	both(0, 0)
	both(0, 0)
	for range 5 {
		s.Begin(w.now, "its end is lost", one)
	}
	both(0, 0)
	both(0, 0)
	both(0, 0)
	w.expect(t, 0)
	both(2, 3) // requests that nobody saw begin
	both(2, 3)
	both(2, 3)
	w.expect(t, 5)
}
