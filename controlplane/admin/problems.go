package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"steelyard/controlplane/view"
	"steelyard/internal/stat"
)

const (
	// ackPatience is how long an Envoy may take to answer an assignment. On a healthy stream it takes milliseconds.
	ackPatience = 5 * time.Second
	// decisionPatience is how old a decision may be before the loop counts as stuck. It steps many times a second.
	decisionPatience = 5 * time.Second
	// logPatience is how long a write of the log may take before its reader counts as
	// stalled, and logMemory how long dropped lines are a problem.
	logPatience = time.Second
	logMemory   = 10 * time.Minute
)

// Reasons of an endpoint's share that matter here, as package weighting spells them.
const (
	reasonBlackout = "blackout"
	reasonNeutral  = "neutral"
	reasonDecay    = "decay"
	reasonRamp     = "ramp"
	reasonUnused   = "unused"
	reasonAsleep   = "asleep"
	reasonDrained  = "drained"
	reasonPinned   = "pinned"
)

// A problemList collects problems.
type problemList []view.Problem

func (l *problemList) add(s view.Severity, format string, args ...any) {
	*l = append(*l, view.Problem{Severity: s, Message: fmt.Sprintf(format, args...)})
}
func (l *problemList) warn(format string, args ...any) { l.add(view.SeverityWarning, format, args...) }
func (l *problemList) fail(format string, args ...any) { l.add(view.SeverityError, format, args...) }

// worst is the highest severity among problems, empty when there are none.
func worst(problems []view.Problem) view.Severity {
	var w view.Severity
	for _, p := range problems {
		if rank(p.Severity) > rank(w) {
			w = p.Severity
		}
	}
	return w
}

func rank(s view.Severity) int {
	switch s {
	case view.SeverityError:
		return 2
	case view.SeverityWarning:
		return 1
	default:
		return 0
	}
}

// problemsOf are conditions as problems of what they are about.
func problemsOf(all []condition) []view.Problem {
	out := make(problemList, 0, len(all))
	for _, f := range all {
		out.add(f.Severity, "%s: %s", f.Title, f.Why)
	}
	return out
}

// statusProblems returns the problems of the process as a whole.
func statusProblems(p *observation) []view.Problem {
	s := &p.status
	out := problemList{}
	if s.Draining {
		out.warn("draining: the process is shutting down")
	}
	if s.ConfigWatchError != "" {
		out.warn("changes of the config are found by polling only: %s", s.ConfigWatchError)
	}
	out = append(out, problemsOf(processConditions(p))...)
	out = append(out, portProblems(&s.XDSPort, p.now)...)
	out = append(out, silentProblems(&s.XDSPort, p.now)...)
	out = append(out, adminPortProblems(&s.AdminPort, p.now)...)
	out = append(out, certificateProblems(s.Certificates, p.now)...)
	out = append(out, handshakeProblems(s.RefusedHandshakes, p.now)...)
	if r := s.RefusedRequests; within(r.LastAt, p.now, refusalMemory) {
		out.warn("admin requests for the host %q are refused: add it to admin.allowed_hosts if it is yours", r.LastHost)
	}
	out = append(out, xdsAccessProblems(s.XDSAccess, p.now)...)
	out = append(out, accessProblems(s.AdminAccess, p.now)...)
	out = append(out, replicaProblems(s.Replicas, p.now)...)
	if s.Tracing.Error != "" {
		out.warn("traces cannot be exported%s", because(s.Tracing.Error))
	}
	out = append(out, leftProblems(p)...)
	if o := s.Overrides; o.Count > 0 && o.Error != "" {
		out.warn("%d overrides may be lost with a restart, because Redis does not keep them: %s", o.Count, o.Error)
	}
	return append(out, logProblems(s.Log, p.now)...)
}

// maxLeftNamed is how many Envoys that are disconnected have a problem of their own.
const maxLeftNamed = 10

