package e2e

import (
	"fmt"
	"testing"
	"time"

	envoybootstrap "steelyard/envoy-bootstrap"
)

// TestTwoProcessesWithOneNodeIDAreExactTogether: as in a hot restart, both have requests, log and report, the load
// of both rises, and the old one exits in the end. Each reports at its own time, so at every report what is known
// of the other's gauge is too low.
func TestTwoProcessesWithOneNodeIDAreExactTogether(t *testing.T) {
	up := startUpstream(t)
	r := receive(t, up.address)
	one := envoybootstrap.Options{NodeID: "restarting"}
	old := r.envoy(one, 1)
	waits := []func(){asking(t, t.Context(), 5, old.url)}
	r.becomes("the old one's are in flight", inFlight, 5)
	young := r.envoy(one, 1)
	eventually(t, "both report", func() error { return r.processes(2) })

	ofOld, ofYoung := 5, 0
	for until := r.reports.Stats().Reports + 30; r.reports.Stats().Reports < until; {
		waits = append(waits, asking(t, t.Context(), 1, old.url))
		waits = append(waits, asking(t, t.Context(), 1, young.url))
		ofOld, ofYoung = ofOld+1, ofYoung+1
		r.becomes("all were issued", issued, ofOld+ofYoung)
		if n := r.sum(inFlight); n != ofOld+ofYoung {
			t.Fatalf("%d in flight, want %d and %d", n, ofOld, ofYoung)
		}
	}
	t.Logf("%d and %d in flight", ofOld, ofYoung)

	if err := old.Kill(); err != nil {
		t.Fatal(err)
	}
	r.becomes("those of the young one are in flight", inFlight, ofYoung)
	if err := r.processes(1); err != nil {
		t.Error(err)
	}
	done := make(chan struct{})
	defer close(done)
	go func() { // the upstream may answer a request of the old one before it finds that it is gone
		for {
			select {
			case up.let <- struct{}{}:
			case <-done:
				return
			}
		}
	}()
	r.becomes("none is in flight", inFlight, 0)
	for _, wait := range waits {
		wait()
	}
}

// processes says why the receiver does not know one Envoy of so many processes.
func (r *receiver) processes(want int) error {
	all := r.ledger.Envoys(time.Now())
	if len(all) != 1 || all[0].ReportStreams != want {
		return fmt.Errorf("%+v, want one Envoy with %d streams of load reports", all, want)
	}
	return nil
}
