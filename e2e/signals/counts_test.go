package signals

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/testbed"
	envoybootstrap "steelyard/envoy-bootstrap"
)

// logOnly has an Envoy report only by its access log, so that nothing else can correct a count.
var logOnly = envoybootstrap.Options{NoLoadReports: true}

func TestARequestIsInFlightUntilItEndsHoweverItEnds(t *testing.T) {
	endings := []struct {
		path             string
		aborted          bool // by the client
		failed, answered int
	}{
		{path: "/", answered: 1},
		{path: "/stream", answered: 1},
		{path: "/500", answered: 1, failed: 1},
		{path: "/503", answered: 1, failed: 1},
		{path: "/reset", failed: 1},
		{path: "/stream-reset", failed: 1},
		{path: "/", aborted: true},
		{path: "/stream", aborted: true},
	}
	for protocol, edits := range map[string][]testbed.Edit{"HTTP/1.1": nil, "HTTP/2": {testbed.ToHTTP2}} {
		up := startUpstream(t)
		r := receive(t, up.address)
		envoy := r.envoy(logOnly, 1, edits...)
		for _, tt := range endings {
			t.Run(fmt.Sprintf("%s %s aborted=%t", protocol, tt.path, tt.aborted), func(t *testing.T) {
				r.t = t
				hadFailed, hadAnswered, hadEnded := r.sum(failed), r.sum(answered), r.sum(ended)
				ctx, abort := context.WithCancel(t.Context())
				defer abort()
				wait := testbed.Asking(ctx, t, 1, envoy.url+strings.TrimPrefix(tt.path, "/"))
				r.becomes("in flight while it is open", inFlight, 1)
				if tt.aborted {
					abort()
				} else {
					up.let <- struct{}{}
				}
				r.becomes("in flight when it has ended", inFlight, 0)
				wait()
				gotFailed, gotAnswered, gotEnded := r.sum(failed)-hadFailed, r.sum(answered)-hadAnswered,
					r.sum(ended)-hadEnded
				if gotFailed != tt.failed || gotAnswered != tt.answered || gotEnded != 1 {
					t.Errorf("counted as failed %d, answered %d, ended %d; want %d, %d, 1", gotFailed, gotAnswered,
						gotEnded, tt.failed, tt.answered)
				}
			})
		}
	}
}

func TestARefusedConnectionMovesNoCountAndItsRetryIsCounted(t *testing.T) {
	refusing, err := proc.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	up := startUpstream(t)
	r := receive(t, refusing, up.address)
	envoy := r.envoy(logOnly, 1)
	const n = 4
	wait := testbed.Asking(t.Context(), t, n, envoy.url)
	r.becomes("all are in flight", inFlight, n)
	counts := r.counts()
	if refused := counts[0]; refused.InFlight.Value != 0 || refused.Proxies.Issued.Value != 0 ||
		refused.Proxies.Failed.Value == 0 {
		t.Errorf("the endpoint that refuses has %v in flight, %v issued, %v failed; want 0, 0 and some",
			refused.InFlight.Value, refused.Proxies.Issued.Value, refused.Proxies.Failed.Value)
	}
	for range n {
		up.let <- struct{}{}
	}
	wait()
	r.becomes("none is in flight", inFlight, 0)
}

// An Envoy logs the end of a request that its own circuit breaker stopped, with an endpoint that never got the request.
func TestWhatACircuitBreakerStopsMovesNoCount(t *testing.T) {
	up := startUpstream(t)
	r := receive(t, up.address)
	envoy := r.envoy(logOnly, 1, testbed.Edit{"max_requests: 65536", "max_requests: 1"})
	wait := testbed.Asking(t.Context(), t, 1, envoy.url)
	r.becomes("one is in flight", inFlight, 1)
	testbed.Asking(t.Context(), t, 3, envoy.url)() // answered by the Envoy
	up.let <- struct{}{}
	wait()
	r.becomes("it has ended", ended, 1)
	if i, f, e := r.sum(issued), r.sum(failed), r.sum(errored); i != 1 || f != 0 || e != 0 {
		t.Errorf("%d issued, %d failed and %d in error; want 1, 0 and 0", i, f, e)
	}
}

func TestRequestsWithOneIDOrNoneAreCountedOneByOne(t *testing.T) {
	for name, edits := range map[string][]testbed.Edit{
		"the client's own": nil,
		"none":             {{"stat_prefix: ingress", "stat_prefix: ingress\n          generate_request_id: false"}},
	} {
		t.Run(name, func(t *testing.T) {
			up := startUpstream(t)
			r := receive(t, up.address)
			envoy := r.envoy(logOnly, 2, edits...)
			var headers []string
			if edits == nil {
				headers = []string{"x-request-id", "mine"}
			}
			const n = 30
			var waits []func()
			for i := range n {
				// Not all at once: an Envoy drops entries while a worker's first log stream connects.
				waits = append(waits, testbed.Asking(t.Context(), t, 1, envoy.url, headers...))
				r.becomes("one more is in flight", inFlight, i+1)
			}
			for left := n - 1; left >= 0; left-- {
				up.let <- struct{}{}
				r.becomes("one less is in flight", inFlight, left)
			}
			for _, wait := range waits {
				wait()
			}
		})
	}
}

// mixed returns a load of many short requests.
func mixed(url string, count int) load.Plan {
	return load.Plan{Targets: []string{url}, Rate: 400, Count: count, Work: load.Work{Mean: 20 * time.Millisecond},
		Seed: 5}
}

