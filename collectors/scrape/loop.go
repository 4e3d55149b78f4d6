package scrape

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"steelyard/collectors/modelserver"
)

// A loop scrapes one target. All that it remembers between two scrapes, the
// sums of the counters above all, begins and ends with it.
type loop struct {
	target   Target
	sink     func(Result)
	log      *slog.Logger
	bodies   *sync.Pool // of *bytes.Buffer, shared by all loops
	fetcher  *fetcher
	reader   *modelserver.Reader
	counters modelserver.Counters
	first    *modelserver.FirstTokens // nil where the engine has none
	firstAt  time.Time                // when it was last read
	broken   error                    // why this target can never be scraped; nil if it can

	kind  string // of the last result, to see a change; empty before the first
	flaps flaps
}

func newLoop(t Target, n *network, bodies *sync.Pool, sink func(Result), log *slog.Logger) *loop {
	l := &loop{
		target: t, sink: sink, bodies: bodies,
		log: log.With("cluster", t.Cluster, "endpoint", t.Address),
	}
	if l.fetcher, l.broken = newFetcher(t, n); l.broken == nil {
		l.reader, l.broken = modelserver.NewReader(t.Engine, t.Custom)
		l.first = modelserver.NewFirstTokens(t.Engine)
	}
	return l
}

// run scrapes until ctx is done, on the beat of all loops with this epoch. A target that
// can never be scraped reports that once, and stays silent until it is replaced. One that is scraped soon is scraped
// once before its beat, if that is late.
func (l *loop) run(ctx context.Context, epoch time.Time, soon bool) {
	if l.broken != nil {
		l.deliver(Result{At: time.Now(), Err: failure(KindConfig, "target %s: %w", l.target.URL, l.broken)})
		return
	}
	defer l.fetcher.close()
	now := time.Now()
	planned := firstStart(epoch.Add(l.target.offset()), now, l.target.Interval)
	first := planned
	if early := now.Add(l.target.offset() % takeOverWithin); soon && early.Before(planned) {
		first = early
	}
	timer := time.NewTimer(first.Sub(now))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		result := l.scrape(ctx)
		if ctx.Err() != nil {
			return // the loop was stopped, so the failure shows nothing about the target
		}
		l.deliver(result)
		now = time.Now()
		if now.After(planned) || !first.Before(planned) {
			planned = nextStart(planned, now, l.target.Interval)
		}
		first = planned
		timer.Reset(planned.Sub(now))
	}
}

// takeOverWithin is the time in which targets that are taken over are scraped once, spread as their beats are.
const takeOverWithin = 200 * time.Millisecond

// firstStart is the first moment from now on that is some whole intervals after origin.
func firstStart(origin, now time.Time, interval time.Duration) time.Time {
	if !now.After(origin) {
		return origin
	}
	passed := (now.Sub(origin) + interval - 1) / interval
	return origin.Add(passed * interval)
}

// nextStart is when the scrape after the planned one begins. Starts stay on the
// target's own beat, so that the spread over the targets lasts. A scrape that
// overran its interval by less than half is followed at once; of more, the
// starts that were missed are skipped, never made up for.
func nextStart(planned, now time.Time, interval time.Duration) time.Time {
	next := planned.Add(interval)
	if late := now.Sub(next); late > interval/2 {
		next = next.Add((late/interval + 1) * interval)
	}
	return next
}

// scrape fetches and reads the page once.
func (l *loop) scrape(ctx context.Context) Result {
	x, body, err := l.fetcher.fetch(ctx, l.bodies)
	if body != nil {
		defer l.bodies.Put(body)
	}
	result := Result{At: x.at(), Duration: x.end.Sub(x.start), BodyBytes: x.bytes}
	if err != nil {
		result.Err = err
		return result
	}
	report, err := l.reader.Read(body.Bytes())
	if err != nil {
		result.Err = failure(KindParse, "%s: %w", l.fetcher.request.URL.Redacted(), err)
		return result
	}
	result.Report = l.counters.Observe(x.at(), report)
	// For display only, so once a second is enough.
	if now := x.at(); l.first != nil && now.Sub(l.firstAt) >= time.Second {
		l.firstAt, result.FirstToken = now, l.first.Observe(now, body.Bytes())
	}
	return result
}

// deliver logs and hands on a result.
func (l *loop) deliver(r Result) {
	r.Cluster, r.Address = l.target.Cluster, l.target.Address
	kind := Kind(r.Err)
	switch {
	case kind == l.kind && r.Err != nil:
		l.log.Debug("scrape failed", "kind", kind, "error", r.Err)
	case kind == KindOK && l.kind != KindOK && l.kind != "":
		if l.flaps.speak(r.At, kind) {
			l.log.Info("endpoint's metrics are back", "after", l.kind)
		}
	case kind != l.kind && r.Err != nil:
		if l.flaps.speak(r.At, kind) {
			l.log.Info("endpoint's metrics cannot be read", "kind", kind, "error", r.Err)
		}
	}
	l.kind = kind
	if changes, ok := l.flaps.summary(r.At); ok {
		l.log.Info("endpoint's metrics came and went", "changes", changes, "within", quiet, "now", kind)
	}
	l.sink(r)
}

// quiet is the time in which each kind of change is logged once: a page that comes and goes is one line each way, and
// then a count.
const quiet = time.Minute

// flaps are the changes of a page from readable to not and back.
type flaps struct {
	since   time.Time       // of the first change of this quiet; zero without one
	spoken  map[string]bool // by the kind of result that it changed to
	leftOut int             // changes without a line
}

// speak reports whether a change is logged.
func (f *flaps) speak(at time.Time, kind string) bool {
	if f.since.IsZero() {
		f.since, f.spoken = at, make(map[string]bool)
	}
	if f.spoken[kind] {
		f.leftOut++
		return false
	}
	f.spoken[kind] = true
	return true
}

// summary ends a quiet. It returns how many changes had no line, if there were some.
func (f *flaps) summary(at time.Time) (changes int, ok bool) {
	if f.since.IsZero() || at.Sub(f.since) < quiet {
		return 0, false
	}
	changes = f.leftOut
	*f = flaps{}
	return changes, changes > 0
}