// leftProblems returns the problems of Envoys that are disconnected.
func leftProblems(p *observation) []view.Problem {
	// One that does not answer has a condition for each of its clusters.
	all := slices.Compact(problemsOf(leftConditions(p)))
	out := problemList(limit(all, maxLeftNamed))
	if more := len(all) - len(out); more > 0 {
		out.warn("%d more Envoys disconnected without closing their streams: see gone_envoys of /api/v1/status", more)
	}
	return out
}

func logProblems(l stat.LogStatus, now time.Time) (out problemList) {
	switch stalled, dropped := l.StalledSeconds.Or(0), l.LastDrop.Age(now); {
	case stalled > logPatience.Seconds():
		out.warn("the log has not been read for %s; %d lines were dropped since the start: check the reader of "+
			"standard error", formatSeconds(stalled), l.DroppedLines)
	case l.Error != "":
		out.warn("the log cannot be written, %d lines were dropped since the start: %s", l.DroppedLines, l.Error)
	case dropped.Or(logMemory.Seconds()) < logMemory.Seconds():
		out.warn("%d log lines were dropped since the start, the latest %s ago, because they could not be written in "+
			"time", l.DroppedLines, formatSeconds(dropped.Or(0)))
	}
	return out
}

// clusterProblems returns the problems of a pool; single endpoints have their own.
func clusterProblems(p *observation, c *view.Cluster) []view.Problem {
	out := problemList(problemsOf(clusterConditions(p, c)))
	for i := range c.Sources {
		s := &c.Sources[i]
		if s.State == view.SourceOff { // not a fault, but the counts are less exact
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

// endpointProblems returns the problems of one endpoint: its condition, and what explains its numbers.
func endpointProblems(p *observation, c *view.Cluster, e *view.Endpoint) []view.Problem {
	out := problemList(problemsOf(endpointConditions(p, c, e)))
	scrape := because(e.LastScrape.Error)
	switch {
	case unread(e), e.Reason == reasonNeutral: // which its condition has
	case e.Reason == reasonDecay:
		out.warn("report is going stale: moving to the pool's median%s", scrape)
	case e.Reason == reasonBlackout:
		out.warn("new, and no report yet%s", scrape)
	case fails(e):
		out.warn("latest scrape failed%s", scrape)
	}
	if e.Override != nil {
		what := overrideText(*e.Override)
		if e.Reason != reasonDrained && e.Reason != reasonPinned {
			what += ", which is not in effect: no other endpoint is left to serve, or it stalls or fails"
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

// clientProblems returns the problems of one Envoy.
func clientProblems(p *observation, c *Client) []view.Problem {
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

// lastWorked is the part of a sentence about when a source last worked.
func lastWorked(s view.SourceStatus, now time.Time) string {
	if s.LastSuccess.IsZero() {
		return ", and has never worked"
	}
	return fmt.Sprintf(", last worked %s ago", formatSeconds(s.LastSuccess.Age(now).Or(0)))
}

// because is the part of a sentence that gives a cause, if there is one.
func because(cause string) string {
	if cause == "" {
		return ""
	}
	return ": " + cause
}

func orUnknown(s string) string {
	if strings.TrimSpace(s) == "" {
		return "no reason given"
	}
	return s
}

// sortWorstFirst orders endpoints: errors, warnings, then the fullest.
func sortWorstFirst(endpoints []view.Endpoint) {
	slices.SortStableFunc(endpoints, func(a, b view.Endpoint) int {
		return cmp.Or(
			cmp.Compare(rank(worst(b.Problems)), rank(worst(a.Problems))),
			cmp.Compare(b.LoadPerSlot.Or(-1), a.LoadPerSlot.Or(-1)),
			cmp.Compare(a.Address, b.Address),
		)
	})
}

// sortClientsWorstFirst orders clients the same way: errors, warnings, the rest.
func sortClientsWorstFirst(clients []Client) {
	slices.SortStableFunc(clients, func(a, b Client) int {
		return cmp.Compare(rank(worst(b.Problems)), rank(worst(a.Problems)))
	})
}
