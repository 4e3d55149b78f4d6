package discovery

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A run is a Discoverer at work, with what it sent and reported.
type run struct {
	t       *testing.T
	sets    chan []Endpoint
	mu      sync.Mutex
	reports []error
}

func (r *run) report(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reports = append(r.reports, err)
}

// lastReport is the last outcome and how many there were.
func (r *run) lastReport() (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.reports) == 0 {
		return 0, nil
	}
	return len(r.reports), r.reports[len(r.reports)-1]
}

// start runs what build makes until the test ends.
func start(t *testing.T, build func(report func(error)) Discoverer) *run {
	t.Helper()
	r := &run{t: t, sets: make(chan []Endpoint)}
	d := build(r.report)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx, r.sets) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	return r
}

// next asserts the addresses of the next set sent.
func (r *run) next(want ...string) []Endpoint {
	r.t.Helper()
	select {
	case set := <-r.sets:
		if d := cmp.Diff(want, addressesOf(set)); d != "" {
			r.t.Fatalf("addresses (-want +got):\n%s", d)
		}
		return set
	case <-time.After(20 * time.Second):
		_, err := r.lastReport()
		r.t.Fatalf("no set within 20 s, want %v; last report: %v", want, err)
		return nil
	}
}

// silent asserts that nothing waits to be sent.
func (r *run) silent() {
	r.t.Helper()
	select {
	case set := <-r.sets:
		r.t.Fatalf("an unexpected set: %v", addressesOf(set))
	default:
	}
}

// reported waits for an outcome that fits and is newer than the first after.
func (r *run) reported(after int, what string, ok func(error) bool) {
	r.t.Helper()
	var n int
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if n, err = r.lastReport(); n > after && ok(err) {
			return
		}
	}
	r.t.Fatalf("waited without success for a report of %s; the last of %d: %v", what, n, err)
}

func (r *run) failure(parts ...string) {
	r.t.Helper()
	n, _ := r.lastReport()
	r.reported(n-1, strings.Join(parts, " … "), func(err error) bool { return says(err, parts...) == nil })
}

func addressesOf(set []Endpoint) []string {
	var addresses []string
	for _, e := range set {
		addresses = append(addresses, e.Address)
	}
	return addresses
}

// says returns nil when err says all parts in their order, or when there are
// none and err is nil.
func says(err error, parts ...string) error {
	switch {
	case len(parts) == 0 && err != nil:
		return errors.New("unexpected error: " + err.Error())
	case len(parts) == 0:
		return nil
	case err == nil:
		return errors.New("no error, want one with " + strings.Join(parts, " … "))
	}
	rest := err.Error()
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return errors.New("error does not say " + part + " in its place: " + err.Error())
		}
		rest = after
	}
	return nil
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err := says(err, parts...); err != nil {
		t.Error(err)
	}
}
