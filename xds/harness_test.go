package xds_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"steelyard/internal/api"
	"steelyard/xds"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.uber.org/goleak"

	"steelyard/e2e/rig/grpctest"
	"steelyard/e2e/rig/xdstest"
	"steelyard/weighting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience limits how long a test waits for a condition; a test that passes never waits this long.
const patience = 20 * time.Second

// A testServer is a server on loopback, with a clock that stands still until it is moved.
type testServer struct {
	t       testing.TB
	server  *xds.Server
	address string
	stop    func()
	clock   *clock
	seen    *observer
}

func newTestServer(t testing.TB) *testServer {
	t.Helper()
	b := &testServer{t: t, clock: &clock{now: time.Unix(1_700_000_000, 0)}, seen: &observer{}}
	b.server = xds.NewServer(xds.Options{Log: slog.New(unlocked{b}), Now: b.clock.Now, Seed: 1, Observer: b.seen})
	b.address, b.stop = grpctest.Serve(t, b.server.Register, xds.GRPCOptions(nil)...)
	return b
}

// publish pushes and returns the version.
func (b *testServer) publish(cluster string, d weighting.Decision) string {
	b.t.Helper()
	version, err := b.server.Push(cluster, d, 0)
	if err != nil {
		b.t.Fatalf("publishing %s: %v", cluster, err)
	}
	return version
}

func (b *testServer) dial(c xdstest.Config) *xdstest.Client {
	b.t.Helper()
	c.Address = b.address
	if c.NodeID == "" {
		c.NodeID = "envoy-1"
	}
	client, err := xdstest.Dial(c)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(client.Close)
	return client
}

// wait waits for a state of the client.
func (b *testServer) wait(c *xdstest.Client, what string, wanted func(xdstest.State) bool) xdstest.State {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := c.Wait(ctx, wanted)
	if err != nil {
		b.t.Fatalf("waiting for %s: %v; state %+v", what, err, withoutMessages(s))
	}
	return s
}

func withoutMessages(s xdstest.State) xdstest.State { s.Messages = nil; return s }

// received waits until the client has accepted n assignments of the cluster.
func (b *testServer) received(c *xdstest.Client, cluster string, n int) xdstest.State {
	b.t.Helper()
	return b.wait(c, fmt.Sprintf("%d assignments of %s", n, cluster),
		func(s xdstest.State) bool { return s.Received[cluster] >= n })
}

// subscription waits until the node's subscription is as wanted.
func (b *testServer) subscription(node, cluster, what string, wanted func(api.Subscription) bool) api.Subscription {
	b.t.Helper()
	var last []api.Connection
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		last = b.server.Clients()
		for _, c := range last {
			for _, s := range c.Subscriptions {
				if c.NodeID == node && s.Resource == cluster && wanted(s) {
					return s
				}
			}
		}
		time.Sleep(time.Millisecond)
	}
	b.t.Fatalf("%s subscribing to %s: never %s; clients %+v", node, cluster, what, last)
	return api.Subscription{}
}

// eventually polls until the condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func inSync(s api.Subscription) bool { return s.InSync }

// transports runs the test over each way to subscribe.
func transports(t *testing.T, test func(t *testing.T, c xdstest.Config, transport string)) {
	for transport, c := range map[string]xdstest.Config{
		xds.TransportEDS:      {},
		xds.TransportEDSDelta: {Delta: true},
		xds.TransportADS:      {ADS: true},
		xds.TransportADSDelta: {ADS: true, Delta: true},
	} {
		t.Run(transport, func(t *testing.T) { test(t, c, transport) })
	}
}

// shares makes a decision with one endpoint for each share.
func shares(values ...float64) weighting.Decision {
	var d weighting.Decision
	for i, v := range values {
		d.Endpoints = append(d.Endpoints,
			weighting.EndpointDecision{Address: fmt.Sprintf("10.0.%d.%d:8000", i/256, i%256), Share: v})
	}
	return d
}

// equal is n endpoints of one share.
func equal(n int) weighting.Decision {
	values := make([]float64, n)
	for i := range values {
		values[i] = 1 / float64(n)
	}
	return shares(values...)
}

func weightsOf(s xdstest.State, cluster string) []uint32 {
	var out []uint32
	for _, l := range s.Assignment(cluster).GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			out = append(out, e.GetLoadBalancingWeight().GetValue())
		}
	}
	return out
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// An observer records the calls of its methods.
type observer struct {
	mu     sync.Mutex
	acked  map[string][]time.Duration
	nacked []string
}

func (o *observer) Acked(cluster string, delay time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.acked == nil {
		o.acked = map[string][]time.Duration{}
	}
	o.acked[cluster] = append(o.acked[cluster], delay)
}

func (o *observer) Nacked(cluster string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nacked = append(o.nacked, cluster)
}

// delays waits until the observer has n ACKs, which is after the server has recorded them.
func (b *testServer) delays(cluster string, n int) []time.Duration {
	b.t.Helper()
	var got []time.Duration
	eventually(b.t, fmt.Sprintf("the observer has %d ACKs", n), func() bool {
		b.seen.mu.Lock()
		defer b.seen.mu.Unlock()
		got = slices.Clone(b.seen.acked[cluster])
		return len(got) >= n
	})
	return got
}

// refusals does the same for NACKs.
func (b *testServer) refusals(n int) []string {
	b.t.Helper()
	var got []string
	eventually(b.t, fmt.Sprintf("the observer has %d NACKs", n), func() bool {
		b.seen.mu.Lock()
		defer b.seen.mu.Unlock()
		got = slices.Clone(b.seen.nacked)
		return len(got) >= n
	})
	return got
}

// unlocked is a log handler that fails the test if a line is written while a lock of the server is held: a log may be
// slow, and other goroutines must not wait for it. The library logs under locks of its own.
type unlocked struct{ b *testServer }

func (unlocked) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (u unlocked) WithAttrs([]slog.Attr) slog.Handler             { return u }
func (u unlocked) WithGroup(string) slog.Handler                  { return u }

func (u unlocked) Handle(_ context.Context, r slog.Record) error {
	free := make(chan struct{})
	go func() {
		defer close(free)
		u.b.server.Clients()
		u.b.server.Weights("")
		u.b.server.RuntimeClients()
	}()
	select {
	case <-free:
	case <-time.After(patience):
		u.b.t.Errorf("%q is logged under a lock", r.Message)
	}
	return nil
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func node(id string) *corev3.Node {
	return &corev3.Node{Id: id, Locality: &corev3.Locality{Region: "r"}}
}
