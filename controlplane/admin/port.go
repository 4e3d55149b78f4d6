package admin

import (
	"fmt"
	"time"
)

// A Port is what the peers of a listener take of what they may, all of them together.
type Port struct {
	Connections Bound `json:"connections"`
	// ConnectionsPerAddress is that of the address with the most connections.
	ConnectionsPerAddress Bound `json:"connections_per_address"`
	Streams               Bound `json:"streams"`
	Subscriptions         Bound `json:"subscriptions"`

	// SilentStreams were ended because their first message did not arrive in time.
	SilentStreams      uint64 `json:"silent_streams"` // since the start
	LastSilentStreamAt Time   `json:"last_silent_stream_at"`

	OpenFilesLimit    Number `json:"open_files_limit"` // of the process
	AcceptErrors      uint64 `json:"accept_errors"`
	LastAcceptError   string `json:"last_accept_error"` // empty when there never was one
	LastAcceptErrorAt Time   `json:"last_accept_error_at"`
}

// A Bound is how much of something there is, may be, and was turned away.
type Bound struct {
	Used          int    `json:"used"`
	Limit         int    `json:"limit"`
	Refused       uint64 `json:"refused"` // for want of room, since the start
	LastRefused   Time   `json:"last_refused"`
	Displaced     uint64 `json:"displaced"` // idle ones that were closed to make room for new ones, since the start
	LastDisplaced Time   `json:"last_displaced"`
}

// A namedBound carries the name of its key in the JSON, which is also that in the configuration's section
// xds.limits, and what it bounds in words.
type namedBound struct {
	name, what string
	Bound
}

func (p Port) bounds() []namedBound {
	return []namedBound{
		{"connections", "connections", p.Connections},
		{"connections_per_address", "connections from one address", p.ConnectionsPerAddress},
		{"streams", "streams", p.Streams},
		{"subscriptions", "subscriptions", p.Subscriptions},
	}
}

// refusedLately is how long a refusal is a problem: long enough to be seen, short enough for the state to be
// that of now.
const refusedLately = 5 * time.Minute

// portProblems are those of the bounds that turned somebody away lately.
func portProblems(p Port, now time.Time) []Problem {
	var out []Problem
	for _, b := range p.bounds() {
		state := fmt.Sprintf("%d of %d are used (xds.limits.%s; %s open files are allowed)", b.Used, b.Limit, b.name, formatInt(p.OpenFilesLimit))
		if within(b.LastRefused, now, refusedLately) {
			out = append(out, problem(SeverityError, "the xDS port refuses peers, there are too many %s: %d refused so far, the latest %s; %s",
				b.what, b.Refused, formatAgo(b.LastRefused, now), state))
		}
		if within(b.LastDisplaced, now, refusedLately) {
			out = append(out, problem(SeverityWarning, "the xDS port closes idle connections to make room for new ones, there are too many %s: %d closed so far, the latest %s; %s",
				b.what, b.Displaced, formatAgo(b.LastDisplaced, now), state))
		}
	}
	if within(p.LastSilentStreamAt, now, refusedLately) {
		out = append(out, problem(SeverityWarning,
			"the xDS port ended %d streams whose first message did not arrive in time, the latest %s: "+
				"peers that are no Envoys connect, or cannot send",
			p.SilentStreams, formatAgo(p.LastSilentStreamAt, now)))
	}
	if within(p.LastAcceptErrorAt, now, refusedLately) {
		out = append(out, problem(SeverityError, "the xDS port could not accept connections %d times, the latest %s: %s", p.AcceptErrors, formatAgo(p.LastAcceptErrorAt, now), p.LastAcceptError))
	}
	return out
}

// within reports whether t is no longer ago than that.
func within(t Time, now time.Time, ago time.Duration) bool {
	return !t.IsZero() && now.Sub(t.Time) < ago
}
