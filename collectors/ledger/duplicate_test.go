package ledger

import (
	"strconv"
	"testing"
	"time"
)

// twins are two Envoys with one id behind one address, of which each has a stream of
// load reports.
func twins() (w *world, a, b *testEnvoy) {
	w, a = single()
	b = w.envoy("a")
	w.reporting(a)
	w.reporting(b)
	return w, a, b
}

// gauge sends a report of the one endpoint now.
func (w *world) gauge(e *testEnvoy, inProgress, issued uint64) {
	e.reports.Report(w.now, []ClusterLoad{{Cluster: "chat",
		Endpoints: []EndpointLoad{{Address: one, InProgress: inProgress, Issued: issued}}}})
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
	if got := w.ledger.envoys[a.node].progress; got != 7 {
		t.Errorf("%d in progress, want 7", got)
	}
	b.reports.Close()
	w.expect(t, 3)
	if got := w.status(t); got.ReportStreams != 1 {
		t.Errorf("%d streams of reports count, want 1", got.ReportStreams)
	}
}

// TestAStreamOfOneOfTwoThatGoesSilentCountsNoMore, and again when it reports.
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
			w.nextReport(e, 3, 0)
			w.nextReport(e, 3, 0)
			w.after(200 * time.Millisecond)
			w.reporting(e)
			for range 5 {
				w.nextReport(e, 3, 0)
				w.expect(t, 3)
			}
			if got := w.status(t); got.ReportStreams != 1 || got.Reconciled != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestTheEventsOfTwoAreNotTakenForADrift: when one reports, the last gauge of the other is
// older than the log.
func TestTheEventsOfTwoAreNotTakenForADrift(t *testing.T) {
	w, a, b := twins()
	s := w.open(a)
	began, open, issued := 0, map[*testEnvoy][]string{}, map[*testEnvoy]uint64{}
	begin := func(e *testEnvoy) {
		for range 2 {
			began++
			id := strconv.Itoa(began)
			s.Begin(w.now, id, one)
			open[e], issued[e] = append(open[e], id), issued[e]+1
		}
	}
	end := func(e *testEnvoy) {
		for _, id := range open[e] {
			s.End(w.now, id, one, Outcome{Status: 200})
		}
		open[e] = nil
	}
	tell := func(e *testEnvoy) {
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

// TestADriftOfTwoIsCorrected: within two rounds of reports, and the one that it began in.
func TestADriftOfTwoIsCorrected(t *testing.T) {
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
	both(2, 3) // requests that no log showed to begin
	both(2, 3)
	both(2, 3)
	w.expect(t, 5)
}

// TestAProxyThatRestartsHotIsExactThroughout: the old process and the new one have one node id and log
// and report at the same time, the load rises, and requests move from one to the other. Nothing is lost, so
// every count has to be the truth and no report may change it.
func TestAProxyThatRestartsHotIsExactThroughout(t *testing.T) {
	const step = 50 * time.Millisecond
	w, parent := single()
	streams := map[*testEnvoy]*Stream{parent: w.open(parent)}
	w.reporting(parent)
	var child *testEnvoy
	type flying struct {
		of   *testEnvoy
		id   string
		ends int
	}
	var open []flying
	issued := map[*testEnvoy]uint64{}
	tell := func(e *testEnvoy) {
		n := uint64(0)
		for _, r := range open {
			if r.of == e {
				n++
			}
		}
		w.gauge(e, n, issued[e])
		issued[e] = 0
	}
	total := 0
	for i := range 600 { // half a minute
		w.after(step)
		if i == 200 {
			child = w.envoy("a")
			streams[child] = w.open(child)
			w.reporting(child)
		}
		rate := 10 + i/20 // in a step: 200 a second, and up to 500
		if i > 320 {
			rate = max(2, 26-(i-320)/5) // and down to 40
		}
		for n := range rate {
			serving := parent
			if child != nil && (n%2 == 0 || i > 380) { // connections stay with the old one for a while
				serving = child
			}
			total++
			id := strconv.Itoa(total)
			streams[serving].Begin(w.now, id, one)
			issued[serving]++
			open = append(open, flying{serving, id, i + 20 + total%100})
		}
		var left []flying
		for _, r := range open {
			if r.ends > i {
				left = append(left, r)
				continue
			}
			streams[r.of].End(w.now, r.id, one, Outcome{Status: 200, Latency: time.Second})
		}
		open = left
		if i%20 == 3 && i < 500 {
			tell(parent)
		}
		if i%20 == 13 && i > 220 { // an interval after it opened its stream, or longer
			tell(child)
		}
		if i == 500 { // the old one is done, and exits
			streams[parent].Close()
			parent.reports.Close()
		}
		w.expect(t, len(open))
		if i == 400 {
			if got := w.status(t).ReportStreams; got != 2 {
				t.Errorf("%d processes report, want 2", got)
			}
		}
	}
	if got := w.status(t).Reconciled; got != 0 {
		t.Errorf("%d reconciled, want none", got)
	}
	w.mustHaveEnded(t, total, total-len(open))
}

// TestAReportThatIsALittleLateIsNoStreamLeftOver: the new process opened its stream right after a report of
// the old one, whose next comes a little after the first of the new one.
func TestAReportThatIsALittleLateIsNoStreamLeftOver(t *testing.T) {
	w, old := single()
	w.reporting(old)
	w.nextReport(old, 5, 0)
	w.nextReport(old, 5, 0)
	w.after(time.Millisecond)
	young := w.envoy("a")
	w.reporting(young)
	w.nextReport(young, 1, 0)
	w.expect(t, 6)
	w.after(50 * time.Millisecond)
	w.gauge(old, 4, 0)
	w.expect(t, 5)
}
