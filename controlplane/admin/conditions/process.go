package conditions

import (
	"slices"
	"strings"
	"time"

	"steelyard/internal/api"
)

// processConditions returns the conditions about Steelyard itself.
func processConditions(p *Observation) (out []condition) {
	s, process := &p.Status, api.Subject{Kind: api.SubjectProcess}
	if len(p.Stuck) > 0 {
		out = append(out, newCondition(kindStuck, api.SeverityError, process, "Steelyard is stuck").explain(
			strings.Join(api.Limit(p.Stuck, 3), "; "), api.BlameYes, "A loop or a lock in it makes no progress.",
			"Restart it: Envoys keep their weights meanwhile. Then report it, with the log.",
			restartCommand))
	}
	if s.ConfigGeneration == 0 {
		out = append(out, newCondition(kindNoConfig, api.SeverityError, process,
			"No configuration has been applied yet").explain(
			"Steelyard serves nothing before it has one.", api.BlameYes, "It waits for its first configuration.",
			"Check the file.", checkCommand(s.ConfigFile)))
	}
	if s.LastReload.Error != "" {
		title, next, command := "The latest configuration was refused",
			"Correct the file: Steelyard applies it as soon as it is good.", checkCommand(s.ConfigFile)
		if strings.HasSuffix(s.LastReload.Error, api.RestartToChange) {
			title, next, command = "The latest configuration needs a restart",
				"Restart Steelyard when it suits you: Envoys keep their weights. Or take the change back.",
				restartCommand
		}
		f := newCondition(kindConfigRefused, api.SeverityWarning, process, title).explain(
			s.LastReload.Error, api.BlameNo,
			sprint("The one before it, generation %d, still runs.", s.ConfigGeneration), next, command)
		f.began, f.keepFor = s.LastReload.At.Time, 0
		out = append(out, f)
	}
	if noEnvoys(p) && !s.Draining {
		f := newCondition(kindNoEnvoys, api.SeverityWarning, process, "No Envoy is connected").explain(
			"Nothing follows the weights.", api.BlameUnknown,
			"Attempts that fail on the way are not seen here; a refusal has its own incident.",
			"See whether an Envoy is configured for this address, and reaches it.",
			"curl -s 'localhost:9901/stats?filter=control_plane'")
		f.pendingFor = 5 * time.Second
		out = append(out, f)
	}
	return out
}

// edgeConditions returns the conditions about the ports, the certificates and the log.
func edgeConditions(p *Observation) (out []condition) {
	add := func(kind api.IncidentKind, name, title string, problems []api.Problem, blame api.Blame,
		because, next, command string) {
		if len(problems) == 0 {
			return
		}
		f := newCondition(kind, Worst(problems), api.Subject{Kind: api.SubjectProcess},
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
		portProblems(&p.Status.XDSPort, p.Now), api.BlameYes, "One of its limits was reached.",
		"See who connects; raise xds.limits, or the limit of open files.", connectionsCommand)
	add(kindPortFull, "silent", "Streams on the port for Envoys send nothing",
		silentProblems(&p.Status.XDSPort, p.Now), api.BlameNo,
		"An Envoy sends the first message of a stream as soon as it has opened it.",
		"The log line 'streams ended' has the address. If it is an Envoy: does a link lose large packets (MTU), or "+
			"has it an ads_config that nothing uses?", "")
	add(kindPortFull, "admin", "The admin listener refuses or closes connections",
		adminPortProblems(&p.Status.AdminPort, p.Now), api.BlameYes, "One of its limits was reached.",
		"See who polls it, and from where.", connectionsCommand)
	because, next := "Its end was fixed when it was issued.", "Renew it: a new file is in use within a second."
	if slices.ContainsFunc(p.Status.Certificates, func(c api.Certificate) bool { return c.Error != "" }) {
		because = "A file does not hold what Steelyard needs there."
		next = "Correct the file, and renew what expires: new files are in use within a second."
	}
	add(kindCertificate, "", "A certificate needs attention", certificateProblems(p.Status.Certificates, p.Now),
		api.BlameNo, because, next, "")
	for _, h := range p.Status.RefusedHandshakes { // what is to be done differs from reason to reason
		advice := adviceOnHandshake(h.Reason)
		add(kindHandshakes, h.Reason, sprint("TLS handshakes with Envoys are refused: %s", h.Reason),
			handshakeProblems([]api.RefusedHandshake{h}, p.Now), advice.blame, advice.because, advice.next, "")
	}
	add(kindDenied, "", "Clients are denied by xds.clients", deniedProblems(p.Status.XDSAccess.Denied, p.Now),
		api.BlameUnknown, "The names do not show whether the certificate or xds.clients is wrong.",
		"Compare the names in the client's certificate with xds.clients. A new list is in force at once, and a new "+
			"certificate within seconds, or after a restart where it watches other clusters.", "")
	add(kindLog, "", "Log lines are lost", logProblems(p.Status.Log, p.Now), api.BlameNo,
		"Whatever reads its standard error does not keep up.", "See what reads the log.",
		logCommand)
	return out
}

// joined are the messages of problems.
func joined(problems []api.Problem) string {
	var out []string
	for _, p := range api.Limit(problems, 3) {
		out = append(out, p.Message)
	}
	if more := len(problems) - len(out); more > 0 {
		out = append(out, sprint("and %d more", more))
	}
	return strings.Join(out, "; ")
}

func logProblems(l api.LogStatus, now time.Time) (out problemList) {
	switch stalled, dropped := l.StalledSeconds.Or(0), l.LastDrop.Age(now); {
	case stalled > logPatience.Seconds():
		out.warn("the log has not been read for %s; %d lines were dropped since the start: check the reader of "+
			"standard error", FormatSeconds(stalled), l.DroppedLines)
	case l.Error != "":
		out.warn("the log cannot be written, %d lines were dropped since the start: %s", l.DroppedLines, l.Error)
	case dropped.Or(logMemory.Seconds()) < logMemory.Seconds():
		out.warn("%d log lines were dropped since the start, the latest %s ago, because they could not be written in "+
			"time", l.DroppedLines, FormatSeconds(dropped.Or(0)))
	}
	return out
}
