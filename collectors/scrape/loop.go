package scrape

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"steelyard/collectors/modelserver"
)

// A loop scrapes one target. All that it keeps between two scrapes, mainly the sums of the counters, begins and ends
// with it. In between it is a timer: a waiting goroutine would keep its stack, which is as large as reading a page
// requires, and of thousands of loops most wait.
type loop struct {
	target   Target
	sink     func(Result)
	log      *slog.Logger
	bodies   *sync.Pool // of *bytes.Buffer, shared by all loops
	fetcher  *fetcher
	reader   *modelserver.Reader
	counters modelserver.Counters
	first    *modelserver.FirstTokens // nil if the engine has none
	firstAt  time.Time                // when it was last read
	broken   error                    // why this target can never be scraped; nil if it can

	scraping sync.Mutex  // held by a scrape and its planning
	timer    *time.Timer // of the next scrape
	planned  time.Time   // the next scrape, on the beat

	kind  string // of the last result, to detect a change; empty before the first
	flaps flaps
}

func newLoop(t Target, s *shared, sink func(Result), log *slog.Logger) *loop {
	l := &loop{target: t, sink: sink, bodies: &s.bodies, log: log}
	if l.fetcher, l.broken = newFetcher(&l.target, &s.network); l.broken == nil {
		l.reader, l.broken = s.reader(t)
		l.first = modelserver.NewFirstTokens(t.Engine)
	}
	return l
}

// start scrapes until ctx is done, on the beat of all loops with this epoch, and then calls ended. A target that can
// never be scraped is reported once, and not again until it is replaced.
func (l *loop) start(ctx context.Context, epoch time.Time, ended func()) {
	if l.broken != nil {
		go func() {
			defer ended()
			l.refuse()
		}()
		return
	}
	now := time.Now()
	l.planned = firstStart(epoch.Add(l.target.offset()), now, l.target.Interval)
	l.timer = time.AfterFunc(time.Hour, func() { l.scrapeAndPlan(ctx) })
	l.timer.Reset(l.planned.Sub(now)) // last, because the first scrape uses what is set above
	context.AfterFunc(ctx, func() {
		l.scraping.Lock()
		defer l.scraping.Unlock()
		l.timer.Stop() // a scrape that begins nevertheless finds ctx done
		l.fetcher.close()
		ended()
	})
}

// scrapeAndPlan scrapes once and plans the next scrape.
func (l *loop) scrapeAndPlan(ctx context.Context) {
	l.scraping.Lock()
	defer l.scraping.Unlock()
	if ctx.Err() != nil {
		return
	}
	result := l.scrape(ctx)
	if ctx.Err() != nil {
		return // the loop was stopped, so the failure shows nothing about the target
	}
	l.deliver(result)
	now := time.Now()
	l.planned = nextStart(l.planned, now, l.target.Interval)
	l.timer.Reset(l.planned.Sub(now))
}

// refuse reports why this target can never be scraped.
func (l *loop) refuse() {
	l.deliver(Result{At: time.Now(), Err: failure(KindConfig, "target %s: %w", l.target.URL, l.broken)})
}

// firstStart returns the first moment from now on that is a multiple of the interval after origin.
func firstStart(origin, now time.Time, interval time.Duration) time.Time {
	if !now.After(origin) {
		return origin
	}
	passed := (now.Sub(origin) + interval - 1) / interval
	return origin.Add(passed * interval)
}

// nextStart returns when the scrape after the planned one begins. Starts stay on the target's own beat, so that the
// targets stay spread. A scrape that overran its interval by less than half is followed at once; if it overran by more,
// the missed starts are skipped, never made up for.
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
		result.Err = failure(KindParse, "%s: %w", l.target.redacted(), err)
		return result
	}
	result.Doubt = report.Doubt
	var wrong []modelserver.Wrong
	if result.Report, wrong = l.counters.Observe(x.at(), report); wrong != nil {
		result.WrongCounters = l.reader.Describe(body.Bytes(), wrong)
	}
	// For display only, so once a second is enough.
	if now := x.at(); l.first != nil && now.Sub(l.firstAt) >= time.Second {
		l.firstAt, result.FirstToken = now, l.first.Observe(now, body.Bytes())
	}
	return result
}

// deliver logs a result and passes it on.
func (l *loop) deliver(r Result) {
	r.Cluster, r.Address = l.target.Cluster, l.target.Address
	l.report(r)
	l.sink(r)
}

// report logs what is new in a result.
func (l *loop) report(r Result) {
	kind := Kind(r.Err)
	switch {
	case kind == l.kind && r.Err != nil:
		l.write(slog.LevelDebug, "scrape failed", "kind", kind, "error", r.Err)
	case kind == KindOK && l.kind != KindOK && l.kind != "":
		if l.flaps.shouldLog(r.At, kind) {
			l.write(slog.LevelInfo, "endpoint's metrics are back", "after", l.kind)
		}
	case kind != l.kind && r.Err != nil:
		if l.flaps.shouldLog(r.At, kind) {
			l.write(slog.LevelInfo, "endpoint's metrics cannot be read", "kind", kind, "error", r.Err)
		}
	}
	l.kind = kind
	if changes, ok := l.flaps.summary(r.At); ok {
		l.write(slog.LevelInfo, "endpoint's metrics came and went", "changes", changes, "within", quiet, "now", kind)
	}
}

// write logs a line about the target. Binding these attributes once would take a logger per target.
func (l *loop) write(level slog.Level, message string, args ...any) {
	target := []any{"cluster", l.target.Cluster, "endpoint", l.target.Address}
	l.log.Log(context.Background(), level, message, append(target, args...)...)
}

// quiet is the time within which each kind of change is logged once: a page that alternates causes one line each way,
// and then a count.
const quiet = time.Minute

// flaps tracks the changes of a page between readable and unreadable.
type flaps struct {
	since   time.Time       // the first change of this period; zero without one
	logged  map[string]bool // kinds of results that a line was logged for
	leftOut int             // changes without a line
}

// shouldLog reports whether a change is logged.
func (f *flaps) shouldLog(at time.Time, kind string) bool {
	if f.since.IsZero() {
		f.since, f.logged = at, make(map[string]bool)
	}
	if f.logged[kind] {
		f.leftOut++
		return false
	}
	f.logged[kind] = true
	return true
}

// summary ends a period. It returns how many changes had no line, if there were any.
func (f *flaps) summary(at time.Time) (changes int, ok bool) {
	if f.since.IsZero() || at.Sub(f.since) < quiet {
		return 0, false
	}
	changes = f.leftOut
	*f = flaps{}
	return changes, changes > 0
}
