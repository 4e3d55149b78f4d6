package conditions

import (
	"cmp"
	"slices"
	"strings"

	"steelyard/internal/api"
	"steelyard/internal/spelling"
)

// clientConditions returns the conditions about one connected Envoy.
func clientConditions(p *Observation, c *api.Client) (out []condition) {
	for i := range c.Subscriptions {
		out = append(out, subscriptionConditions(p, c, &c.Subscriptions[i])...)
	}
	subject := api.Subject{Kind: api.SubjectEnvoy, Name: c.NodeID}
	if c.Signals.State == api.SignalSilent {
		f := newCondition(kindSilent, api.SeverityWarning, subject,
			sprint("Envoy %s does not report its requests", c.NodeID)).explain(
			sprint("Latest access log entry: %s. Latest load report: %s.", formatAgo(c.Signals.LastEntry, p.Now),
				formatAgo(c.Signals.LastReport, p.Now)),
			api.BlameNo, "It accepts assignments, and sends no reports.",
			"Its requests are not counted meanwhile. See whether its access log and load reports reach this "+
				"port.", "")
		if len(c.Subscriptions) > 0 { // one that hangs does not answer either
			f.inhibitedBy = conditionID(kindBehind, c.Subscriptions[0].Cluster, c.NodeID)
		}
		out = append(out, f)
	}
	if c.Signals.Runtime.Nack != "" {
		f := newCondition(kindRefuses, api.SeverityWarning, subject,
			sprint("Envoy %s refuses the runtime values that switch its access log", c.NodeID)).explain(
			"Its answer: "+c.Signals.Runtime.Nack, api.BlameYes, "It refuses what Steelyard sends.",
			"Report it with the version of this Envoy: "+c.Version+".", "")
		f.ID += "/runtime"
		out = append(out, f)
	}
	return out
}

// leftConditions returns the conditions about Envoys that are disconnected.
func leftConditions(p *Observation) (out []condition) {
	for i := range p.Left {
		switch l := &p.Left[i]; {
		case lost(l, p.Now):
			out = append(out, lostConditions(l)...)
		case l.Vanished && p.Now.Sub(l.LeftAt.Time) < goneFor:
			out = append(out, goneCondition(l))
		}
	}
	return out
}

func goneCondition(l *api.LeftEnvoy) condition {
	f := newCondition(kindGone, api.SeverityWarning, api.Subject{Kind: api.SubjectEnvoy, Name: l.NodeID},
		sprint("Envoy %s disconnected without closing its streams", l.NodeID)).explain(
		sprint("%s (%s): %s. It subscribed to %s.", l.NodeID, l.Address, l.LeftReason,
			cmp.Or(Listed(l.Clusters), "nothing")),
		api.BlameNo, "Its connection ended from the other side, or with the network.",
		"See whether it still runs, and reaches this port. An Envoy that runs keeps its last weights.", "")
	f.began, f.keepFor = l.LeftAt.Time, 0
	return f
}

// subscriptionConditions are what is wrong with what an Envoy does with one assignment.
func subscriptionConditions(p *Observation, c *api.Client, s *api.Subscription) []condition {
	subject := api.Subject{Kind: api.SubjectEnvoy, Cluster: s.Cluster, Name: c.NodeID}
	configured := Names(p.Clusters)
	switch {
	case s.Nack.Current:
		blame, because := blameNack(s.Nack.Message)
		f := newCondition(kindRefuses, api.SeverityError, subject,
			sprint("Envoy %s refuses the weights of %s", c.NodeID, s.Cluster)).explain(
			"Its answer: "+OrUnknown(s.Nack.Message), blame, because,
			sprint("It keeps the assignment %s until it accepts another. Its version is %s: see whether others of "+
				"this version accept.", cmp.Or(s.VersionAcked, "nothing"), OrUnknown(c.Version)),
			"steelyard bootstrap --cluster "+quoted(s.Cluster)+" --xds HOST:PORT")
		f.began = s.Nack.At.Time
		return []condition{f}
	case behind(s, p.Now):
		return []condition{behindCondition(subject, sprint(
			"It was last sent an assignment of %s %s, and last accepted one %s.", s.Cluster,
			formatAgo(s.LastSent, p.Now), formatAgo(s.LastAck, p.Now)))}
	case !s.Known && !slices.Contains(configured, s.Cluster):
		why := "It gets no endpoints for that name, and answers its requests with 503."
		if near := spelling.Nearest(s.Cluster, configured); near != "" {
			why += sprint(" Did its configuration mean %s?", near)
		}
		// about the Envoy only: there is no such cluster
		f := newCondition(kindUnknownCluster, api.SeverityWarning,
			api.Subject{Kind: api.SubjectEnvoy, Name: c.NodeID},
			sprint("Envoy %s subscribes to %s, which is not configured here", c.NodeID, s.Resource)).explain(
			why, api.BlameNo, sprint("Configured clusters: %s.", cmp.Or(Listed(configured), "nothing")),
			"Correct its configuration, or configure the cluster here.", "")
		f.ID += "/" + s.Resource
		return []condition{f}
	}
	return nil
}

// blameNack is whether Steelyard is the cause of a refusal: what it writes into an assignment is its own.
func blameNack(message string) (api.Blame, string) {
	m := strings.ToLower(message)
	if strings.Contains(m, "unknown field") {
		return api.BlameInPart, "Steelyard sends a field that this version of Envoy does not have."
	}
	for _, own := range []string{"weight", "address", "drop", "overprovisioning", "priority", "endpoint"} {
		if strings.Contains(m, own) {
			return api.BlameYes, "It is about a part of the assignment that Steelyard writes."
		}
	}
	return api.BlameUnknown, "Envoy's answer does not show which part it refuses."
}

// lostConditions are about an Envoy whose connection was closed because it did not answer. They go on where those of
// the connection end: nothing shows that it does not run.
func lostConditions(l *api.LeftEnvoy) (out []condition) {
	clusters := l.Clusters
	if len(clusters) == 0 {
		clusters = []string{""}
	}
	for _, name := range clusters {
		f := behindCondition(api.Subject{Kind: api.SubjectEnvoy, Cluster: name, Name: l.NodeID}, sprint(
			"Neither assignments nor pings were answered, so Steelyard closed its connection at %s.",
			FormatClock(l.LeftAt)))
		f.began, f.keepFor = l.LeftAt.Time, 0
		out = append(out, f)
	}
	return out
}

func behindCondition(subject api.Subject, why string) condition {
	return newCondition(kindBehind, api.SeverityError, subject,
		sprint("Envoy %s does not answer", subject.Name)).explain(why,
		api.BlameInPart, "Until it answers, it uses the weights that it has, if it runs.",
		"See whether it runs, has CPU time and reaches this port; its connection is closed when it answers no ping.",
		"")
}
