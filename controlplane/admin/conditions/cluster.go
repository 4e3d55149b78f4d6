package conditions

import (
	"slices"
	"strings"
	"time"

	"steelyard/internal/api"
)

// clusterConditions returns the conditions about a cluster as a whole.
func clusterConditions(p *Observation, c *api.Cluster) []condition {
	subject := api.Subject{Kind: api.SubjectCluster, Cluster: c.Name}
	out := decisionConditions(p, c, subject)
	out = append(out, sheddingConditions(p, c, subject)...)
	out = append(out, queueConditions(p, c, subject)...)
	for i := range c.Sources {
		out = append(out, sourceConditions(p, c, &c.Sources[i], subject)...)
	}
	out = append(out, fullConditions(c, subject)...)
	out = append(out, overloadedConditions(c, subject)...)
	out = append(out, asleepConditions(c, subject)...)
	out = append(out, lateConditions(c, subject)...)
	out = append(out, followConditions(p, c, subject)...)
	for _, d := range c.Disputes {
		out = append(out, disputeCondition(p, c, d))
	}
	return out
}

const (
	// disputePatience is how long a dispute has to last: short ones end by themselves.
	disputePatience = time.Minute
	// passing is how long a source has to be impaired, or to have no result, before that is an incident.
	passing = 3 * time.Second
	// followPatience and followLimit are for how long, and by how much more than by chance, the served shares have to
	// differ from the decided ones.
	followPatience = 30 * time.Second
	followLimit    = 0.05
	// nearlyFull is the part of its capacity from which on a pool may have queues everywhere.
	nearlyFull = 0.9
)

// decisionConditions are about whether there are decisions, and whether they are sent.
func decisionConditions(p *Observation, c *api.Cluster, subject api.Subject) (out []condition) {
	if !c.Ready {
		f := newCondition(kindNotReady, api.SeverityError, subject, sprint("Cluster %s is not ready", c.Name)).explain(
			OrUnknown(c.NotReadyReason), api.BlameInPart,
			"Envoys get no endpoints of it from here until it is.",
			"See why the reports that it waits for do not come.", waitCommand(p, c))
		f.keepFor = 0
		out = append(out, f)
	}
	if c.Ready && c.Counts.Total == 0 {
		f := newCondition(kindNoEndpoints, api.SeverityError, subject,
			sprint("Cluster %s has no endpoints", c.Name)).explain(
			"Discovery has found none, so Envoys have nowhere to send its requests.", api.BlameNo,
			"It follows what discovery answers.",
			"Check its source of endpoints (the key endpoints of the cluster).", discoveryCommand(p, c))
		f.keepFor = 0
		out = append(out, f)
	}
	patience := max(decisionPatience.Seconds(), 3*c.MinIntervalSeconds.Or(0))
	if old := c.Decision.At.Age(p.Now).Or(0); old > patience {
		f := newCondition(kindNoDecision, api.SeverityError, subject,
			sprint("Cluster %s gets no new decisions", c.Name)).explain(
			sprint("The latest decision was made at %s.", FormatClock(c.Decision.At)), api.BlameYes,
			"Its loop makes no progress, or gets no CPU time.",
			"See whether the machine has CPU time left; else restart Steelyard. Envoys keep their weights.",
			restartCommand)
		f.began = c.Decision.At.Time
		out = append(out, f)
	}
	return out
}

// sheddingConditions are about requests that are refused because the pool is saturated.
func sheddingConditions(p *Observation, c *api.Cluster, subject api.Subject) (out []condition) {
	if c.ShadowEnvoys > 0 && !followed(p, c.Name) {
		return nil // Envoys that only report refuse nothing
	}
	if c.Decision.DropFraction.Or(0) > 0 {
		out = append(out, newCondition(kindDrops, api.SeverityError, subject,
			sprint("Cluster %s refuses requests", c.Name)).explain(
			sprint("The whole pool is saturated: %.1f %% of the requests are refused, and the others are expected to "+
				"wait %s.", 100*c.Decision.DropFraction.Or(0), FormatDuration(c.Decision.ExpectedWait)),
			api.BlameInPart,
			"It refuses because shedding.enabled is set; without it, all requests would wait longer and longer.",
			"Add endpoints, or find out where the requests come from.", "steelyard top "+quoted(c.Name)))
	}
	if p.Refusing[c.Name] {
		f := newCondition(kindDrops, api.SeverityError, subject,
			sprint("The queue of %s refuses requests", c.Name)).explain(
			"Requests wait for longer than max_wait of their class, or more of them wait than its max_waiting.",
			api.BlameInPart, "It refuses because these limits are set; without, all would wait longer and longer.",
			"Add endpoints, or find out where the requests come from.", "steelyard top "+quoted(c.Name))
		f.ID += "/queue"
		out = append(out, f)
	}
	if c.Shedding && sheddingIgnored(p, c) {
		f := newCondition(kindNoShedding, api.SeverityError, subject,
			sprint("Shedding of %s has no effect", c.Name)).explain(
			sprint("No connected Envoy subscribes to %[1]s, and %[1]s/failsafe carries no drops.", c.Name),
			api.BlameYes, "What it sends to these Envoys cannot refuse requests.",
			"Make the configuration of the Envoys with steelyard bootstrap --mode shedding, or set shedding.enabled "+
				"to false.", "steelyard bootstrap --mode shedding --cluster "+quoted(c.Name)+" --xds HOST:PORT")
		f.pendingFor = 5 * time.Second
		out = append(out, f)
	}
	return out
}

