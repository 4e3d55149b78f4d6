package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"steelyard/e2e/rig/xdstest"
)

const (
	clusterName = "llama"
	// subscribed is what an Envoy of mode failsafe, the default, follows.
	subscribed = clusterName + "/failsafe"
	// extensions makes a node of about 61 KB, as Envoy 1.40's is.
	extensions = 400
)

// envoys are simulated Envoys, each on a connection of its own.
type envoys struct {
	clients []*xdstest.Client
	watch   *watch
}

// connect opens n streams and waits until each has accepted an assignment.
func connect(ctx context.Context, address string, n int, w *watch) (*envoys, error) {
	e := &envoys{clients: make([]*xdstest.Client, n), watch: w}
	dialing, ctx := errgroup.WithContext(ctx)
	dialing.SetLimit(32) // the node messages need 61 MB for a thousand
	for i := range n {
		dialing.Go(func() error {
			c, err := xdstest.Dial(xdstest.Config{
				Address: address, NodeID: fmt.Sprintf("envoy-%04d", i), Clusters: []string{subscribed},
				Extensions: extensions,
				Accepted:   func(_, version string, message []byte) { w.accepted(i, version, message, time.Now()) },
			})
			if err != nil {
				return err
			}
			e.clients[i] = c
			_, err = c.Wait(ctx, func(s xdstest.State) bool { return s.Received[subscribed] > 0 })
			return err
		})
	}
	if err := dialing.Wait(); err != nil {
		e.close()
		return nil, fmt.Errorf("connecting %d Envoys: %w", n, err)
	}
	return e, nil
}

// broken returns why a stream has ended; nil while all are open.
func (e *envoys) broken() error {
	var errs []error
	for _, c := range e.clients {
		errs = append(errs, c.State().Err)
	}
	return errors.Join(errs...)
}

func (e *envoys) close() {
	var closing sync.WaitGroup
	for _, c := range e.clients {
		if c != nil {
			closing.Go(c.Close)
		}
	}
	closing.Wait()
}

// A change is one change of one server's load.
type change struct {
	address string
	lower   bool      // the weight has to fall
	at      time.Time // when the server's load changed
	shown   time.Time // when a page first showed it; zero before
	left    int       // streams that have not acknowledged it
	delays  []time.Duration
	last    time.Duration // until the last stream acknowledged
}

// A watch follows which change each stream has acknowledged. Streams that get the
// same version get the same bytes, so each version is read once.
type watch struct {
	streams int

	mu       sync.Mutex
	versions map[string]verdict
	changes  []*change
	open     []map[int]struct{} // by stream: changes that it has not acknowledged
}

// A verdict is the weights of one version.
type verdict struct {
	median  uint32
	weights map[string]uint32
}

func newWatch(streams int) *watch {
	w := &watch{streams: streams, versions: make(map[string]verdict), open: make([]map[int]struct{}, streams)}
	for i := range w.open {
		w.open[i] = make(map[int]struct{})
	}
	return w
}

// begin opens a change. The caller then changes the server.
func (w *watch) begin(address string, lower bool, now time.Time) *change {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &change{address: address, lower: lower, at: now, left: w.streams}
	for i := range w.open {
		w.open[i][len(w.changes)] = struct{}{}
	}
	w.changes = append(w.changes, c)
	return c
}

// seen notes that a page has shown the change.
func (w *watch) seen(c *change, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.shown = now
}

// accepted notes that a stream has acknowledged a version.
func (w *watch) accepted(stream int, version string, message []byte, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.open[stream]) == 0 {
		return
	}
	v, ok := w.versions[version]
	if !ok {
		v = read(message)
		if len(w.versions) > 64 { // streams are a version or two apart
			clear(w.versions)
		}
		w.versions[version] = v
	}
	for i := range w.open[stream] {
		if c := w.changes[i]; v.includes(c) {
			delete(w.open[stream], i)
			c.acknowledged(now)
		}
	}
}

func (c *change) acknowledged(now time.Time) {
	c.delays = append(c.delays, now.Sub(c.at))
	c.left--
	if c.left == 0 {
		c.last = now.Sub(c.at)
	}
}

// read takes the weights out of an assignment; none out of one that is broken.
func read(message []byte) verdict {
	var m endpointv3.ClusterLoadAssignment
	if proto.Unmarshal(message, &m) != nil {
		return verdict{}
	}
	v := verdict{weights: make(map[string]uint32)}
	var all []uint32
	for _, l := range m.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			a := e.GetEndpoint().GetAddress().GetSocketAddress()
			weight := e.GetLoadBalancingWeight().GetValue()
			v.weights[fmt.Sprintf("%s:%d", a.GetAddress(), a.GetPortValue())] = weight
			all = append(all, weight)
		}
	}
	if len(all) > 0 {
		slices.Sort(all)
		v.median = all[len(all)/2]
	}
	return v
}

// includes reports whether the weights are those after the change: the other servers
// rest at the median.
func (v verdict) includes(c *change) bool {
	weight, ok := v.weights[c.address]
	return ok && (weight < v.median/2) == c.lower
}

// done reports whether every stream has acknowledged every change.
func (w *watch) done() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(w.changes, func(c *change) bool { return c.left > 0 })
}

// acks sums the changes up.
func (w *watch) acks() Acks {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := Acks{Changes: len(w.changes)}
	var all, last, scraped []time.Duration
	for _, c := range w.changes {
		a.Missing += c.left
		all = append(all, c.delays...)
		if c.left == 0 {
			last = append(last, c.last)
		}
		if !c.shown.IsZero() {
			scraped = append(scraped, c.shown.Sub(c.at))
		}
	}
	a.All, a.Last, a.Scraped = quantiles(all), quantiles(last), quantiles(scraped)
	return a
}
