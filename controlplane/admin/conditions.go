package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"steelyard/controlplane/view"
	"steelyard/internal/spelling"
	"steelyard/internal/stat"
)

// The kinds of incidents. docs/admin-api.md describes them.
const (
	kindStuck          view.IncidentKind = "stuck"
	kindNoConfig       view.IncidentKind = "no_config"
	kindConfigRefused  view.IncidentKind = "config_refused"
	kindNoEnvoys       view.IncidentKind = "no_envoys"
	kindPortFull       view.IncidentKind = "port_full"
	kindCertificate    view.IncidentKind = "certificate"
	kindHandshakes     view.IncidentKind = "handshakes_refused"
	kindDenied         view.IncidentKind = "clients_denied"
	kindLog            view.IncidentKind = "log"
	kindNotReady       view.IncidentKind = "not_ready"
	kindNoEndpoints    view.IncidentKind = "no_endpoints"
	kindNoDecision     view.IncidentKind = "no_decision"
	kindNoPush         view.IncidentKind = "no_push"
	kindDrops          view.IncidentKind = "drops"
	kindNoShedding     view.IncidentKind = "shedding_without_effect"
	kindNoQueue        view.IncidentKind = "queue_without_effect"
	kindSource         view.IncidentKind = "source"
	kindOverloaded     view.IncidentKind = "overloaded"
	kindAsleep         view.IncidentKind = "asleep"
	kindNotFollowed    view.IncidentKind = "not_followed"
	kindDispute        view.IncidentKind = "dispute"
	kindEndpoint       view.IncidentKind = "endpoint"
	kindUnused         view.IncidentKind = "endpoint_unused"
	kindCounters       view.IncidentKind = "counters"
	kindRefuses        view.IncidentKind = "envoy_refuses"
	kindBehind         view.IncidentKind = "envoy_behind"
	kindUnknownCluster view.IncidentKind = "envoy_asks_unknown"
	kindSilent         view.IncidentKind = "envoy_silent"
	kindGone           view.IncidentKind = "envoy_gone"
)

// groupTitles end the sentence "Several endpoints of llama ...".
var groupTitles = map[view.IncidentKind]string{
	kindEndpoint:       "stall, fail or cannot be read",
	kindUnused:         "get nothing from the Envoys",
	kindCounters:       "have counters that are wrong",
	kindRefuses:        "refuse their weights",
	kindBehind:         "do not answer",
	kindUnknownCluster: "subscribe to a cluster that is not configured",
	kindSilent:         "do not report their requests",
	kindGone:           "disconnected without closing their streams",
	kindDispute:        "have reports that conflict with all others",
}