// carry sends a load, none of which may fail.
func carry(t *testing.T, p load.Plan) load.Result {
	t.Helper()
	result, err := load.Run(t.Context(), p)
	if err != nil || result.Errors != 0 {
		t.Fatalf("%d of %d requests failed: %v, %v", result.Errors, result.Requests, result.Codes, err)
	}
	return result
}

// carrying sends such a load while the test does something else; wait returns when
// it is over.
func carrying(t *testing.T, p load.Plan) (wait func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if result, err := load.Run(t.Context(), p); err != nil || result.Errors != 0 {
			t.Errorf("%d of %d requests failed: %v, %v", result.Errors, result.Requests, result.Codes, err)
		}
	}()
	t.Cleanup(func() { <-done })
	return func() { <-done }
}

func TestEveryWorkerHasItsOwnStreamAndNothingIsLost(t *testing.T) {
	pool := testbed.Pool(t, 3)
	r := receive(t, testbed.Addresses(pool)...)
	const workers = 3
	envoy := r.envoy(logOnly, workers)
	result := carry(t, mixed(envoy.url, 800))
	r.becomes("all were issued", issued, result.Requests)
	r.becomes("all have ended", ended, result.Requests)
	if n := r.sum(inFlight); n != 0 {
		t.Errorf("%d in flight after all have ended", n)
	}
	if n := r.logs.StreamStats().Open; n < 2 || n > workers {
		t.Errorf("%d log streams of %d workers that had requests", n, workers)
	}
}

func TestTheFormOfTheLogChangesUnderLoad(t *testing.T) {
	pool := testbed.Pool(t, 3)
	r := receive(t, testbed.Addresses(pool)...)
	envoy := r.envoy(envoybootstrap.Options{}, 2)
	r.knows()
	wait := carrying(t, mixed(envoy.url, 1200))
	streams := 0
	for _, form := range []struct{ immediate, batched float64 }{{0, 100}, {100, 0}, {0, 100}, {0, 0}, {100, 0}} {
		r.form(form.immediate, form.batched)
		before := r.ledger.Totals().Received
		eventually(t, "the Envoy has taken the form", func() error {
			for _, c := range r.streams.RuntimeClients() {
				if !c.InSync {
					return fmt.Errorf("%s has not", c.NodeID)
				}
			}
			if form.immediate+form.batched > 0 && r.ledger.Totals().Received == before {
				return fmt.Errorf("no entry since")
			}
			return nil
		})
		streams = max(streams, r.logs.StreamStats().Open)
	}
	wait()
	// Each form has a stream in every worker that had a request. A worker may have had none.
	if streams < 2 {
		t.Errorf("%d log streams, want one of each form at least", streams)
	}
	r.becomes("none is in flight, whatever was lost between the forms", inFlight, 0)
}

func TestBatchedEntriesOfAnIdleEnvoyDoNotWait(t *testing.T) {
	up := startUpstream(t)
	r := receive(t, up.address)
	envoy := r.envoy(logOnly, 1)
	r.form(0, 100)
	// One request, and then none that would flush its entry.
	wait := testbed.Asking(t.Context(), t, 1, envoy.url)
	r.becomes("it is in flight", inFlight, 1)
	up.let <- struct{}{}
	r.becomes("it has ended", inFlight, 0)
	wait()
}

// TestTheSizeOfARequestComesWithItsBeginning: by its content-length, in either form of the log. A chunked
// body has none, and its size is unknown. That of a request that the endpoint refuses comes with its end, too.
func TestTheSizeOfARequestComesWithItsBeginning(t *testing.T) {
	up := startUpstream(t)
	r := receive(t, up.address)
	envoy := r.envoy(logOnly, 1)
	for i, form := range []struct{ immediate, batched float64 }{{100, 0}, {0, 100}} {
		r.form(form.immediate, form.batched)
		eventually(t, "the Envoy has taken the form", func() error {
			for _, c := range r.streams.RuntimeClients() {
				if !c.InSync {
					return fmt.Errorf("%s has not", c.NodeID)
				}
			}
			return nil
		})
		const size = 1234
		done := make(chan struct{})
		for _, body := range []io.Reader{strings.NewReader(strings.Repeat("x", size)),
			io.MultiReader(strings.NewReader("of no known length"))} {
			go func() {
				if resp, err := http.Post(envoy.url+"400", "text/plain", body); err == nil {
					resp.Body.Close()
				}
				done <- struct{}{}
			}()
		}
		r.becomes("both are in flight", inFlight, 2)
		if n, bytes, without := r.sum(sized), r.sum(sizedBytes), r.sum(unsized); n != i+1 || bytes != (i+1)*size ||
			without != i+1 {
			t.Errorf("form %d: %d of a known size, %d bytes, %d without; want %d, %d, %d", i, n, bytes, without, i+1,
				(i+1)*size, i+1)
		}
		for range 2 {
			up.let <- struct{}{}
		}
		<-done
		<-done
		r.becomes("both have ended", inFlight, 0)
		if n, bytes := r.sum(refusedSized), r.sum(refusedBytes); n != i+1 || bytes != (i+1)*size {
			t.Errorf("form %d: %d of a known size were refused, %d bytes; want %d, %d", i, n, bytes, i+1, (i+1)*size)
		}
	}
}
