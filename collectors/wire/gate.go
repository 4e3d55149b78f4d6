package wire

import (
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"steelyard/collectors/ledger"
)

// patience is how long a stream may take to name its Envoy. An Envoy does so with
// the message that it opens the stream for.
const patience = 10 * time.Second

// A Gate is what the streams of a service pass through: it counts them, bounds
// them, and can end them all. Make one with NewGate.
type Gate struct {
	limitEach int
	closed    chan struct{}
	running   sync.WaitGroup
	refused   atomic.Uint64 // streams for which there was no room, and that named no node

	mu      sync.Mutex
	shut    bool
	open    int
	streams map[ledger.Envoy]int
}

// NewGate lets in so many streams of each Envoy. How many there are of all is bounded by the port that they come
// over, where an Envoy gets in even if a stranger has taken what it could.
func NewGate(limitEach int) *Gate {
	return &Gate{
		limitEach: limitEach,
		closed:    make(chan struct{}),
		streams:   make(map[ledger.Envoy]int),
	}
}

// Run serves one stream and returns what is to be its status. A gRPC stream ends
// only when its handler returns, and then a Recv that waits in serve fails: so
// Close ends the handler, and waits for serve. serve calls named when it knows whom
// the stream is of; one that has not for ten seconds is ended.
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
		return errMute
	case <-known:
	}
	select {
	case err := <-result:
		return err
	case <-g.closed:
		return errClosed
	}
}

// Refused is the number of streams that were more than one Envoy may have,
// and of those that did not name their Envoy in time.
func (g *Gate) Refused() uint64 { return g.refused.Load() }

var errMute = status.Errorf(codes.DeadlineExceeded,
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
			"node %q at %s has %d streams already, and no more are served", envoy.NodeID, envoy.Host, n)
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

// Open is the number of streams.
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
