package scrape

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"steelyard/internal/api"
	"steelyard/internal/credentials"
	"steelyard/internal/loops"
	"steelyard/weighting"
)

// A Result is the outcome of one fetch.
type Result struct {
	Cluster, Address string
	At               time.Time              // middle of the exchange: when the report was true
	Duration         time.Duration          // of the exchange, body included
	BodyBytes        int64                  // read of the body, even if it was not usable
	Report           weighting.ServerReport // zero if Err is set
	Err              error                  // see Kind
	Doubt            string                 // why a number of the page is unknown although it is there; empty for none
	// WrongCounters says which counters of the page cannot be right, and why; empty if all can.
	WrongCounters string
	// FirstToken is set about once a second, if the engine exports it, and nil otherwise.
	FirstToken *api.Histogram
}

// A Pool keeps one loop for each target.
type Pool struct {
	sink   func(Result)
	log    *slog.Logger
	shared *shared
	epoch  time.Time // when the beat of all loops began

	// Progress watches whether the pool follows its targets; set it before Run. Nil if nothing watches. The fetches are
	// not watched: all that they wait for has a deadline, and a server that hangs is not a failure of this process.
	Progress Progress

	// Credentials have the files of the targets' TLS, and keep them up to date; set it before Run. Nil: they are read
	// once.
	Credentials *credentials.Store

	changed loops.Signal // wanted differs from what runs
	mu      sync.Mutex
	wanted  map[Target]struct{}
}

// A Progress is notified when work begins that must end soon whatever the servers do, and when it has ended.
type Progress interface {
	Begin()
	End()
}

// New makes a pool that passes every result to sink. Loops call sink concurrently, one call at a time for each target,
// and wait for it to return.
func New(sink func(Result), log *slog.Logger) *Pool {
	return &Pool{
		sink:    sink,
		log:     log,
		shared:  newShared(),
		epoch:   time.Now(),
		changed: loops.NewSignal(),
	}
}

// SetTargets replaces the set of targets, and returns at once. A target that was in the set before keeps its loop,
// connection and counters; one that differs in any field is stopped and started again; the others are not affected.
// Targets can be set before Run, and at any time.
func (p *Pool) SetTargets(targets []Target) {
	wanted := make(map[Target]struct{}, len(targets))
	for _, t := range targets {
		wanted[t] = struct{}{}
	}
	p.mu.Lock()
	p.wanted = wanted
	p.mu.Unlock()
	p.changed.Set()
}

// Run scrapes the targets until ctx is done and every loop has ended; it
// returns nil. Call it once.
func (p *Pool) Run(ctx context.Context) error {
	p.shared.network.credentials = p.Credentials
	if p.shared.network.credentials == nil {
		p.shared.network.credentials = credentials.New(p.log)
	}
	running := make(map[Target]*running)
	defer p.reconcile(ctx, running, nil)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.changed:
		}
		p.mu.Lock()
		wanted := p.wanted
		p.mu.Unlock()
		p.reconcile(ctx, running, wanted)
	}
}

// running is a loop that runs.
type running struct {
	stop context.CancelFunc
	done chan struct{}
}

// reconcile starts and stops loops until those of the wanted targets run. It waits for the loops that it stops before
// it starts others: an endpoint whose target has changed must not be reported by two loops at once. A stopped loop ends
// at once, even in the middle of a fetch.
func (p *Pool) reconcile(ctx context.Context, loops map[Target]*running, wanted map[Target]struct{}) {
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
			loops[t] = p.start(ctx, t)
		}
	}
}

func (p *Pool) start(ctx context.Context, t Target) *running {
	ctx, cancel := context.WithCancel(ctx)
	r := &running{stop: cancel, done: make(chan struct{})}
	newLoop(t, p.shared, p.sink, p.log).start(ctx, p.epoch, func() {
		cancel()
		close(r.done)
	})
	return r
}
