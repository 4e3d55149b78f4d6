package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// ackPatience is how long an Envoy may take to answer an assignment. On a
	// healthy stream it takes milliseconds.
	ackPatience = 5 * time.Second
	// decisionPatience is how old a decision may be before the loop counts as
	// stuck. It steps many times a second, so seconds mean that it does not.
	decisionPatience = 5 * time.Second
	// logPatience is how long a write of the log may take before its reader counts as
	// stalled, and logMemory how long dropped lines are a problem.
	logPatience = time.Second
	logMemory   = 10 * time.Minute
	// implausiblePatience is for how long a counter that leapt is a problem: what it told is forgotten
	// sooner.
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
)

func problem(s Severity, format string, args ...any) Problem {
	return Problem{Severity: s, Message: fmt.Sprintf(format, args...)}
}

// worst is the highest severity among problems, empty when there are none.
func worst(problems []Problem) Severity {
	var w Severity
	for _, p := range problems {
		if rank(p.Severity) > rank(w) {
			w = p.Severity
		}
	}
	return w
}

func rank(s Severity) int {
	switch s {
	case SeverityError:
		return 2
	case SeverityWarning:
		return 1
	default:
		return 0
	}
}

// statusProblems are those of the process as a whole.
func statusProblems(s Status, clients int) []Problem {
	out := []Problem{}
	if s.Draining {
		out = append(out, problem(SeverityWarning, "draining: the process is shutting down"))
	}
	if s.ConfigGeneration == 0 {
		out = append(out, problem(SeverityError, "no config has been applied yet"))
	}
	if s.LastReload.Error != "" {
		out = append(out, problem(SeverityError, "the latest config was refused, generation %d still runs: %s", s.ConfigGeneration, s.LastReload.Error))
	}
	if s.ConfigWatchError != "" {
		out = append(out, problem(SeverityWarning, "changes of the config are found by polling only: %s", s.ConfigWatchError))
	}
	if clients == 0 {
		out = append(out, problem(SeverityWarning, "no Envoy is connected"))
	}
	out = append(out, portProblems(s.XDSPort, s.Now.Time)...)
	out = append(out, certificateProblems(s.Certificates, s.Now.Time)...)
	out = append(out, refusalProblems(s)...)
	out = append(out, goneProblems(s.GoneEnvoys, s.Now.Time)...)
	return append(out, logProblems(s.Log, s.Now)...)
}

// stuckProblems are those that also fail /healthz.
func stuckProblems(stuck []string) []Problem {
	var out []Problem
	for _, s := range cut(stuck, maxStuck) {
		out = append(out, problem(SeverityError, "%s: a defect in Steelyard, restart it", s))
	}
	return out
}

func logProblems(l LogStatus, now Time) []Problem {
	stalled, dropped := l.StalledSeconds.Or(0), age(l.LastDrop, now.Time)
	switch {
	case stalled > logPatience.Seconds():
		return []Problem{problem(SeverityWarning, "the log has not been read for %s; %d lines were dropped since the start: see who reads standard error",
			formatSeconds(stalled), l.DroppedLines)}
	case l.Error != "":
		return []Problem{problem(SeverityWarning, "the log cannot be written, %d lines were dropped since the start: %s", l.DroppedLines, l.Error)}
	case dropped.Or(logMemory.Seconds()) < logMemory.Seconds():
		return []Problem{problem(SeverityWarning, "%d log lines were dropped since the start, the latest %s ago, because they could not be written in time",
			l.DroppedLines, formatSeconds(dropped.Or(0)))}
	}
	return nil
}

