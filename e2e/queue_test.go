package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"steelyard/controlplane/view"
	"steelyard/e2e/rig/modelsim"
)

// An answer is how a request ended.
type answer struct {
	number int // of the request
	code   int // 0: no answer
	header http.Header
	err    error
}

// callers send requests whose answers arrive on a channel.
type callers struct {
	t       *testing.T
	f       *fleet
	answers chan answer
	sending sync.WaitGroup
}

func newCallers(t *testing.T, f *fleet) *callers {
	c := &callers{t: t, f: f, answers: make(chan answer, 10_000)}
	t.Cleanup(c.sending.Wait)
	return c
}

// send sends one request to an Envoy.
func (c *callers) send(ctx context.Context, number, envoy int, class, tenant string, service time.Duration) {
	c.sending.Go(func() { c.answers <- c.call(ctx, number, envoy, class, tenant, service) })
}

func (c *callers) call(ctx context.Context, number, envoy int, class, tenant string, service time.Duration) answer {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.f.urls[envoy], nil)
	if err != nil {
		return answer{number: number, err: err}
	}
	r.Header.Set(modelsim.HeaderService, strconv.FormatFloat(service.Seconds(), 'f', -1, 64))
	r.Header.Set("X-Steelyard-Class", class)
	r.Header.Set("X-Steelyard-Tenant", tenant)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{number: number, err: err}
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return answer{number: number, code: resp.StatusCode, header: resp.Header, err: err}
}

// next is the next answer, which must be in time.
func (c *callers) next() answer {
	c.t.Helper()
	select {
	case a := <-c.answers:
		return a
	case <-time.After(limit):
		c.t.Fatalf("no answer within %v", limit)
	}
	return answer{}
}

// queue is the queue of the tests' cluster; an error while there is none.
func (f *fleet) queue() (view.Queue, error) {
	v, err := f.view()
	if err == nil && v.Queue == nil {
		err = fmt.Errorf("the cluster has no queue")
	}
	if err != nil {
		return view.Queue{}, err
	}
	return *v.Queue, nil
}

// waits is nil when n requests wait and m are in flight, and all Envoys of the fleet have joined the queue.
func (f *fleet) waits(n, m int) error {
	q, err := f.queue()
	if err != nil {
		return err
	}
	waiting := 0
	for _, c := range q.Classes {
		waiting += c.Waiting
	}
	if waiting != n || q.InFlight != m || q.Envoys != len(f.envoys) {
		return fmt.Errorf("%d wait and %d are in flight of %d Envoys, want %d, %d and %d", waiting, q.InFlight,
			q.Envoys, n, m, len(f.envoys))
	}
	return nil
}

// queueing is a fleet whose Envoys have the module and a queue.
func queueing(t *testing.T, pool []*modelsim.Server, envoys int, queue string) *fleet {
	t.Helper()
	withModule(t)
	f := start(t, plan{servers: pool, envoys: envoys, bootstrap: []string{"--module"}, cluster: "queue: " + queue})
	f.eventually("the Envoys have joined the queue", func() error { return f.waits(0, 0) })
	return f
}

func TestTheQueueKeepsTheOrderOfArrivalAcrossEnvoys(t *testing.T) {
	f := queueing(t, servers(t, modelsim.Options{Slots: 8}), 2, "{max_in_flight: 1}")
	c := newCallers(t, f)
	const requests = 12
	for i := range requests {
		c.send(t.Context(), i, i%2, "", "", 300*time.Millisecond)
		f.eventually("the request waits", func() error { return f.waits(i, 1) })
	}
	var order []int
	for range requests {
		a := c.next()
		if a.code != http.StatusOK {
			t.Fatalf("request %d: %+v", a.number, a)
		}
		order = append(order, a.number)
	}
	if !slices.IsSorted(order) {
		t.Errorf("the order of the answers is %v", order)
	}
	f.eventually("no place is held", func() error { return f.waits(0, 0) })
}