// sheddingIgnored reports whether Envoys subscribe to the cluster, and none to the assignment that carries drops: that
// of the cluster's own name. The one of mode failsafe has none, because an aggregate cluster does not enforce them.
func sheddingIgnored(p *Observation, c *api.Cluster) bool {
	subscribed := false
	for i := range p.Clients {
		for _, s := range p.Clients[i].Subscriptions {
			if s.Resource == c.Name {
				return false
			}
			subscribed = subscribed || s.Cluster == c.Name
		}
	}
	return subscribed
}

// queueConditions are about a queue in which requests of some Envoys of the cluster do not wait. How many ask a shared
// picker is unknown.
func queueConditions(p *Observation, c *api.Cluster, subject api.Subject) []condition {
	watching := 0
	for i := range p.Clients {
		watching += BoolToInt(slices.ContainsFunc(p.Clients[i].Subscriptions,
			func(s api.Subscription) bool { return s.Cluster == c.Name }))
	}
	if c.Queue == nil {
		return nil
	}
	out := ownerConditions(c.Queue.Owner, c.Name, subject)
	if c.Queue.Shared || c.Queue.Here >= watching {
		return out
	}
	f := newCondition(kindNoQueue, api.SeverityWarning, subject,
		sprint("Not all requests of %s wait in its queue", c.Name)).explain(
		sprint("Requests of %d of its %d Envoys do not.", watching-c.Queue.Here, watching), api.BlameNo,
		"Envoys without the module or a picker send requests at once.",
		"Make the configuration of these Envoys with steelyard bootstrap --module or --picker, or look for the reason "+
			"in their logs.",
		"steelyard bootstrap --module --cluster "+quoted(c.Name)+" --xds HOST:PORT")
	f.pendingFor = 5 * time.Second
	return append(out, f)
}

// ownerConditions are about the replica that grants the places of a queue.
func ownerConditions(o api.QueueOwner, cluster string, subject api.Subject) []condition {
	why, what := o.Error, "See why the lease cannot be renewed or read: "
	switch {
	case o.State == api.QueueGrants || o.State == api.QueueFollows && o.Error == "":
		return nil
	case o.State == api.QueueFollows:
		what = "Let the replicas connect to each other's xDS port, with the certificate of that port: "
	case why == "":
		why = "The lease has no owner."
	}
	f := newCondition(kindNoOwner, api.SeverityError, subject,
		sprint("No replica grants the places of %s to the Envoys here", cluster)).explain(why, api.BlameYes,
		"Requests wait for 3 s, and then follow the weights: neither classes nor max_in_flight hold for them.",
		what+"docs/queue.md, Several replicas.", "")
	f.pendingFor = passing
	return []condition{f}
}

// disputeCondition is about a report that does not count. Of its endpoints, some may be flagged for other reasons.
func disputeCondition(p *Observation, c *api.Cluster, d api.Dispute) condition {
	endpoints := strings.Join(api.Limit(d.Endpoints, 1), "")
	if n := len(d.Endpoints); n > 1 {
		endpoints = sprint("%d endpoints (%s and others)", n, endpoints)
	}
	why := sprint("Envoy %s at %s has reported, for %s, ", d.NodeID, d.Host, FormatSeconds(d.Since.Age(p.Now).Or(0)))
	switch flagged, _ := endpointsThat(c, func(e *api.Endpoint) bool {
		return e.Overloaded && slices.Contains(d.Endpoints, e.Address)
	}); {
	case d.Kind == api.DisputeInFlight:
		why += sprint("%.0f requests in progress at %s, but the metrics there contradict it: it is wrong, or these "+
			"are idle streams and uploads.", d.Requests.Or(0), endpoints)
	case d.Kind == api.DisputeIssued:
		why += sprint("more requests to %s than it can have sent, %.0f the last time. They are not counted.", endpoints,
			d.Requests.Or(0))
	case flagged == 0:
		why += sprint("that its requests to %s fail. At least as many other Envoys get responses there, so no "+
			"endpoint is flagged.", endpoints)
	default:
		why += sprint("that its requests to %s fail. At least as many other Envoys get responses there; %d of these "+
			"endpoints are flagged, for what others report or for failures before that.", endpoints, flagged)
	}
	f := newCondition(kindDispute, api.SeverityWarning,
		api.Subject{Kind: api.SubjectEnvoy, Cluster: c.Name, Name: d.NodeID},
		sprint("Reports of Envoy %s conflict with all others", d.NodeID)).explain(why, api.BlameNo,
		"The report does not count.", "Check that Envoy, and the network between it and these endpoints.", "")
	f.ID += "/" + string(d.Kind)
	f.began, f.pendingFor = d.Since.Time, disputePatience
	return f
}

