package conditions

import (
	"cmp"
	"slices"

	"steelyard/internal/api"
)

// problemsOf are conditions as problems of what they are about.
func problemsOf(all []condition) []api.Problem {
	out := make(problemList, 0, len(all))
	for _, f := range all {
		out.add(f.Severity, "%s: %s", f.Title, f.Why)
	}
	return out
}

// StatusProblems returns the problems of the process as a whole.
func StatusProblems(p *Observation) []api.Problem {
	s := &p.Status
	out := problemList{}
	if s.Draining {
		out.warn("draining: the process is shutting down")
	}
	if s.ConfigWatchError != "" {
		out.warn("changes of the config are found by polling only: %s", s.ConfigWatchError)
	}
	out = append(out, problemsOf(processConditions(p))...)
	out = append(out, portProblems(&s.XDSPort, p.Now)...)
	out = append(out, silentProblems(&s.XDSPort, p.Now)...)
	out = append(out, adminPortProblems(&s.AdminPort, p.Now)...)
	out = append(out, certificateProblems(s.Certificates, p.Now)...)
	out = append(out, handshakeProblems(s.RefusedHandshakes, p.Now)...)
	if r := s.RefusedRequests; within(r.LastAt, p.Now, refusalMemory) {
		out.warn("admin requests for the host %q are refused: add it to admin.allowed_hosts if it is yours", r.LastHost)
	}
	out = append(out, xdsAccessProblems(s.XDSAccess, p.Now)...)
	out = append(out, accessProblems(s.AdminAccess, p.Now)...)
	out = append(out, replicaProblems(s.Replicas, p.Now)...)
	out = append(out, leftProblems(p)...)
	if o := s.Overrides; o.Count > 0 && o.Error != "" {
		out.warn("%d overrides may be lost with a restart, because Redis does not keep them: %s", o.Count, o.Error)
	}
	return append(out, logProblems(s.Log, p.Now)...)
}

// maxLeftNamed is how many Envoys that are disconnected have a problem of their own.
const maxLeftNamed = 10

// leftProblems returns the problems of Envoys that are disconnected.
func leftProblems(p *Observation) []api.Problem {
	// One that does not answer has a condition for each of its clusters.
	all := slices.Compact(problemsOf(leftConditions(p)))
	out := problemList(api.Limit(all, maxLeftNamed))
	if more := len(all) - len(out); more > 0 {
		out.warn("%d more Envoys disconnected without closing their streams: see gone_envoys of /api/v1/status", more)
	}
	return out
}

// ClusterProblems returns the problems of a pool; single endpoints have their own.
func ClusterProblems(p *Observation, c *api.Cluster) []api.Problem {
	out := problemList(problemsOf(clusterConditions(p, c)))
	for i := range c.Sources {
		s := &c.Sources[i]
		if s.State == api.SourceOff { // not a fault, but the counts are less exact
			out.warn("source %s: none of %.0f Envoys is configured for it%s", s.Name, s.Envoys.Expected.Or(0),
				because(s.LastError))
		}
		if s.IgnoredMembers > 0 {
			out.warn("source %s: %d members are not endpoints of this cluster and are ignored", s.Name,
				s.IgnoredMembers)
		}
	}
	return out
}

// EndpointProblems returns the problems of one endpoint: its condition, and what explains its numbers.
func EndpointProblems(p *Observation, c *api.Cluster, e *api.Endpoint) []api.Problem {
	out := problemList(problemsOf(endpointConditions(p, c, e)))
	scrape := because(e.LastScrape.Error)
	switch {
	case Unread(e), e.Reason == reasonNeutral: // which its condition has
	case e.Reason == reasonDecay:
		out.warn("report is going stale: moving to the pool's median%s", scrape)
	case e.Reason == reasonBlackout:
		out.warn("new, and no report yet%s", scrape)
	case fails(e):
		out.warn("latest scrape failed%s", scrape)
	}
	if e.Override != nil {
		what := OverrideText(*e.Override)
		if e.Reason != reasonDrained && e.Reason != reasonPinned {
			what += ", which is not in effect: no other endpoint is left to serve, or it stalls or fails"
		}
		if before := cmp.Or(e.Probed, e.OverloadReason); e.Reason == reasonDrained && before != "" {
			what += ". Before: " + before
		}
		out.warn("%s", what)
	}
	switch {
	case asleep(e):
		out.warn("%s", e.OverloadReason)
	case e.Overloaded && !e.Outlier:
		out.warn("overloaded%s", because(e.OverloadReason))
	}
	if e.LastScrape.Doubt != "" {
		out.warn("a number of its metrics is unknown: %s", e.LastScrape.Doubt)
	}
	return out
}

// ClientProblems returns the problems of one Envoy.
func ClientProblems(p *Observation, c *api.Client) []api.Problem {
	out := problemList(problemsOf(clientConditions(p, c)))
	if n := c.Signals.ReportStreams; n > 1 {
		out.warn("%d processes report load under this node id from this address, and are added up: a hot restart, "+
			"which passes, or Envoys that cannot be distinguished: give each its own node id", n)
	}
	if c.Duplicates > 0 {
		out.warn("%d other connections use the same node id: two Envoys that cannot be distinguished, or one that "+
			"reconnected", c.Duplicates)
	}
	return out
}

// SortWorstFirst orders endpoints: errors, warnings, then the fullest.
func SortWorstFirst(endpoints []api.Endpoint) {
	slices.SortStableFunc(endpoints, func(a, b api.Endpoint) int {
		return cmp.Or(
			cmp.Compare(Rank(Worst(b.Problems)), Rank(Worst(a.Problems))),
			cmp.Compare(b.LoadPerSlot.Or(-1), a.LoadPerSlot.Or(-1)),
			cmp.Compare(a.Address, b.Address),
		)
	})
}

// SortClientsWorstFirst orders clients the same way: errors, warnings, the rest.
func SortClientsWorstFirst(clients []api.Client) {
	slices.SortStableFunc(clients, func(a, b api.Client) int {
		return cmp.Compare(Rank(Worst(b.Problems)), Rank(Worst(a.Problems)))
	})
}
