package conditions

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"steelyard/internal/api"
)

// SourceLost reports whether a source fails as a whole. One without a result yet is not lost, and scrapes that are late
// are their endpoints'.
func SourceLost(s *api.SourceStatus) bool {
	switch s.State {
	case api.SourceDown:
		return !s.LastSuccess.IsZero() || s.LastError != ""
	case api.SourceStale:
		return s.Name != sourceScrape
	}
	return false
}

// sourceConditions are what is wrong with a source as a whole. Single endpoints have conditions of their own.
func sourceConditions(p *Observation, c *api.Cluster, s *api.SourceStatus, subject api.Subject) []condition {
	failing := 2*c.Counts.Failing >= c.Counts.Total && c.Counts.Failing > 0
	severity, title := api.SeverityWarning, sprint("Source %s of %s is lost", s.Name, c.Name)
	blame, because := api.BlameNo, "Steelyard continues with the other sources."
	var why string
	switch {
	case s.Name == "push" && s.LastError != "":
		return []condition{newCondition(kindNoPush, api.SeverityError, subject,
			sprint("The weights of %s cannot be sent", c.Name)).explain(
			s.LastError, api.BlameYes, "The decision cannot be turned into an assignment.",
			"Report this, with the log.", "")}
	case s.Name == sourceScrape && failing && c.Counts.Failing < several-1 && c.Counts.Total > 1 &&
		s.State != api.SourceDown:
		return nil // endpoints with conditions of their own
	case s.Name == sourceScrape && failing:
		severity, title = api.SeverityError, sprint("The metrics of most endpoints of %s cannot be read", c.Name)
		why = sprint("%d of %d scrapes fail%s.", c.Counts.Failing, c.Counts.Total, causedBy(s.LastError))
	case s.State == api.SourceDown:
		if s.Name == sourceDiscovery {
			because = "Nothing else finds endpoints, so Envoys get none of it from here."
		}
		if s.Name != api.SourceReplicas { // each replica goes on by what it sees itself
			severity = api.SeverityError
		}
		why = sprint("It is down%s%s.", lastWorked(*s, p.Now), causedBy(s.LastError))
	case s.State == api.SourcePartly:
		title, because = sprint("Discovery of %s leaves something out", c.Name),
			"It uses everything else that it finds."
		why = sprint("%s in use. Left out: %s.", endpointsInWords(c), omissions(s.Omitted))
	case s.State == api.SourceStale && s.Name == sourceDiscovery:
		because = "Steelyard goes on with what it found last."
		why = sprint("It fails%s%s. %s in use.", lastWorked(*s, p.Now), causedBy(s.LastError), endpointsInWords(c))
	case s.State == api.SourceStale && s.Name != sourceScrape:
		why = sprint("It fails%s%s. Its last values are still in use.", lastWorked(*s, p.Now), causedBy(s.LastError))
	case s.State == api.SourcePartial && silent(p, s.Envoys.Missing):
		return nil // Envoys with conditions of their own
	case s.State == api.SourcePartial:
		title = sprint("Some Envoys do not report to %s about %s", s.Name, c.Name)
		why = sprint("Envoys that report: %s.", formatReporting(s.Envoys))
	default:
		return nil
	}
	blind, _ := endpointsThat(c, func(e *api.Endpoint) bool { return EndpointState(e) == api.EndpointBlind })
	if blind == len(c.Endpoints) && blind > 0 && s.Name != sourceDiscovery {
		because = "No endpoint has usable metrics, so all get their part of the capacity."
	}
	f := newCondition(kindSource, severity, subject, title).explain(why, blame, because, sourceNext(s.Name),
		sourceCommand(p, c, s))
	f.ID = sourceID(c.Name, s.Name)
	if s.State == api.SourcePartly {
		f.ID += "/partly" // not the end of a failure, whose title would stay
	}
	if severity == api.SeverityError {
		f.rank = 1
	}
	if untried := s.LastSuccess.IsZero() && s.LastError == ""; untried || severity != api.SeverityError {
		f.pendingFor = passing
	}
	return []condition{f}
}

// silent reports whether all these Envoys have stopped reporting; false for none.
func silent(p *Observation, names []string) bool {
	for _, name := range names {
		if !slices.ContainsFunc(p.Clients,
			func(c api.Client) bool { return c.NodeID == name && c.Signals.State == api.SignalSilent }) {
			return false
		}
	}
	return len(names) > 0
}

