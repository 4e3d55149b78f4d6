package port

import (
	"log/slog"
	"sync"
	"time"
)

// sumsEvery is the time between two lines of one tally.
const sumsEvery = 10 * time.Second

// A tally logs events that a peer can cause thousands of times a second: the first at once, and then the number of
// events every ten seconds while there are more.
type tally struct {
	log     *slog.Logger
	message string

	mu     sync.Mutex
	timer  *time.Timer // of the next sum; nil if the next event is to be logged at once
	count  int         // since the latest line
	latest []any       // attributes of the latest event
	ended  bool
}

func newTally(log *slog.Logger, message string) *tally { return &tally{log: log, message: message} }

// add counts one event. It may log, so the caller must not hold a lock.
func (t *tally) add(attributes ...any) {
	if t.note(attributes) {
		t.log.Warn(t.message, append(attributes, "count", 1)...)
	}
}

// note reports whether add has to log the event now.
func (t *tally) note(attributes []any) (now bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return false
	}
	if t.timer == nil {
		t.timer = time.AfterFunc(sumsEvery, t.sum)
		return true
	}
	t.count++
	t.latest = attributes
	return false
}

// sum logs the events since the latest line, and starts the timer again if there were any.
func (t *tally) sum() {
	t.mu.Lock()
	count, latest := t.count, t.latest
	t.count, t.latest = 0, nil
	switch {
	case t.ended:
		count = 0
	case count == 0:
		t.timer = nil
	default:
		t.timer.Reset(sumsEvery)
	}
	t.mu.Unlock()
	if count > 0 {
		t.log.Warn(t.message, append(latest, "count", count)...)
	}
}

// end stops the sums.
func (t *tally) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.timer != nil {
		t.timer.Stop()
	}
}