// endpointsThat counts the endpoints for which something holds, and returns the first.
func endpointsThat(c *api.Cluster, holds func(*api.Endpoint) bool) (n int, first *api.Endpoint) {
	for i := range c.Endpoints {
		if e := &c.Endpoints[i]; holds(e) {
			if n++; first == nil {
				first = e
			}
		}
	}
	return n, first
}

// fullConditions are about a pool that cannot do what arrives. The limit is that of the alert SteelyardPoolTooSmall.
func fullConditions(c *api.Cluster, subject api.Subject) []condition {
	used := c.Use.UsedMean.Or(0)
	if used <= 1 {
		return nil
	}
	next := "Add endpoints, or end drains that can end."
	if !c.Shedding {
		next = "Add endpoints, end drains that can end, or enable shedding."
	}
	title := sprint("Cluster %s gets more than it can do", c.Name)
	f := newCondition(kindFull, api.SeverityError, subject, title).explain(
		sprint("For five minutes, %.0f %% of its capacity was asked for: its queues grow.", 100*used), api.BlameNo,
		"Weights distribute requests; they make no server faster.",
		next, "steelyard top "+quoted(c.Name))
	f.keepFor, f.inhibitedBy = time.Minute, conditionID(kindDrops, c.Name) // what is refused waits in no queue
	return []condition{f}
}

// followConditions are about Envoys that do not send what was decided.
func followConditions(p *Observation, c *api.Cluster, subject api.Subject) []condition {
	gap, known := c.Served.VsDecided.Value()
	if !known || gap <= followLimit+2*c.Served.Noise.Or(0) {
		return nil
	}
	blame, because := api.BlameYes, "All Envoys have accepted the latest assignment."
	names := notFollowing(p, c.Name)
	next := "Compare served and decided shares; look for retries, subsets, zone-aware routing or health checks in " +
		"Envoy."
	unused, _ := endpointsThat(c, func(e *api.Endpoint) bool { return e.Reason == ReasonUnused })
	if len(names) > 0 {
		blame, because = api.BlameInPart, sprint("These have not accepted the latest assignment: %s.", Listed(names))
	} else if unused > 0 {
		blame, because = api.BlameNo, sprint("The Envoys send nothing to %d endpoints whatever their weight: their "+
			"health checks or outlier detection ejected them.", unused)
	} else if used := max(c.Use.CapacityUsed.Or(0), c.Use.UsedMean.Or(0)); used >= nearlyFull {
		blame, because = api.BlameNo, sprint("%.0f %% of the capacity is in use. If requests queue at all endpoints, "+
			"Envoy's least request sends fewer to those with the most open ones, whatever their weights.", 100*used)
		next = "Add endpoints; an Envoy follows the weights while the pool has room, and with round robin always."
	}
	f := newCondition(kindNotFollowed, api.SeverityError, subject,
		sprint("Traffic of %s does not match the weights", c.Name)).explain(
		sprint("%.0f %% of the %.0f requests of the last minute went elsewhere than decided.", 100*gap,
			c.Served.Requests1m.Or(0)-c.Served.Hashed1m.Or(0)), blame, because,
		next, "steelyard top "+quoted(c.Name))
	f.pendingFor, f.keepFor, f.inhibitedBy = followPatience, followPatience, conditionID(kindFull, c.Name)
	if len(names) > 0 { // which have incidents of their own
		f.inhibitedBy = conditionID(kindBehind, c.Name, names[0])
		if refuses(p, c.Name, names[0]) {
			f.inhibitedBy = conditionID(kindRefuses, c.Name, names[0])
		}
	}
	return []condition{f}
}

// notFollowing are the Envoys that refuse the assignment of a cluster, or do not answer and may still run.
func notFollowing(p *Observation, cluster string) (names []string) {
	for i := range p.Clients {
		for k := range p.Clients[i].Subscriptions {
			s := &p.Clients[i].Subscriptions[k]
			if s.Cluster == cluster && (s.Nack.Current || behind(s, p.Now)) &&
				!slices.Contains(names, p.Clients[i].NodeID) {
				names = append(names, p.Clients[i].NodeID)
			}
		}
	}
	for i := range p.Left {
		l := &p.Left[i]
		if lost(l, p.Now) && slices.Contains(l.Clusters, cluster) && !slices.Contains(names, l.NodeID) {
			names = append(names, l.NodeID)
		}
	}
	return names
}

func refuses(p *Observation, cluster, name string) bool {
	return slices.ContainsFunc(p.Clients, func(c api.Client) bool {
		return c.NodeID == name && slices.ContainsFunc(c.Subscriptions, func(s api.Subscription) bool {
			return s.Cluster == cluster && s.Nack.Current
		})
	})
}
