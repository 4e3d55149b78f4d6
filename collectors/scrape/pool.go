package scrape

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"steelyard/collectors/modelserver"
	"steelyard/internal/credentials"
	"steelyard/weighting"
)

// A Result is the outcome of one fetch.
type Result struct {
	Cluster, Address string
	At               time.Time              // middle of the exchange: when the report was true
	Duration         time.Duration          // of the exchange, body included
	BodyBytes        int64                  // read of the body, whether it was of use or not
	Report           weighting.ServerReport // zero if Err is set
	Err              error                  // Kind(Err) sorts it
	// FirstToken is about once a second, and nil otherwise, and where it is not known.
	FirstToken *modelserver.Histogram
}

// A Pool keeps one loop for each target.
type Pool struct {
	sink   func(Result)
	log    *slog.Logger
	shared *shared
	epoch  time.Time // when the beat of all loops began

	// Progress watches that the pool follows its targets; set it before Run. Nil: nobody does. The fetches are not
	// watched: all that they wait for has a deadline, and a server that hangs is no fault of this process.
	Progress Progress

	// Credentials have the files of the targets' TLS, and keep them up to date; set it before Run. Nil: they are read
	// once.
	Credentials *credentials.Store

	changed chan struct{} // capacity one: wanted is not what runs
	mu      sync.Mutex
	wanted  map[Target]struct{}
	soon    bool // those that are new since are scraped soon
}

// A Progress is told when work begins that ends soon whatever the servers do, and when it has ended.
type Progress interface {
	Begin()
	End()
}

// New makes a pool that hands every result to sink. Loops call sink
// concurrently, one call at a time for each target, and wait for its return.
func New(sink func(Result), log *slog.Logger) *Pool {
	return &Pool{
		sink:    sink,
		log:     log,
		shared:  newShared(),
		epoch:   time.Now(),
		changed: make(chan struct{}, 1),
	}
}

// SetTargets replaces the set of targets, and returns at once. A target that
// was in the set before keeps its loop, connection and counters; one that
// differs in any field is stopped and begins again; the others go on unmoved.
// Targets can be set before Run, and at any time.
func (p *Pool) SetTargets(targets []Target) { p.set(targets, false) }

// TakeOver is SetTargets for targets of which others were scraped until now by another process: the first scrape of
// each does not wait for its beat, however long the interval is.
func (p *Pool) TakeOver(targets []Target) { p.set(targets, true) }

func (p *Pool) set(targets []Target, soon bool) {
	wanted := make(map[Target]struct{}, len(targets))
	for _, t := range targets {
		wanted[t] = struct{}{}
	}
	p.mu.Lock()
	p.wanted, p.soon = wanted, soon
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default: // a change is already announced; it will find this set
	}
}

// Run scrapes the targets until ctx is done and every loop has ended; it
// returns nil. Call it once.
func (p *Pool) Run(ctx context.Context) error {
	p.shared.network.credentials = p.Credentials
	if p.shared.network.credentials == nil {
		p.shared.network.credentials = credentials.New(p.log)
	}
	running := make(map[Target]*running)
	defer p.reconcile(ctx, running, nil, false)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.changed:
		}
		p.mu.Lock()
		wanted, soon := p.wanted, p.soon
		p.mu.Unlock()
		p.reconcile(ctx, running, wanted, soon)
	}
}

// running is a loop at work.
type running struct {
	stop context.CancelFunc
	done chan struct{}
}

// reconcile makes the running loops those of the wanted targets. It waits for
// the loops that it stops before it starts others: an endpoint whose target has
// changed must not be reported by two loops at once. A loop that has been stopped ends at once, also in the middle of
// a fetch.
func (p *Pool) reconcile(ctx context.Context, loops map[Target]*running, wanted map[Target]struct{}, soon bool) {
	if p.Progress != nil {
		p.Progress.Begin()
		defer p.Progress.End()
	}
	var stopped []*running
	for t, r := range loops {
		if _, ok := wanted[t]; !ok {
			r.stop()
			stopped = append(stopped, r)
			delete(loops, t)
		}
	}
	for _, r := range stopped {
		<-r.done
	}
	p.shared.keepReaders(wanted)
	for t := range wanted {
		if loops[t] == nil {
			loops[t] = p.start(ctx, t, soon)
		}
	}
}

func (p *Pool) start(ctx context.Context, t Target, soon bool) *running {
	ctx, cancel := context.WithCancel(ctx)
	r := &running{stop: cancel, done: make(chan struct{})}
	newLoop(t, p.shared, p.sink, p.log).start(ctx, p.epoch, soon, func() {
		cancel()
		close(r.done)
	})
	return r
}
