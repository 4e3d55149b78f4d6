package tally

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// A Tally logs the first event at once, and then the number of events once per interval while there are more. The
// number is the attribute "count", and the other attributes are those of the latest event.
type Tally struct {
	log     *slog.Logger
	level   slog.Level
	message string
	every   time.Duration

	mu     sync.Mutex
	timer  *time.Timer // of the next sum; nil if the next event is to be logged at once
	count  int         // since the latest line
	latest []any       // attributes of the latest event
	ended  bool
}

// New makes a tally of one kind of event.
func New(log *slog.Logger, level slog.Level, message string, every time.Duration) *Tally {
	return &Tally{log: log, level: level, message: message, every: every}
}

// Add counts one event. It may log, so the caller must not hold a lock.
func (t *Tally) Add(attributes ...any) {
	if t.dueNow(attributes) {
		t.write(attributes, 1)
	}
}

// dueNow reports whether Add has to log the event now.
func (t *Tally) dueNow(attributes []any) (now bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return false
	}
	if t.timer == nil {
		t.timer = time.AfterFunc(t.every, t.sum)
		return true
	}
	t.count++
	t.latest = attributes
	return false
}

// sum logs the events since the latest line, and starts the timer again if there were any.
func (t *Tally) sum() {
	t.mu.Lock()
	count, latest := t.count, t.latest
	t.count, t.latest = 0, nil
	switch {
	case t.ended:
		count = 0
	case count == 0:
		t.timer = nil
	default:
		t.timer.Reset(t.every)
	}
	t.mu.Unlock()
	if count > 0 {
		t.write(latest, count)
	}
}

func (t *Tally) write(attributes []any, count int) {
	t.log.Log(context.Background(), t.level, t.message, append(attributes, "count", count)...)
}

// End stops the sums.
func (t *Tally) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.timer != nil {
		t.timer.Stop()
	}
}
