package wire

import (
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"steelyard/collectors/ledger"
)

// patience is how long a stream may take to name its Envoy, which every Envoy does in its first message.
const patience = 10 * time.Second

// A Gate counts the streams of a service, bounds them, and can end them all. Make one with NewGate.
type Gate struct {
	limitEach int
	closed    chan struct{}
	running   sync.WaitGroup
	refused   atomic.Uint64 // streams that were too many, or named no node

	mu      sync.Mutex
	shut    bool
	open    int
	streams map[ledger.Envoy]int
}

// NewGate makes a Gate that admits limitEach streams of each Envoy. The port that the streams come over bounds the
// total, so that an Envoy is admitted even if an unknown client has taken all that it may.
func NewGate(limitEach int) *Gate {
	return &Gate{
		limitEach: limitEach,
		closed:    make(chan struct{}),
		streams:   make(map[ledger.Envoy]int),
	}
}

// Run serves one stream and returns its status. A gRPC stream ends only when its handler returns, and then a Recv that
// waits in serve fails: so Close ends the handler, and waits for serve. serve calls named when the stream's Envoy is
// known; a stream that has not named it within ten seconds is ended.
func (g *Gate) Run(serve func(named func()) error) error {
	if err := g.enter(); err != nil {
		return err
	}
	result, known := make(chan error, 1), make(chan struct{})
	go func() {
		defer g.exit()
		result <- serve(sync.OnceFunc(func() { close(known) }))
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-result:
		return err
	case <-g.closed:
		return errClosed
	case <-timer.C:
		g.refused.Add(1)
		return errUnnamed
	case <-known:
	}
	select {
	case err := <-result:
		return err
	case <-g.closed:
		return errClosed
	}
}

// Refused returns the number of streams that were more than one Envoy may have, and of those that did not name their
// Envoy in time.
func (g *Gate) Refused() uint64 { return g.refused.Load() }

var errUnnamed = status.Errorf(codes.DeadlineExceeded,
	"the stream has named no node within %v: every Envoy does with its first message", patience)

var errClosed = status.Error(codes.Unavailable, "the control plane is shutting down")

func (g *Gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return errClosed
	}
	g.open++
	g.running.Add(1)
	return nil
}

func (g *Gate) exit() {
	g.mu.Lock()
	g.open--
	g.mu.Unlock()
	g.running.Done()
}

// Admit counts a stream for its Envoy and reports whether it is the first. It must
// be followed by Dismiss, unless there is an error, which is a gRPC status.
func (g *Gate) Admit(envoy ledger.Envoy) (first bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.streams[envoy]
	if n >= g.limitEach {
		g.refused.Add(1)
		return false, status.Errorf(codes.ResourceExhausted,
			"node %q at %s already has %d streams, which is the limit", envoy.NodeID, envoy.Host, n)
	}
	g.streams[envoy] = n + 1
	return n == 0, nil
}

// Dismiss undoes Admit and reports whether it was the Envoy's last stream.
func (g *Gate) Dismiss(envoy ledger.Envoy) (last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.streams[envoy]--; g.streams[envoy] > 0 {
		return false
	}
	delete(g.streams, envoy)
	return true
}

// Open returns the number of open streams.
func (g *Gate) Open() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

// Close ends all streams, refuses new ones, and returns when all have ended.
func (g *Gate) Close() {
	g.mu.Lock()
	if !g.shut {
		g.shut = true
		close(g.closed)
	}
	g.mu.Unlock()
	g.running.Wait()
}