// clusterProblems are those of the pool; single endpoints appear as counts.
func clusterProblems(c Cluster, now time.Time) []Problem {
	out := []Problem{}
	if !c.Ready {
		out = append(out, problem(SeverityError, "not ready: %s", orUnknown(c.NotReadyReason)))
	}
	if c.Counts.Total == 0 {
		out = append(out, problem(SeverityError, "no endpoints: discovery has found none"))
	}
	patience := max(decisionPatience.Seconds(), 3*c.MinIntervalSeconds.Or(0))
	if old := age(c.Decision.At, now).Or(0); old > patience {
		out = append(out, problem(SeverityError, "no decision for %s: the loop is stuck", formatSeconds(old)))
	}
	if drop := c.Decision.DropFraction.Or(0); drop > 0 {
		out = append(out, problem(SeverityError, "shedding %.1f %% of the requests: the whole pool is saturated", 100*drop))
	}
	for _, s := range c.Sources {
		out = append(out, sourceProblems(s, now)...)
	}
	for _, d := range c.Disputes {
		out = append(out, d.problem(now))
	}
	return append(out, countProblems(c.Counts)...)
}

// problem says what is disputed, and where to look.
func (d Dispute) problem(now time.Time) Problem {
	who := fmt.Sprintf("Envoy %s at %s", d.NodeID, d.Host)
	endpoints, lasts := d.endpoints(), formatSeconds(age(d.Since, now).Or(0))
	if d.Kind == DisputeFailures {
		return problem(SeverityWarning, "%s alone says, for %s, that its requests to %s fail; others have answers there, so nothing is flagged for that: "+
			"look at the network between them, and at that Envoy", who, lasts, endpoints)
	}
	return problem(SeverityWarning, "%s says, for %s, that it has %.0f requests in progress at %s; the metrics there deny it, while others are answered, so it is not believed: "+
		"a wrong report, or many streams and uploads that stand idle", who, lasts, d.Requests.Or(0), endpoints)
}

// endpoints names one of those that it is about.
func (d Dispute) endpoints() string {
	first := strings.Join(cut(d.Endpoints, 1), "")
	if len(d.Endpoints) > 1 {
		return fmt.Sprintf("%d endpoints (%s and others)", len(d.Endpoints), first)
	}
	return first
}

// sheddingProblems are those of a cluster that sheds when it is saturated. Only the
// assignment of its own name carries drops: the one of mode failsafe has none, because
// an aggregate cluster does not enforce them.
func sheddingProblems(cluster string, clients []Client) []Problem {
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
	return []Problem{problem(SeverityError, "shedding is enabled and without effect: no connected Envoy asks for %[1]s, and %[1]s/failsafe carries no drops. "+
		"Make the configuration of the Envoys with steelyard bootstrap --mode shedding, or set shedding.enabled to false", cluster)}
}

func sourceProblems(s SourceStatus, now time.Time) []Problem {
	var out []Problem
	switch {
	case s.State == SourceOff:
		// An Envoy that was not told to report is no fault, but it is worth less.
		out = append(out, problem(SeverityWarning, "source %s: none of %.0f Envoys has it switched on%s", s.Name, s.Envoys.Expected.Or(0), because(s.LastError)))
	case s.State == SourceDown:
		out = append(out, problem(SeverityError, "source %s is down%s%s", s.Name, lastWorked(s, now), because(s.LastError)))
	case s.State == SourceStale:
		out = append(out, problem(SeverityWarning, "source %s is stale%s%s", s.Name, lastWorked(s, now), because(s.LastError)))
	case s.State == SourcePartial:
		out = append(out, problem(SeverityWarning, "source %s is partial, Envoys that report: %s%s", s.Name, formatReporting(s.Envoys), because(s.LastError)))
	}
	if s.IgnoredMembers > 0 {
		out = append(out, problem(SeverityWarning, "source %s: %d members are no endpoints of this cluster and are ignored", s.Name, s.IgnoredMembers))
	}
	return out
}

// countProblems judges a pool by how many endpoints are affected: single ones
// are what the weights are for, half of them are not.
func countProblems(n EndpointCounts) []Problem {
	var out []Problem
	add := func(count int, what string) {
		if count == 0 {
			return
		}
		severity := SeverityWarning
		if 2*count >= n.Total {
			severity = SeverityError
		}
		out = append(out, problem(severity, "%d of %d endpoints %s", count, n.Total, what))
	}
	add(n.Stale, "without a fresh report: weighed towards the pool's median")
	add(n.Overloaded, "overloaded")
	add(n.Failing, "failed their latest scrape")
	return out
}