// endpointsInWords begins a sentence about the endpoints of a cluster.
func endpointsInWords(c *api.Cluster) string {
	switch n := c.Counts.Total; n {
	case 0:
		return "No endpoint is"
	case 1:
		return "1 endpoint is"
	default:
		return sprint("%d endpoints are", n)
	}
}

// namedOmissions is how many omissions a sentence names.
const namedOmissions = 3

// omissions says what a source left out; the list of the first is a key of the source.
func omissions(o api.Omissions) string {
	var all []string
	for _, omission := range o.First[:min(len(o.First), namedOmissions)] {
		all = append(all, strings.TrimRight(omission.String(), "."))
	}
	if more := o.Count - len(all); more > 0 {
		all = append(all, sprint("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// sourceDiscovery is the name of the source that finds the endpoints.
const sourceDiscovery = "discovery"

// sourceScrape is the name of the source that is the endpoints' own metrics.
const sourceScrape = "scrape"

// sourceRedis is the name of the source that counts requests in flight in Redis.
const sourceRedis = "redis"

func sourceID(cluster, source string) string { return conditionID(kindSource, cluster, source) }

func causedBy(cause string) string { return because(strings.TrimRight(cause, ".")) }

func sourceNext(name string) string {
	switch name {
	case sourceScrape:
		return "Request the metrics of one endpoint by hand. Does the configuration have its port, " +
			"path and engine (scrape.port, scrape.path, engine)?"
	case api.SourceReplicas:
		return "Let the replicas connect to each other's xDS port, with the certificate of that port: " +
			"docs/operations.md, Several replicas."
	case sourceRedis:
		return "See whether Redis runs and is reachable from here (section redis of the configuration)."
	case sourceDiscovery:
		return "Correct what is named here, in the configuration or where the endpoints come from. Known " +
			"endpoints stay in use."
	}
	return "See whether the Envoys' bootstrap has this service, and what it logs."
}

// waitCommand looks for what a cluster that is not ready waits for: its endpoints or their first reports.
func waitCommand(p *Observation, c *api.Cluster) string {
	if c.Counts.Total == 0 {
		return discoveryCommand(p, c)
	}
	return cmp.Or(scrapeCommand(p, c), "steelyard top "+quoted(c.Name))
}

func sourceCommand(p *Observation, c *api.Cluster, s *api.SourceStatus) string {
	switch s.Name {
	case sourceScrape:
		return scrapeCommand(p, c)
	case sourceDiscovery:
		return discoveryCommand(p, c)
	}
	return ""
}

// withoutPods finds the namespace of an InferencePool without Pods, and the labels that it selects.
var withoutPods = regexp.MustCompile(`^InferencePool ([^/ ]+)/[^ ]+: no Pod has the labels of its selector, (\S+)$`)

// discoveryCommand looks where the endpoints of a cluster come from.
func discoveryCommand(p *Observation, c *api.Cluster) string {
	for i := range c.Sources {
		if m := withoutPods.FindStringSubmatch(c.Sources[i].LastError); m != nil {
			return sprint("kubectl -n %s get pods -l %s", quoted(m[1]), quoted(m[2]))
		}
	}
	return checkCommand(p.Status.ConfigFile)
}

// scrapeCommand requests the first page that cannot be read.
func scrapeCommand(p *Observation, c *api.Cluster) string {
	for i := range c.Endpoints {
		if command := inspectCommand(p, &c.Endpoints[i]); command != "" {
			return command
		}
	}
	return ""
}

// answered reports whether the latest scrape got a page and could not read it: its error says so.
func answered(e *api.Endpoint) bool {
	return strings.Contains(e.LastScrape.Error, "reading "+e.Engine+" metrics: ")
}

// inspectCommand returns the command that reads the page whose scrape failed; its URL is in the error. An error without
// one is about the settings of the scrape, as when its token cannot be read.
func inspectCommand(p *Observation, e *api.Endpoint) string {
	if e.LastScrape.Error == "" {
		return ""
	}
	for _, word := range strings.Fields(e.LastScrape.Error) {
		url := strings.TrimRight(word, ":,;")
		if strings.HasPrefix(url, "http://") || strings.HasPrefix(url, "https://") {
			return sprint("steelyard inspect --engine %s %s", quoted(e.Engine), quoted(url))
		}
	}
	return checkCommand(p.Status.ConfigFile)
}

// hasSource reports whether a cluster has a source of this name.
func hasSource(c *api.Cluster, source string) bool {
	return slices.ContainsFunc(c.Sources, func(s api.SourceStatus) bool { return s.Name == source })
}
