package signals

import (
	"fmt"
	"testing"
	"time"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/testbed"
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
	waits := []func(){testbed.Asking(t.Context(), t, 5, old.url)}
	r.becomes("the old one's are in flight", inFlight, 5)
	young := r.envoy(one, 1)
	eventually(t, "both report", func() error { return r.processes(2) })

	ofOld, ofYoung := 5, 0
	for until := r.reports.Stats().Reports + 30; r.reports.Stats().Reports < until; {
		waits = append(waits, testbed.Asking(t.Context(), t, 1, old.url))
		waits = append(waits, testbed.Asking(t.Context(), t, 1, young.url))
		ofOld, ofYoung = ofOld+1, ofYoung+1
		r.becomes("all were issued", issued, ofOld+ofYoung)
		if n := r.sum(inFlight); n != ofOld+ofYoung {
			t.Fatalf("%d in flight, want %d and %d", n, ofOld, ofYoung)
		}
	}

	if err := old.Kill(); err != nil {
		t.Fatal(err)
	}
	r.becomes("those of the young one are in flight", inFlight, ofYoung)
	eventually(t, "only the young one reports", func() error { return r.processes(1) })
	up.letAll(t)
	r.becomes("none is in flight", inFlight, 0)
	for _, wait := range waits {
		wait()
	}
}

// TestAHotRestartIsExactThroughout: the old process keeps the requests that it has, the new one takes all
// others, and the old one exits with requests that have not ended.
func TestAHotRestartIsExactThroughout(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	r := receive(t, up.address)
	run := hotRestarting(t, r)
	old, url := run(0)
	eventually(t, "the old process reports", func() error { r.watch(); return r.processes(1) })
	ofOld, ofYoung := 5, 0
	waits := []func(){testbed.Asking(t.Context(), t, ofOld, url)}
	r.becomes("the old one's are in flight", inFlight, ofOld)

	run(1)
	eventually(t, "both report", func() error { return r.processes(2) })
	for until := r.reports.Stats().Reports + 10; r.reports.Stats().Reports < until; {
		waits = append(waits, testbed.Asking(t.Context(), t, 1, url))
		ofYoung++
		r.becomes("all were issued", issued, ofOld+ofYoung)
		if n := r.sum(inFlight); n != ofOld+ofYoung {
			t.Fatalf("%d in flight, want %d and %d", n, ofOld, ofYoung)
		}
	}
	if err := r.processes(2); err != nil {
		t.Error(err)
	}
	<-old.Done() // or the test's own timeout
	r.becomes("those of the young one are in flight", inFlight, ofYoung)
	eventually(t, "only the young one reports", func() error { return r.processes(1) })
	up.letAll(t)
	r.becomes("none is in flight", inFlight, 0)
	for _, wait := range waits {
		wait()
	}
}

// hotRestarting returns what starts the processes of one Envoy, the second of which takes over from the first, and the
// URL at which both serve.
func hotRestarting(t *testing.T, r *receiver) func(epoch int) (*proc.Process, string) {
	t.Helper()
	ports, err := proc.FreeAddresses(2)
	if err != nil {
		t.Fatal(err)
	}
	text, err := envoybootstrap.Render(envoybootstrap.Options{
		Cluster: testbed.Cluster, XDS: r.address, Mode: envoybootstrap.ModeShedding, Listen: ports[0], Admin: ports[1],
	})
	if err != nil {
		t.Fatal(err)
	}
	next := testbed.Epochs(t, text, 4*time.Second)
	return func(epoch int) (*proc.Process, string) { return next(epoch), "http://" + ports[0] + "/" }
}

// letAll answers all requests from now on.
func (u *upstream) letAll(t *testing.T) {
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		for {
			select {
			case u.let <- struct{}{}:
			case <-done:
				return
			}
		}
	}()
}

// processes says why the receiver does not know one Envoy of so many processes.
func (r *receiver) processes(want int) error {
	all := r.ledger.Envoys(time.Now())
	if len(all) != 1 || all[0].ReportStreams != want {
		return fmt.Errorf("%+v, want one Envoy with %d streams of load reports", all, want)
	}
	return nil
}
