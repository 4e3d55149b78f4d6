package streams

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"steelyard/internal/envoyid"
)

// A Gate counts the streams of a service, bounds them, and can end them all. Make one with New.
type Gate struct {
	limits  Limits
	closed  chan struct{}
	running sync.WaitGroup
	refused atomic.Uint64

	mu   sync.Mutex
	shut bool
	open int
	each map[envoyid.ID]int
}

// Limits of a Gate.
type Limits struct {
	// Streams is the largest number of streams. Zero: only the port that they come over bounds the total, so that an
	// Envoy is admitted even if an unknown client has taken all that it may.
	Streams int
	What    string // "%d …, which is the limit", for the status of a stream that is one too many
	// Each is the largest number of streams of one Envoy, of those that call Admit.
	Each int
}

// New makes a gate.
func New(l Limits) *Gate {
	return &Gate{limits: l, closed: make(chan struct{}), each: make(map[envoyid.ID]int)}
}

// ErrClosed is the status of streams that are ended or refused because the process stops.
var ErrClosed = status.Error(codes.Unavailable, "Steelyard is stopping")

// Enter counts a stream until exit is called. The error is its status.
func (g *Gate) Enter() (exit func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.shut:
		return nil, ErrClosed
	case g.limits.Streams > 0 && g.open >= g.limits.Streams:
		g.refused.Add(1)
		return nil, status.Errorf(codes.ResourceExhausted, "%d %s, which is the limit", g.open, g.limits.What)
	}
	g.open++
	g.running.Add(1)
	return g.exit, nil
}

func (g *Gate) exit() {
	g.mu.Lock()
	g.open--
	g.mu.Unlock()
	g.running.Done()
}

// Run serves one stream and returns its status. A gRPC stream ends only when its handler returns, and then a Recv that
// waits in serve fails: so Close ends the handler, and Wait waits for serve.
func (g *Gate) Run(serve func() error) error { return g.RunUntil(nil, nil, serve) }

// RunUntil does so until done is closed, and returns then the error given.
func (g *Gate) RunUntil(done <-chan struct{}, then error, serve func() error) error {
	exit, err := g.Enter()
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	go func() {
		defer exit()
		result <- serve()
	}()
	select {
	case err := <-result:
		return err
	case <-done:
		return then
	case <-g.closed:
		return ErrClosed
	}
}

// Admit counts a stream for its Envoy and reports whether it is the first. It must
// be followed by Dismiss, unless there is an error, which is a gRPC status.
func (g *Gate) Admit(envoy envoyid.ID) (first bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.each[envoy]
	if n >= g.limits.Each {
		g.refused.Add(1)
		return false, status.Errorf(codes.ResourceExhausted,
			"node %q at %s already has %d streams, which is the limit", envoy.NodeID, envoy.Host, n)
	}
	g.each[envoy] = n + 1
	return n == 0, nil
}

// Dismiss undoes Admit and reports whether it was the Envoy's last stream.
func (g *Gate) Dismiss(envoy envoyid.ID) (last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.each[envoy]--; g.each[envoy] > 0 {
		return false
	}
	delete(g.each, envoy)
	return true
}

// Open returns the number of open streams.
func (g *Gate) Open() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

// Refused returns the number of streams that were too many.
func (g *Gate) Refused() uint64 { return g.refused.Load() }

// Closed is closed by Close, for a stream whose handler does not call Run.
func (g *Gate) Closed() <-chan struct{} { return g.closed }

// Close ends all streams, and refuses new ones.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut {
		g.shut = true
		close(g.closed)
	}
}

// Wait returns when all streams have ended.
func (g *Gate) Wait() { g.running.Wait() }
