package conditions

import (
	"time"

	"steelyard/internal/api"
)

// Results are how often the limit was reached, by what became of the new one.
func Results(b api.Bound) map[string]uint64 {
	return map[string]uint64{"refused": b.Refused, "displaced": b.Displaced}
}

// A NamedBound carries the name of its key in the JSON, and what it bounds in words.
type NamedBound struct {
	Name, what string
	api.Bound
}

// ConfiguredBounds are those that have the same name in the configuration's section xds.limits.
func ConfiguredBounds(p *api.Port) []NamedBound {
	return append(AdminBounds(&p.AdminPort),
		NamedBound{"streams", "streams", p.Streams}, NamedBound{"subscriptions", "subscriptions", p.Subscriptions})
}

func AdminBounds(p *api.AdminPort) []NamedBound {
	return []NamedBound{
		{"connections", "connections", p.Connections},
		{"connections_per_address", "connections from one address", p.ConnectionsPerAddress},
	}
}

// boundProblems returns a problem for each limit of a listener that was reached recently. It closes some of its
// connections in favour of new ones; setting is where the limit can be changed.
func boundProblems(listener, closed string, bounds []NamedBound, setting func(NamedBound) string, now time.Time) (
	out problemList,
) {
	for _, b := range bounds {
		reached := sprint("%s has reached its limit of %s", listener, b.what)
		state := sprint("%d of %d are used%s", b.Used, b.Limit, setting(b))
		if within(b.LastRefused, now, refusedRecently) {
			out.fail("%s: %d refused so far, the latest %s; %s", reached, b.Refused, formatAgo(b.LastRefused, now),
				state)
		}
		if within(b.LastDisplaced, now, refusedRecently) {
			out.warn("%s: it closes %s to make room for new ones, %d so far, the latest %s; %s", reached, closed,
				b.Displaced, formatAgo(b.LastDisplaced, now), state)
		}
	}
	return out
}

// portProblems returns the problems of the xDS port.
func portProblems(p *api.Port, now time.Time) []api.Problem {
	out := boundProblems("the xDS port", "idle connections", ConfiguredBounds(p), func(b NamedBound) string {
		return sprint(" (xds.limits.%s; %s open files are allowed)", b.Name, FormatFixed(p.OpenFilesLimit, 0))
	}, now)
	if b := p.UnreadBytes; within(b.LastDisplaced, now, refusedRecently) {
		out.fail("the xDS port closed %d connections, the latest %s, because all peers together had sent more than %d "+
			"bytes of incomplete requests: peers that are not Envoys connect, or Steelyard is overloaded", b.Displaced,
			formatAgo(b.LastDisplaced, now), b.Limit)
	}
	if within(p.LastAcceptErrorAt, now, refusedRecently) {
		out.fail("the xDS port could not accept connections %d times, the latest %s: %s", p.AcceptErrors,
			formatAgo(p.LastAcceptErrorAt, now), p.LastAcceptError)
	}
	return out
}

// silentProblems is about streams of the xDS port that sent nothing, whatever its limits are.
func silentProblems(p *api.Port, now time.Time) []api.Problem {
	var out problemList
	if within(p.LastSilentStreamAt, now, refusedRecently) {
		out.warn("the xDS port ended %d streams whose first message did not arrive in time, the latest %s: peers that "+
			"are not Envoys connect, or cannot send", p.SilentStreams, formatAgo(p.LastSilentStreamAt, now))
	}
	return out
}

// adminPortProblems returns the problems of the admin listener.
func adminPortProblems(p *api.AdminPort, now time.Time) []api.Problem {
	return boundProblems("the admin listener", "connections", AdminBounds(p),
		func(NamedBound) string { return "" }, now)
}