// endpointProblems are those of one endpoint.
func endpointProblems(e Endpoint, now time.Time) []Problem {
	out := []Problem{}
	scrape := because(e.LastScrape.Error)
	switch {
	case e.Reason == reasonNeutral:
		out = append(out, problem(SeverityError, "no usable report: weighed as a median endpoint%s", scrape))
	case e.Reason == reasonDecay:
		out = append(out, problem(SeverityWarning, "report is going stale: moving to the median%s", scrape))
	case e.Reason == reasonUnused:
		out = append(out, problem(SeverityWarning, "the Envoys send it nothing, whatever it weighs: look for its health check or outlier ejection there"))
	case e.Reason == reasonBlackout && scrape != "":
		out = append(out, problem(SeverityError, "new, and its scrapes fail%s", scrape))
	case e.Reason == reasonBlackout:
		out = append(out, problem(SeverityWarning, "new, and no report yet"))
	case scrape != "":
		out = append(out, problem(SeverityWarning, "latest scrape failed%s", scrape))
	}
	if e.Overloaded {
		out = append(out, problem(SeverityWarning, "overloaded%s", because(e.OverloadReason)))
	}
	if at := e.LastImplausibleReading; !at.IsZero() && age(at, now).Or(0) < implausiblePatience.Seconds() {
		out = append(out, problem(SeverityWarning, "a counter of its metrics rose by more than any server can have made it, %s, "+
			"and %.0f times since the start: that interval does not count", formatAgo(at, now), e.ImplausibleReadings.Or(0)))
	}
	return out
}

// clientProblems are those of one Envoy. A configured cluster that has nothing
// to send yet is not a problem of the Envoy's, and says so itself.
func clientProblems(c Client, configured map[string]bool, now time.Time) []Problem {
	out := []Problem{}
	for _, s := range c.Subscriptions {
		waiting := age(s.LastSent, now).Or(0)
		unanswered := !s.InSync && s.VersionSent != s.VersionAcked
		switch {
		case s.Nack.Current:
			out = append(out, problem(SeverityError, "refuses cluster %s: %s", s.Resource, orUnknown(s.Nack.Message)))
		case !s.Known && !configured[s.Cluster]:
			out = append(out, problem(SeverityWarning, "asks for cluster %s, which is not configured here", s.Resource))
		case unanswered && waiting > ackPatience.Seconds():
			out = append(out, problem(SeverityError, "has not answered version %s of cluster %s for %s", s.VersionSent, s.Resource, formatSeconds(waiting)))
		}
	}
	out = append(out, signalProblems(c.Signals, now)...)
	if c.Duplicates > 0 {
		out = append(out, problem(SeverityWarning, "%d other connections use the same node id: two Envoys that cannot be told apart, or one that came back", c.Duplicates))
	}
	return out
}

func signalProblems(s Signals, now time.Time) []Problem {
	var out []Problem
	if s.State == SignalSilent {
		out = append(out, problem(SeverityWarning, "silent: last entry %s, last report %s; its requests are not counted", formatAgo(s.LastEntry, now), formatAgo(s.LastReport, now)))
	}
	if s.ReportStreams > 1 {
		out = append(out, problem(SeverityWarning, "%d streams of load reports under this node id from this address: Envoys that cannot be told apart; what they tell is added up, and mended late: give each a node id of its own", s.ReportStreams))
	}
	if s.Runtime.Nack != "" {
		out = append(out, problem(SeverityError, "refuses the runtime values that switch its access log: %s", s.Runtime.Nack))
	}
	return out
}

// lastWorked is the part of a sentence that says since when a source fails.
func lastWorked(s SourceStatus, now time.Time) string {
	if s.LastSuccess.IsZero() {
		return ", and never worked"
	}
	return fmt.Sprintf(", last worked %s ago", formatSeconds(age(s.LastSuccess, now).Or(0)))
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

// sortWorstFirst orders endpoints by what a person wants to see first: errors,
// warnings, then the fullest.
func sortWorstFirst(endpoints []Endpoint) {
	slices.SortStableFunc(endpoints, func(a, b Endpoint) int {
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
