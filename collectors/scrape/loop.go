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
	broken   error // why this target can never be scraped; nil if it can

	kind string // of the last result, to see a change; empty before the first
}

func newLoop(t Target, n *network, bodies *sync.Pool, sink func(Result), log *slog.Logger) *loop {
	l := &loop{
		target: t, sink: sink, bodies: bodies,
		log: log.With("cluster", t.Cluster, "endpoint", t.Address),
	}
	if l.fetcher, l.broken = newFetcher(t, n); l.broken == nil {
		l.reader, l.broken = modelserver.NewReader(t.Engine, t.Custom)
	}
	return l
}

// run scrapes until ctx is done, on the beat of all loops with this epoch. A target that
// can never be scraped reports that once, and stays silent until it is replaced.
func (l *loop) run(ctx context.Context, epoch time.Time) {
	if l.broken != nil {
		l.deliver(Result{At: time.Now(), Err: failure(KindConfig, "target %s: %w", l.target.URL, l.broken)})
		return
	}
	defer l.fetcher.close()
	now := time.Now()
	planned := firstStart(epoch.Add(l.target.offset()), now, l.target.Interval)
	timer := time.NewTimer(planned.Sub(now))
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
		planned = nextStart(planned, now, l.target.Interval)
		timer.Reset(planned.Sub(now))
	}
}

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
		l.log.Info("endpoint's metrics are back", "after", l.kind)
	case kind != l.kind && r.Err != nil:
		l.log.Info("endpoint's metrics cannot be read", "kind", kind, "error", r.Err)
	}
	l.kind = kind
	l.sink(r)
}
