package asynclog

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

const (
	interval   = 10 * time.Second // between two summaries
	burst      = 20               // lines with one message about one subject, written in an interval
	maxTallies = 4096
)

// A subject is what lines are about: a client's host, or a library.
type subject struct{ key, value string }

// others stands for all further subjects when there are too many: they share a tally for each message.
var others = subject{"host", "others"}

// subjectOf returns the subject that an attribute names; ok is false where it names none.
func subjectOf(a slog.Attr) (s subject, ok bool) {
	switch a.Key {
	case "host", "library":
		return subject{a.Key, a.Value.String()}, true
	case "peer":
		peer := a.Value.String()
		if p, err := netip.ParseAddrPort(peer); err == nil {
			peer = p.Addr().Unmap().String()
		}
		return subject{"host", peer}, true
	}
	return subject{}, false
}

// handler leaves out repeated lines.
type handler struct {
	next    slog.Handler
	repeats *repeats
	about   subject // of the logger's own attributes; zero for none
}

func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo && !h.repeats.admit(r, h.subjectOf(r)) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

func (h handler) subjectOf(r slog.Record) subject {
	about := h.about
	r.Attrs(func(a slog.Attr) bool {
		if s, ok := subjectOf(a); ok {
			about = s
		}
		return true
	})
	return about
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.next = h.next.WithAttrs(attrs)
	for _, a := range attrs {
		if s, ok := subjectOf(a); ok {
			h.about = s
		}
	}
	return h
}

func (h handler) WithGroup(name string) slog.Handler {
	h.next = h.next.WithGroup(name)
	return h
}

// repeats counts lines by message and subject.
type repeats struct {
	mu      sync.Mutex
	tallies map[tallied]*tally
}

type tallied struct {
	line  string // the message; empty for a library, whose messages count together
	about subject
}

// A tally is of one interval.
type tally struct {
	level   slog.Level
	room    int // lines that may still be written
	leftOut int
}

// A summary counts lines that were left out.
type summary struct {
	tallied
	tally
}

func newRepeats() *repeats { return &repeats{tallies: make(map[tallied]*tally)} }

// admit reports whether to write the record. A record without a subject is always written.
func (r *repeats) admit(record slog.Record, about subject) bool {
	if about == (subject{}) {
		return true
	}
	key := tallied{record.Message, about}
	if about.key == "library" {
		key.line = ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tallies[key]
	if t == nil && len(r.tallies) >= maxTallies {
		key.about = others // no more of these than there are messages in the code
		t = r.tallies[key]
	}
	if t == nil {
		t = &tally{room: burst}
		r.tallies[key] = t
	}
	if t.room > 0 {
		t.room--
		return true
	}
	t.level = max(t.level, record.Level)
	t.leftOut++
	return false
}

// summaries ends the interval. A subject that had lines left out gets none in the next interval.
func (r *repeats) summaries() []summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []summary
	for key, t := range r.tallies {
		if t.leftOut == 0 {
			delete(r.tallies, key)
			continue
		}
		out = append(out, summary{key, *t})
		*t = tally{}
	}
	return out
}