// sprint is Sprintf, with a shorter name for the sentences here.
func sprint(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// newCondition returns a condition with its title; explain adds the sentences.
func newCondition(kind view.IncidentKind, severity view.Severity, subject view.Subject, title string) condition {
	return condition{Incident: view.Incident{ID: conditionID(kind, subject.Cluster, subject.Name), Kind: kind,
		Severity: severity, Subject: subject, Title: title, Steelyard: view.BlameUnknown,
		Because: "Nothing that Steelyard sees shows the cause."},
		keepFor: defaultKeepFor}
}

func conditionID(kind view.IncidentKind, parts ...string) string {
	id := string(kind)
	for _, part := range parts {
		if part != "" {
			id += "/" + part
		}
	}
	return id
}

// explain adds why it is so, whether Steelyard is the cause, and what to do.
func (f condition) explain(why string, blame view.Blame, because, next, command string) condition {
	f.Why, f.Steelyard, f.Because, f.Next, f.Command = clip(why, maxEventText), blame, because, next, command
	return f
}

// conditions returns all conditions at a moment.
func conditions(p *observation) []condition {
	out := append(processConditions(p), edgeConditions(p)...)
	for i := range p.clusters {
		c := &p.clusters[i]
		out = append(out, clusterConditions(p, c)...)
		for k := range c.Endpoints {
			out = append(out, endpointConditions(p, c, &c.Endpoints[k])...)
		}
	}
	for i := range p.clients {
		out = append(out, clientConditions(p, &p.clients[i])...)
	}
	return append(out, leftConditions(p)...)
}

// processConditions returns the conditions about Steelyard itself.
func processConditions(p *observation) (out []condition) {
	s, process := &p.status, view.Subject{Kind: view.SubjectProcess}
	if len(p.stuck) > 0 {
		out = append(out, newCondition(kindStuck, view.SeverityError, process, "Steelyard is stuck").explain(
			strings.Join(limit(p.stuck, 3), "; "), view.BlameYes, "A loop or a lock in it makes no progress.",
			"Restart it: Envoys keep their weights meanwhile. Then report it, with the log.",
			"systemctl restart steelyard"))
	}
	if s.ConfigGeneration == 0 {
		out = append(out, newCondition(kindNoConfig, view.SeverityError, process,
			"No configuration has been applied yet").explain(
			"Steelyard serves nothing before it has one.", view.BlameYes, "It waits for its first configuration.",
			"Check the file.", checkCommand(s.ConfigFile)))
	}
	if s.LastReload.Error != "" {
		f := newCondition(kindConfigRefused, view.SeverityWarning, process,
			"The latest configuration was refused").explain(
			s.LastReload.Error, view.BlameNo,
			sprint("The one before it, generation %d, still runs.", s.ConfigGeneration),
			"Correct the file: Steelyard applies it as soon as it is good.", checkCommand(s.ConfigFile))
		f.began, f.keepFor = s.LastReload.At.Time, 0
		out = append(out, f)
	}
	if len(p.clients) == 0 && !s.Draining {
		f := newCondition(kindNoEnvoys, view.SeverityWarning, process, "No Envoy is connected").explain(
			"Nothing follows the weights.", view.BlameUnknown,
			"Attempts that fail on the way are not seen here; those that are refused here are incidents of their own.",
			"See whether an Envoy is configured for this address, and reaches it.",
			"curl -s localhost:9901/stats?filter=control_plane")
		f.pendingFor = 5 * time.Second
		out = append(out, f)
	}
	return out
}

func checkCommand(file string) string {
	if file == "" {
		return ""
	}
	return "steelyard check --config " + quoted(file)
}

// quoted quotes s for a shell where that is necessary.
func quoted(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// edgeConditions returns the conditions about the ports, the certificates and the log.
func edgeConditions(p *observation) (out []condition) {
	add := func(kind view.IncidentKind, name, title string, problems []view.Problem, blame view.Blame,
		because, next, command string) {
		if len(problems) == 0 {
			return
		}
		f := newCondition(kind, worst(problems), view.Subject{Kind: view.SubjectProcess},
			title).explain(joined(problems), blame, because, next,
			command)
		if name != "" {
			f.ID += "/" + name
		}
		if kind == kindCertificate {
			f.keepFor = 0 // a file does not flicker, and who renewed it waits for this to end
		}
		out = append(out, f)
	}
	add(kindPortFull, "xds", "The port for Envoys refuses or closes connections",
		portProblems(&p.status.XDSPort, p.now), view.BlameYes, "One of its limits was reached.",
		"See who connects; raise xds.limits, or the limit of open files.", "steelyard status")
	add(kindPortFull, "silent", "Streams on the port for Envoys send nothing",
		silentProblems(&p.status.XDSPort, p.now), view.BlameNo,
		"An Envoy sends the first message of a stream as soon as it has opened it.",
		"The log line 'streams ended' has the address. If it is an Envoy: does a link lose large packets (MTU), or "+
			"has it an ads_config that nothing uses?", "")
	add(kindPortFull, "admin", "The admin listener refuses or closes connections",
		adminPortProblems(&p.status.AdminPort, p.now), view.BlameYes, "One of its limits was reached.",
		"See who polls it, and from where.", "steelyard status")
	because, next := "Its end was fixed when it was issued.", "Renew it: a new file is in use within a second."
	if slices.ContainsFunc(p.status.Certificates, func(c Certificate) bool { return c.Error != "" }) {
		because = "What is in a file is not what Steelyard needs there."
		next = "Correct the file, and renew what expires: new files are in use within a second."
	}
	add(kindCertificate, "", "A certificate needs attention", certificateProblems(p.status.Certificates, p.now),
		view.BlameNo, because, next, "")
	for _, h := range p.status.RefusedHandshakes { // what is to be done differs from reason to reason
		advice := adviceOnHandshake(h.Reason)
		add(kindHandshakes, h.Reason, sprint("TLS handshakes with Envoys are refused: %s", h.Reason),
			handshakeProblems([]stat.RefusedHandshake{h}, p.now), advice.blame, advice.because, advice.next, "")
	}
	add(kindDenied, "", "Clients are denied by xds.clients", deniedProblems(p.status.XDSAccess.Denied, p.now),
		view.BlameUnknown, "The names do not show whether the certificate or xds.clients is wrong.",
		"Compare the names in the client's certificate with xds.clients. A new list is in force at once, and a new "+
			"certificate within seconds, or after a restart where it watches other clusters.", "")
	add(kindLog, "", "Log lines are lost", logProblems(p.status.Log, p.now), view.BlameNo,
		"Whatever reads its standard error does not keep up.", "See what reads the log.",
		"journalctl -u steelyard -n 5")
	return out
}

// joined are the messages of problems.
func joined(problems []view.Problem) string {
	var out []string
	for _, p := range limit(problems, 3) {
		out = append(out, p.Message)
	}
	if more := len(problems) - len(out); more > 0 {
		out = append(out, sprint("and %d more", more))
	}
	return strings.Join(out, "; ")
}

// clientConditions returns the conditions about one connected Envoy.
func clientConditions(p *observation, c *Client) (out []condition) {
	for i := range c.Subscriptions {
		out = append(out, subscriptionConditions(p, c, &c.Subscriptions[i])...)
	}
	subject := view.Subject{Kind: view.SubjectEnvoy, Name: c.NodeID}
	if c.Signals.State == SignalSilent {
		f := newCondition(kindSilent, view.SeverityWarning, subject,
			sprint("Envoy %s does not report its requests", c.NodeID)).explain(
			sprint("Latest access log entry: %s. Latest load report: %s.", formatAgo(c.Signals.LastEntry, p.now),
				formatAgo(c.Signals.LastReport, p.now)),
			view.BlameNo, "It accepts assignments, and sends no reports.",
			"Its requests are not counted meanwhile. See whether its access log and load reports reach this "+
				"port.", "")
		if len(c.Subscriptions) > 0 { // one that hangs does not answer either
			f.inhibitedBy = conditionID(kindBehind, c.Subscriptions[0].Cluster, c.NodeID)
		}
		out = append(out, f)
	}
	if c.Signals.Runtime.Nack != "" {
		f := newCondition(kindRefuses, view.SeverityWarning, subject,
			sprint("Envoy %s refuses the runtime values that switch its access log", c.NodeID)).explain(
			"Its answer: "+c.Signals.Runtime.Nack, view.BlameYes, "It refuses what Steelyard sends.",
			"Report it with the version of this Envoy: "+c.Version+".", "")
		f.ID += "/runtime"
		out = append(out, f)
	}
	return out
}

// leftConditions returns the conditions about Envoys that are disconnected.
func leftConditions(p *observation) (out []condition) {
	for i := range p.left {
		switch l := &p.left[i]; {
		case lost(l, p.now):
			out = append(out, lostConditions(l)...)
		case l.Vanished && p.now.Sub(l.LeftAt.Time) < goneFor:
			out = append(out, goneCondition(l))
		}
	}
	return out
}

func goneCondition(l *LeftEnvoy) condition {
	f := newCondition(kindGone, view.SeverityWarning, view.Subject{Kind: view.SubjectEnvoy, Name: l.NodeID},
		sprint("Envoy %s disconnected without closing its streams", l.NodeID)).explain(
		sprint("%s (%s): %s. It subscribed to %s.", l.NodeID, l.Address, l.LeftReason,
			cmp.Or(listed(l.Clusters), "nothing")),
		view.BlameNo, "Its connection ended from the other side, or with the network.",
		"See whether it still runs, and reaches this port. An Envoy that runs keeps its last weights.", "")
	f.began, f.keepFor = l.LeftAt.Time, 0
	return f
}

// subscriptionConditions are what is wrong with what an Envoy does with one assignment.
func subscriptionConditions(p *observation, c *Client, s *stat.Subscription) []condition {
	subject := view.Subject{Kind: view.SubjectEnvoy, Cluster: s.Cluster, Name: c.NodeID}
	configured := names(p.clusters)
	switch {
	case s.Nack.Current:
		blame, because := blameNack(s.Nack.Message)
		f := newCondition(kindRefuses, view.SeverityError, subject,
			sprint("Envoy %s refuses the weights of %s", c.NodeID, s.Cluster)).explain(
			"Its answer: "+orUnknown(s.Nack.Message), blame, because,
			sprint("It keeps the assignment %s until it accepts another. Its version is %s: see whether others of "+
				"this version accept.", cmp.Or(s.VersionAcked, "nothing"), orUnknown(c.Version)),
			"steelyard bootstrap --cluster "+quoted(s.Cluster)+" --xds HOST:PORT")
		f.began = s.Nack.At.Time
		return []condition{f}
	case behind(s, p.now):
		return []condition{behindCondition(subject, sprint(
			"It was last sent an assignment of %s %s, and last accepted one %s.", s.Cluster,
			formatAgo(s.LastSent, p.now), formatAgo(s.LastAck, p.now)))}
	case !s.Known && !slices.Contains(configured, s.Cluster):
		why := "It gets no endpoints for that name, and answers its requests with 503."
		if near := spelling.Nearest(s.Cluster, configured); near != "" {
			why += sprint(" Did its configuration mean %s?", near)
		}
		// about the Envoy only: there is no such cluster
		f := newCondition(kindUnknownCluster, view.SeverityWarning,
			view.Subject{Kind: view.SubjectEnvoy, Name: c.NodeID},
			sprint("Envoy %s subscribes to %s, which is not configured here", c.NodeID, s.Resource)).explain(
			why, view.BlameNo, sprint("Configured clusters: %s.", cmp.Or(listed(configured), "nothing")),
			"Correct its configuration, or configure the cluster here.", "")
		f.ID += "/" + s.Resource
		return []condition{f}
	}
	return nil
}

// blameNack is whether Steelyard is the cause of a refusal: what it writes into an assignment is its own.
func blameNack(message string) (view.Blame, string) {
	m := strings.ToLower(message)
	if strings.Contains(m, "unknown field") {
		return view.BlameInPart, "Steelyard sends a field that this version of Envoy does not have."
	}
	for _, own := range []string{"weight", "address", "drop", "overprovisioning", "priority", "endpoint"} {
		if strings.Contains(m, own) {
			return view.BlameYes, "It is about a part of the assignment that Steelyard writes."
		}
	}
	return view.BlameUnknown, "Envoy's answer does not show which part it refuses."
}
