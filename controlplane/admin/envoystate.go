package admin

import (
	"slices"
	"time"

	"steelyard/controlplane/view"
	"steelyard/internal/stat"
)

// An EnvoyState shows whether an Envoy follows the weights. The page, the commands and the counts all use it.
type EnvoyState string

// The states of an Envoy. Where several hold, the first one counts.
const (
	EnvoyRefuses EnvoyState = "refuses" // it refused the latest assignment
	EnvoyBehind  EnvoyState = "behind"  // it has not answered for five seconds; after ten minutes it is gone
	EnvoyUnknown EnvoyState = "unknown" // it subscribes to a cluster that is not configured or has nothing to send yet
	EnvoySilent  EnvoyState = "silent"  // it follows, and does not report its requests
	EnvoyIdle    EnvoyState = "idle"    // it subscribes to nothing
	EnvoyFollows EnvoyState = "follows" // it accepted all of its assignments
	EnvoyGone    EnvoyState = "gone"    // its connection ended while its streams were open
	EnvoyLeft    EnvoyState = "left"    // it closed its streams
)

// goneFor is how long an Envoy that vanished is an incident.
const goneFor = 10 * time.Minute

// SubscriptionState returns the state of one name that an Envoy subscribes to.
func SubscriptionState(s *stat.Subscription, now time.Time) EnvoyState {
	switch {
	case s.Nack.Current:
		return EnvoyRefuses
	case behind(s, now):
		return EnvoyBehind
	case !s.Known:
		return EnvoyUnknown
	}
	return EnvoyFollows
}

// behind reports whether an Envoy has not answered for longer than Envoys take.
func behind(s *stat.Subscription, now time.Time) bool {
	return !s.InSync && s.VersionSent != s.VersionAcked && s.LastSent.Age(now).Or(0) > ackPatience.Seconds()
}

// clientState is the worst of an Envoy's subscriptions.
func clientState(c *Client, now time.Time) EnvoyState {
	if len(c.Subscriptions) == 0 {
		return EnvoyIdle
	}
	order := []EnvoyState{EnvoyRefuses, EnvoyBehind, EnvoyUnknown, EnvoyFollows}
	worst := len(order) - 1
	for i := range c.Subscriptions {
		worst = min(worst, slices.Index(order, SubscriptionState(&c.Subscriptions[i], now)))
	}
	if order[worst] == EnvoyFollows && c.Signals.State == SignalSilent {
		return EnvoySilent
	}
	return order[worst]
}

// leftState returns the state of an Envoy that is not connected any more.
func leftState(l *LeftEnvoy, now time.Time) EnvoyState {
	switch {
	case !l.Vanished:
		return EnvoyLeft
	case lost(l, now):
		return EnvoyBehind
	}
	return EnvoyGone
}

// lost reports whether an Envoy that answered nothing has to be expected to run: it may hang, and may go on.
func lost(l *LeftEnvoy, now time.Time) bool { return l.Silent && now.Sub(l.LeftAt.Time) < goneFor }

// envoysOf counts the Envoys by what they do.
func envoysOf(p *observation) (n fleetEnvoys) {
	n.Connected, n.Left = len(p.clients), len(p.left)
	for i := range p.clients {
		switch clientState(&p.clients[i], p.now) {
		case EnvoyRefuses:
			n.Refusing++
		case EnvoyBehind:
			n.Behind++
		case EnvoyFollows, EnvoySilent:
			n.InSync++
		}
	}
	for i := range p.left {
		n.Lost += boolToInt(lost(&p.left[i], p.now))
	}
	return n
}

// Asked are the Envoys that should follow: those that are connected, and those that may still run.
func (n fleetEnvoys) Asked() int { return n.Connected + n.Lost }

// leftEnvoys are those that left in the last hour.
func (m *moment) leftEnvoys(now time.Time) []LeftEnvoy {
	if m == nil {
		return []LeftEnvoy{}
	}
	out := slices.Clone(orEmpty(m.left))
	for i := range out {
		out[i].State = leftState(&out[i], now)
	}
	return out
}

// lostConditions are about an Envoy whose connection was closed because it did not answer. They go on where those of
// the connection end: nothing shows that it does not run.
func lostConditions(l *LeftEnvoy) (out []condition) {
	clusters := l.Clusters
	if len(clusters) == 0 {
		clusters = []string{""}
	}
	for _, name := range clusters {
		f := behindCondition(view.Subject{Kind: view.SubjectEnvoy, Cluster: name, Name: l.NodeID}, sprint(
			"Neither assignments nor pings were answered, so Steelyard closed its connection at %s.",
			formatClock(l.LeftAt)))
		f.began, f.keepFor = l.LeftAt.Time, 0
		out = append(out, f)
	}
	return out
}

func behindCondition(subject view.Subject, why string) condition {
	return newCondition(kindBehind, view.SeverityError, subject,
		sprint("Envoy %s does not answer", subject.Name)).explain(why,
		view.BlameInPart, "Until it answers it balances by the weights that it has, if it runs.",
		"See whether it runs, has CPU time and reaches this port; its connection is closed when it answers no ping.",
		"")
}
