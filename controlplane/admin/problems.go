package admin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"steelyard/controlplane/view"
	"steelyard/internal/spelling"
)

const (
	// ackPatience is how long an Envoy may take to answer an assignment. On a
	// healthy stream it takes milliseconds.
	ackPatience = 5 * time.Second
	// decisionPatience is how old a decision may be before the loop counts as stuck.
	// It steps many times a second.
	decisionPatience = 5 * time.Second
	// logPatience is how long a write of the log may take before its reader counts as
	// stalled, and logMemory how long dropped lines are a problem.
	logPatience = time.Second
	logMemory   = 10 * time.Minute
	// implausiblePatience is for how long an implausible counter is a problem: what was learned from it
	// is forgotten sooner.
	implausiblePatience = time.Minute
)

// Reasons of an endpoint's share that matter here, as package weighting spells
// them.
const (
	reasonBlackout = "blackout"
	reasonNeutral  = "neutral"
	reasonDecay    = "decay"
	reasonRamp     = "ramp"
	reasonUnused   = "unused"
	reasonDrained  = "drained"
	reasonPinned   = "pinned"
)

func problem(s view.Severity, format string, args ...any) view.Problem {
	return view.Problem{Severity: s, Message: fmt.Sprintf(format, args...)}
}

// A problemList collects problems.
type problemList []view.Problem

func (l *problemList) add(s view.Severity, format string, args ...any) {
	*l = append(*l, problem(s, format, args...))
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

// statusProblems returns the problems of the process as a whole.
func statusProblems(s Status, clients int) []view.Problem {
	out := problemList{}
	if s.Draining {
		out.warn("draining: the process is shutting down")
	}
	if s.ConfigGeneration == 0 {
		out.fail("no config has been applied yet")
	}
	if s.LastReload.Error != "" {
		out.fail("the latest config was refused, generation %d still runs: %s", s.ConfigGeneration, s.LastReload.Error)
	}
	if s.ConfigWatchError != "" {
		out.warn("changes of the config are found by polling only: %s", s.ConfigWatchError)
	}
	if clients == 0 {
		out.warn("no Envoy is connected")
	}
	out = append(out, portProblems(s.XDSPort, s.Now.Time)...)
	out = append(out, adminPortProblems(s.AdminPort, s.Now.Time)...)
	out = append(out, certificateProblems(s.Certificates, s.Now.Time)...)
	out = append(out, refusalProblems(s)...)
	out = append(out, xdsAccessProblems(s.XDSAccess, s.Now.Time)...)
	out = append(out, accessProblems(s.AdminAccess, s.Now.Time)...)
	out = append(out, replicaProblems(s.Replicas, s.Now.Time)...)
	out = append(out, tracingProblems(s.Tracing)...)
	out = append(out, goneProblems(s.GoneEnvoys, s.Now.Time)...)
	out = append(out, overrideProblems(s.Overrides)...)
	return append(out, logProblems(s.Log, s.Now)...)
}

// stuckProblems are those that also fail /healthz.
func stuckProblems(stuck []string) []view.Problem {
	var out problemList
	for _, s := range cut(stuck, maxStuck) {
		out.fail("%s: a defect in Steelyard, restart it", s)
	}
	return out
}

func logProblems(l LogStatus, now view.Time) []view.Problem {
	stalled, dropped := l.StalledSeconds.Or(0), l.LastDrop.Age(now.Time)
	switch {
	case stalled > logPatience.Seconds():
		return []view.Problem{problem(view.SeverityWarning, "the log has not been read for %s; %d lines were dropped "+
			"since the start: check the reader of standard error",
			formatSeconds(stalled), l.DroppedLines)}
	case l.Error != "":
		return []view.Problem{problem(view.SeverityWarning, "the log cannot be written, %d lines were dropped since "+
			"the start: %s", l.DroppedLines, l.Error)}
	case dropped.Or(logMemory.Seconds()) < logMemory.Seconds():
		return []view.Problem{problem(view.SeverityWarning, "%d log lines were dropped since the start, the latest "+
			"%s ago, because they could not be written in time",
			l.DroppedLines, formatSeconds(dropped.Or(0)))}
	}
	return nil
}

// clusterProblems returns the problems of the pool; single endpoints appear as counts.
func clusterProblems(c view.Cluster, now time.Time) []view.Problem {
	out := problemList{}
	if !c.Ready {
		out.fail("not ready: %s", orUnknown(c.NotReadyReason))
	}
	if c.Counts.Total == 0 {
		out.fail("no endpoints: discovery has found none")
	}
	patience := max(decisionPatience.Seconds(), 3*c.MinIntervalSeconds.Or(0))
	if old := c.Decision.At.Age(now).Or(0); old > patience {
		out.fail("no decision for %s: the loop is stuck", formatSeconds(old))
	}
	if drop := c.Decision.DropFraction.Or(0); drop > 0 {
		out.fail("shedding %.1f %% of the requests: the whole pool is saturated", 100*drop)
	}
	for _, s := range c.Sources {
		out = append(out, sourceProblems(s, now)...)
	}
	for _, d := range c.Disputes {
		out = append(out, disputeProblem(d, flaggedOf(c.Endpoints, d.Endpoints), now))
	}
	return append(out, countProblems(c.Counts)...)
}

// flaggedOf returns how many endpoints are flagged, of those with these addresses.
func flaggedOf(all []view.Endpoint, addresses []string) (n int) {
	for _, e := range all {
		if e.Overloaded && slices.Contains(addresses, e.Address) {
			n++
		}
	}
	return n
}

// disputeProblem describes a dispute, and what to check. Of its endpoints, some may be flagged for other reasons.
func disputeProblem(d view.Dispute, flagged int, now time.Time) view.Problem {
	envoy := fmt.Sprintf("Envoy %s at %s", d.NodeID, d.Host)
	endpoints, lasts := disputed(d), formatSeconds(d.Since.Age(now).Or(0))
	if d.Kind == view.DisputeFailures {
		so := "these failures do not count and no endpoint is flagged"
		if flagged > 0 {
			so = fmt.Sprintf("these failures do not count; %d of these endpoints are flagged, for what others report "+
				"or "+
				"for failures before that", flagged)
		}
		return problem(view.SeverityWarning, "%s has reported, for %s, that its requests to %s fail; at least as many "+
			"others get responses there, so %s: check the network between them, and that Envoy", envoy, lasts,
			endpoints, so)
	}
	return problem(view.SeverityWarning, "%s has reported, for %s, %.0f requests in progress at %s; the metrics "+
		"there contradict it, while other requests "+
		"are answered, so the report does not count: it is wrong, or these are idle streams and uploads", envoy, lasts,
		d.Requests.Or(0), endpoints)
}

// disputed names one of the endpoints that a dispute is about.
func disputed(d view.Dispute) string {
	first := strings.Join(cut(d.Endpoints, 1), "")
	if len(d.Endpoints) > 1 {
		return fmt.Sprintf("%d endpoints (%s and others)", len(d.Endpoints), first)
	}
	return first
}

// sheddingProblems returns the problems of a cluster that sheds when it is saturated. Only the
// assignment of its own name carries drops: the one of mode failsafe has none, because
// an aggregate cluster does not enforce them.
func sheddingProblems(cluster string, clients []Client) []view.Problem {
	var asks []string
	for _, c := range clients {
		for _, s := range c.Subscriptions {
			if s.Cluster == cluster {
				asks = append(asks, s.Resource)
			}
		}
	}
	if len(asks) == 0 || slices.Contains(asks, cluster) {
		return nil
	}
	return []view.Problem{problem(view.SeverityError, "shedding is enabled and without effect: no connected Envoy "+
		"asks for %[1]s, and %[1]s/failsafe carries no drops. "+
		"Make the configuration of the Envoys with steelyard bootstrap --mode shedding, or set shedding.enabled to "+
		"false", cluster)}
}

// queueProblems returns the problems of a queue in which requests of some Envoys of the cluster do not wait.
func queueProblems(c *view.Cluster, clients []Client) []view.Problem {
	if c.Queue == nil {
		return nil
	}
	watching := 0
	for _, client := range clients {
		if slices.ContainsFunc(client.Subscriptions, func(s Subscription) bool { return s.Cluster == c.Name }) {
			watching++
		}
	}
	if c.Queue.Envoys >= watching {
		return nil
	}
	return []view.Problem{problem(view.SeverityWarning, "requests of %d of the %d Envoys of %s do not wait in its "+
		"queue: make the configuration of these Envoys with steelyard bootstrap --module or "+
		"--picker, or look for the reason in their logs", watching-c.Queue.Envoys, watching, c.Name)}
}

func sourceProblems(s view.SourceStatus, now time.Time) []view.Problem {
	var out problemList
	switch s.State {
	case view.SourceOff:
		// An Envoy without reports is no fault, but the counts are less exact.
		out.warn("source %s: none of %.0f Envoys is configured for it%s", s.Name, s.Envoys.Expected.Or(0),
			because(s.LastError))
	case view.SourceDown:
		out.fail("source %s is down%s%s", s.Name, lastWorked(s, now), because(s.LastError))
	case view.SourceStale:
		out.warn("source %s is stale%s%s", s.Name, lastWorked(s, now), because(s.LastError))
	case view.SourcePartial:
		out.warn("source %s is partial, Envoys that report: %s%s", s.Name, formatReporting(s.Envoys),
			because(s.LastError))
	}
	if s.IgnoredMembers > 0 {
		out.warn("source %s: %d members are no endpoints of this cluster and are ignored", s.Name, s.IgnoredMembers)
	}
	return out
}

// countProblems rates a pool by how many endpoints are affected: weights deal with
// single ones, but not with half of them.
func countProblems(n view.EndpointCounts) []view.Problem {
	var out problemList
	add := func(count int, what string) {
		if count == 0 {
			return
		}
		severity := view.SeverityWarning
		if 2*count >= n.Total {
			severity = view.SeverityError
		}
		out.add(severity, "%d of %d endpoints %s", count, n.Total, what)
	}
	add(n.Stale, "without a fresh report: weighted towards the pool's median")
	add(n.Overloaded, "overloaded")
	add(n.Failing, "failed their latest scrape")
	return out
}

// endpointProblems returns the problems of one endpoint.
func endpointProblems(e view.Endpoint, now time.Time) []view.Problem {
	out := problemList{}
	scrape := because(e.LastScrape.Error)
	switch {
	case e.Reason == reasonNeutral:
		out.fail("no usable report: weighted as a median endpoint%s", scrape)
	case e.Reason == reasonDecay:
		out.warn("report is going stale: moving to the pool's median%s", scrape)
	case e.Reason == reasonUnused:
		out.warn("the Envoys send it nothing, whatever its weight: check whether their health checks or outlier " +
			"detection ejected it")
	case e.Reason == reasonBlackout && scrape != "":
		out.fail("new, and its scrapes fail%s", scrape)
	case e.Reason == reasonBlackout:
		out.warn("new, and no report yet")
	case scrape != "":
		out.warn("latest scrape failed%s", scrape)
	}
	if e.Override != nil {
		out = append(out, overrideProblem(*e.Override, e.Reason == reasonDrained || e.Reason == reasonPinned))
	}
	if e.Overloaded {
		out.warn("overloaded%s", because(e.OverloadReason))
	}
	if at := e.LastImplausibleReading; !at.IsZero() && at.Age(now).Or(0) < implausiblePatience.Seconds() {
		out.warn("a counter of its metrics rose by more than any server can count, %s, and %.0f times since the "+
			"start: that interval does not count", formatAgo(at, now), e.ImplausibleReadings.Or(0))
	}
	return out
}

// clientProblems returns the problems of one Envoy. A configured cluster that has nothing to
// send yet is not the Envoy's problem, and has one of its own.
func clientProblems(c Client, configured map[string]bool, now time.Time) []view.Problem {
	out := problemList{}
	for _, s := range c.Subscriptions {
		switch {
		case s.Nack.Current:
			out.fail("refuses cluster %s: %s", s.Resource, orUnknown(s.Nack.Message))
		case behind(&s, now):
			out.fail("has not answered version %s of cluster %s for %s", s.VersionSent, s.Resource,
				formatSeconds(s.LastSent.Age(now).Or(0)))
		case !s.Known && !configured[s.Cluster]:
			out.warn("asks for cluster %s, which is not configured here%s", s.Resource,
				spelling.DidYouMean(s.Cluster, slices.Sorted(maps.Keys(configured))))
		}
	}
	out = append(out, signalProblems(c.Signals, now)...)
	if c.Duplicates > 0 {
		out.warn("%d other connections use the same node id: two Envoys that cannot be distinguished, or one that "+
			"reconnected", c.Duplicates)
	}
	return out
}

func signalProblems(s Signals, now time.Time) []view.Problem {
	var out problemList
	if s.State == SignalSilent {
		out.warn("silent: last entry %s, last report %s; its requests are not counted", formatAgo(s.LastEntry, now),
			formatAgo(s.LastReport, now))
	}
	if s.ReportStreams > 1 {
		out.warn("%d processes report load under this node id from this address, and are added up: a hot restart, "+
			"which passes, or Envoys that cannot be distinguished: give each its own node id", s.ReportStreams)
	}
	if s.Runtime.Nack != "" {
		out.fail("refuses the runtime values that switch its access log: %s", s.Runtime.Nack)
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
