package conditions

import (
	"cmp"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"steelyard/internal/api"
	"steelyard/internal/engines"
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
			"Check its source of endpoints (the key endpoints of the cluster).", checkCommand(p.Status.ConfigFile))
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
		if s.Name != api.SourceReplicas { // each replica goes on by what it sees itself
			severity = api.SeverityError
		}
		why = sprint("It is down%s%s.", lastWorked(*s, p.Now), causedBy(s.LastError))
	case s.State == api.SourcePartly:
		title, because = sprint("Discovery of %s leaves something out", c.Name),
			"It uses everything else that it finds."
		why = sprint("%s in use. Left out: %s.", endpointsInWords(c), omissions(s.Omitted))
	case s.State == api.SourceStale && s.Name == sourceDiscovery:
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
	untried := s.LastSuccess.IsZero() && s.LastError == "" // as at each start
	if severity != api.SeverityError || untried {
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
		return checkCommand(p.Status.ConfigFile)
	}
	return cmp.Or(scrapeCommand(p, c), "steelyard top "+quoted(c.Name))
}

func sourceCommand(p *Observation, c *api.Cluster, s *api.SourceStatus) string {
	switch s.Name {
	case sourceScrape:
		return scrapeCommand(p, c)
	case sourceDiscovery:
		return checkCommand(p.Status.ConfigFile)
	}
	return ""
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

// overloadedConditions are about a pool of which a large part is overloaded: weights deal with single ones.
func overloadedConditions(c *api.Cluster, subject api.Subject) []condition {
	overloaded, first := endpointsThat(c, func(e *api.Endpoint) bool {
		return EndpointState(e) == api.EndpointOverloaded
	})
	severity, title, rank := api.SeverityWarning, sprint("25 %% or more of %s is overloaded", c.Name), 0
	switch {
	case overloaded == 0 || 4*overloaded < c.Counts.Total || c.Counts.Total < 2:
		return nil
	case 2*overloaded >= c.Counts.Total:
		severity, title, rank = api.SeverityError, sprint("50 %% or more of %s is overloaded", c.Name), 1
	}
	why := sprint("%d of %d endpoints are. The first, %s: %s.", overloaded, c.Counts.Total, first.Named(),
		OrUnknown(cmp.Or(first.OverloadReason, first.Tried)))
	if used, known := c.Use.CapacityUsed.Value(); known {
		why += sprint(" %.0f %% of the capacity of the pool is in use.", 100*used)
	}
	f := newCondition(kindOverloaded, severity, subject, title).explain(why, api.BlameNo,
		"More requests arrive than these endpoints can serve, or Envoys send them more than their weights say.",
		"See whether the load is even. If it is, the pool is too small: add endpoints, or enable shedding.",
		"steelyard top "+quoted(c.Name))
	f.rank = rank
	return []condition{f}
}

// asleepConditions are about a pool of which all engines sleep: of one that is used, some may.
func asleepConditions(c *api.Cluster, subject api.Subject) []condition {
	n, first := endpointsThat(c, asleep)
	if n == 0 || n < c.Counts.Total {
		return nil
	}
	return []condition{newCondition(kindAsleep, api.SeverityError, subject,
		sprint("All engines of %s sleep", c.Name)).explain(
		sprint("The metrics of all %d endpoints show it.", n), api.BlameNo,
		"They were put to sleep, and take no requests: new ones fail or wait.",
		"Wake one. It gets requests as soon as its metrics show that it is awake.",
		requestCommand(first, http.MethodPost, "/wake_up"))}
}

// lateConditions are about a pool of which half has only old reports, whatever the state of their source.
func lateConditions(c *api.Cluster, subject api.Subject) []condition {
	late, _ := endpointsThat(c, func(e *api.Endpoint) bool {
		return e.Reason == reasonDecay && EndpointState(e) == api.EndpointLate
	})
	if late == 0 || 2*late < c.Counts.Total {
		return nil
	}
	f := newCondition(kindSource, api.SeverityError, subject, sprint("Most reports of %s are old", c.Name)).explain(
		sprint("%d of %d endpoints have reported nothing for longer than weighting.hold.", late, c.Counts.Total),
		api.BlameUnknown, "Their last values fade into the median endpoint's.",
		"See how old what is known of each endpoint is.", "steelyard top "+quoted(c.Name))
	f.ID, f.inhibitedBy = sourceID(c.Name, "reports"), sourceID(c.Name, sourceScrape)
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
	unused, _ := endpointsThat(c, func(e *api.Endpoint) bool { return e.Reason == ReasonUnused })
	if len(names) > 0 {
		blame, because = api.BlameInPart, sprint("These have not accepted the latest assignment: %s.", Listed(names))
	} else if unused > 0 {
		blame, because = api.BlameNo, sprint("The Envoys send nothing to %d endpoints whatever their weight: their "+
			"health checks or outlier detection ejected them.", unused)
	}
	f := newCondition(kindNotFollowed, api.SeverityError, subject,
		sprint("Traffic of %s does not match the weights", c.Name)).explain(
		sprint("%.0f %% of the %.0f requests of the last minute went elsewhere than decided.", 100*gap,
			c.Served.Requests1m.Or(0)-c.Served.Hashed1m.Or(0)), blame, because,
		"Compare served and decided shares; look for retries, subsets, zone-aware routing or health checks in Envoy.",
		"steelyard top "+quoted(c.Name))
	f.pendingFor, f.keepFor = followPatience, followPatience
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

// idleRate is below what shows whether an endpoint that is tried again has recovered, in requests per second.
const idleRate = 0.01

// endpointConditions are what is wrong with one endpoint.
func endpointConditions(p *Observation, c *api.Cluster, e *api.Endpoint) []condition {
	if EndpointState(e) == api.EndpointDrained { // what it does, or did, harms no request
		return counterConditions(p, c, e)
	}
	return append(serviceConditions(p, c, e), counterConditions(p, c, e)...)
}

// wrongPatience is for how long a counter that was wrong is an incident.
const wrongPatience = time.Minute

// counterConditions are about counters of a metrics page that cannot be right.
func counterConditions(p *Observation, c *api.Cluster, e *api.Endpoint) []condition {
	subject := api.Subject{Kind: api.SubjectEndpoint, Cluster: c.Name, Name: e.Address}
	inspect := sprint("steelyard inspect -c %s --cluster %s %s", quoted(p.Status.ConfigFile), quoted(c.Name),
		quoted(e.Address))
	switch {
	case e.CountersGoBack:
		return []condition{newCondition(kindCounters, api.SeverityWarning, subject,
			sprint("Several servers seem to answer at %s", e.Named())).explain(
			"The counters of its metrics go back again and again, all of them at once; its counts of tokens are not "+
				"used.", api.BlameNo, "Servers behind one address do that; so does one that restarts all the time.",
			"List the servers instead, such as the endpoints of a Service instead of its address.", inspect)}
	case within(e.LastWrongCounters, p.Now, wrongPatience):
		return []condition{newCondition(kindCounters, api.SeverityWarning, subject,
			sprint("A counter of %s is wrong", e.Named())).explain(
			"Of its metrics page, "+e.WrongCounters+". It is unknown until it goes on from where it was, for ten "+
				"seconds at most; everything else of that page is used.", api.BlameNo,
			"Counters only rise, and begin again together, when the server restarts.",
			"Report it to the authors of the engine. If several processes serve the page, let them share their "+
				"counters.", inspect)}
	}
	return nil
}

// hungNext is for an endpoint that stalls or fails. A health check of most engines does not ask what computes.
func hungNext(p *Observation, c *api.Cluster, e *api.Endpoint) string {
	switch known := engines.HealthPath(e.Engine) != ""; {
	case !steered(p, c.Name):
		return "Send it a request by hand. If that hangs or fails, see its log, and restart it."
	case !known:
		return "Send it a request by hand. If that hangs or fails, drain it (steelyard drain), see its log, and " +
			"restart it."
	}
	return "Restart it if the command hangs, cannot connect or gets a status of 500 or more. 404 says nothing: such " +
		"a server has its health elsewhere. If it answers, what computes may hang all the same: drain it (steelyard " +
		"drain), see its log, and restart it."
}

// serviceConditions are about what an endpoint serves. All that a dying server goes through is one incident, with
// the title of the worst: what it reports changes from one second to the next.
func serviceConditions(p *Observation, c *api.Cluster, e *api.Endpoint) []condition {
	subject := api.Subject{Kind: api.SubjectEndpoint, Cluster: c.Name, Name: e.Address}
	health := healthCommand(e)
	switch state := EndpointState(e); {
	case state == api.EndpointOutlier:
		title := "%s fails its requests"
		if strings.HasPrefix(e.OverloadReason, "stalled") {
			title = "%s takes requests and answers none"
		}
		f := newCondition(kindEndpoint, api.SeverityError, subject, sprint(title, e.Named())).explain(
			clause(e.OverloadReason)+" "+outlierGets(p, c, e), api.BlameNo,
			outlierBecause(p, c), hungNext(p, c, e), health)
		f.rank, f.began = 4, e.OutlierSince.Time
		return []condition{f}
	case state == api.EndpointProbed && c.Decision.ArrivalRate.Or(0) > idleRate:
		title := "%s failed its requests and is tried again"
		if strings.HasPrefix(e.Probed, "stalled") {
			title = "%s answered nothing and is tried again"
		}
		f := newCondition(kindEndpoint, api.SeverityWarning, subject, sprint(title, e.Named())).explain(
			clause(e.Probed)+" "+probedGets(p, c), api.BlameNo,
			outlierBecause(p, c), hungNext(p, c, e), health)
		f.rank, f.began = 3, e.OutlierSince.Time
		return []condition{f}
	case state == api.EndpointDoubted:
		f := newCondition(kindEndpoint, api.SeverityWarning, subject,
			sprint("The report of %s stands still", e.Named())).explain(
			"It claims requests, and none of its numbers has changed since "+FormatClock(e.DoubtedSince)+". "+
				doubtedGets(p, c), api.BlameNo,
			"Its engine hangs, or shows until its next request what it had before all were aborted.",
			"Send it a request by hand. If it does not answer, restart it; if it does, report the stuck metrics.",
			health)
		f.rank, f.began = 2, e.DoubtedSince.Time
		return []condition{f}
	case e.Reason == reasonNeutral && len(c.Sources) > 0 && !hasSource(c, sourceScrape):
		return []condition{uncounted(c, e, subject)}
	case e.Reason == reasonNeutral: // also while it is flagged
		return []condition{unusable(p, c, e, subject)}
	case state == api.EndpointUnused && !followed(p, c.Name):
		f := newCondition(kindUnused, api.SeverityWarning, subject,
			sprint("Nothing is sent to %s", e.Named())).explain(
			"Others get requests, by their metrics, and no Envoy here asks for "+c.Name+".", api.BlameNo,
			"The weights decide nothing until an Envoy follows them.",
			"Attach the Envoys that send these requests (steelyard bootstrap --attach).", "")
		return []condition{f}
	case state == api.EndpointUnused:
		f := newCondition(kindUnused, api.SeverityWarning, subject,
			sprint("Envoys send nothing to %s", e.Named())).explain(
			"They send it nothing, whatever its weight.", api.BlameNo, "Its weight would bring it requests.",
			"See whether their health checks or outlier detection ejected it.", "curl -s 'localhost:9901/clusters'")
		return []condition{f}
	case Unread(e):
		return []condition{unreadable(p, c, e, subject)}
	}
	return nil
}

// unsteered is what an endpoint gets where Envoys only report. Envoys of another replica may follow.
const unsteered = "Nobody who is connected here follows the weights, so they change nothing about its requests."

// outlierGets is what an endpoint gets that stalls or fails.
func outlierGets(p *Observation, c *api.Cluster, e *api.Endpoint) string {
	switch {
	case !steered(p, c.Name):
		return unsteered
	case e.Overloaded:
		return "Envoys are asked to prefer others, and it is tried again by itself."
	}
	return "It gets its floor only, and it is tried again by itself."
}

// probedGets is what one gets that is tried again.
func probedGets(p *Observation, c *api.Cluster) string {
	if !steered(p, c.Name) {
		return unsteered
	}
	return "Its flag is down, and few requests go there until one is answered."
}

// doubtedGets is what one gets whose report stands still.
func doubtedGets(p *Observation, c *api.Cluster) string {
	if !steered(p, c.Name) {
		return unsteered
	}
	return "It is given a request now and then, to see what it does."
}

// unusable is about an endpoint whose metrics cannot be used any more.
func unusable(p *Observation, c *api.Cluster, e *api.Endpoint, subject api.Subject) condition {
	next := "See whether it is alive. If it is, did its metrics port move (scrape.port, metrics_port)?"
	if answered(e) {
		next = "A server answers there, so see what its page has. Do engine and scrape.path fit this server?"
	}
	f := newCondition(kindEndpoint, api.SeverityError, subject,
		sprint("No usable metrics for %s", e.Named())).explain(
		"It is treated as a median endpoint"+because(e.LastScrape.Error)+".", api.BlameNo,
		"Its weight is the part of the pool that an endpoint of its capacity has in the mean.",
		next, cmp.Or(inspectCommand(p, e), healthCommand(e)))
	f.rank = 2
	f.inhibitedBy = conditionID(kindNotReady, c.Name) // before its first scrape
	if e.LastScrape.Error != "" {
		f.inhibitedBy = sourceID(c.Name, sourceScrape)
	}
	return f
}

// unreadable is about an endpoint whose metrics cannot be read, and something stands in.
func unreadable(p *Observation, c *api.Cluster, e *api.Endpoint, subject api.Subject) condition {
	cause, next := "Its metrics endpoint fails, or is too slow for scrape.timeout.",
		"Request them by hand. A slow endpoint needs a longer scrape.timeout."
	if answered(e) {
		cause, next = "Its metrics endpoint answers with something else than the metrics of this engine.",
			"See what its page has. Do engine and scrape.path fit this server?"
	}
	f := newCondition(kindEndpoint, api.SeverityWarning, subject,
		sprint("The metrics of %s cannot be read", e.Named())).explain(
		clause(e.LastScrape.Error)+" "+standIn(e), api.BlameNo, cause, next,
		cmp.Or(inspectCommand(p, e), healthCommand(e)))
	f.rank, f.inhibitedBy = 1, sourceID(c.Name, sourceScrape)
	return f
}

// healthCommand asks the server of an endpoint whether it is alive; empty where nobody knows what to ask.
func healthCommand(e *api.Endpoint) string {
	path := engines.HealthPath(e.Engine)
	if path == "" {
		return ""
	}
	return requestCommand(e, http.MethodGet, path)
}

// requestCommand sends a request to the server of an endpoint. That of a Pod goes by the API server, which a laptop
// reaches and the address of a Pod it does not.
func requestCommand(e *api.Endpoint, method, path string) string {
	if _, port, err := net.SplitHostPort(e.Address); err == nil && e.Pod != "" {
		verb := "get --raw"
		if method == http.MethodPost {
			verb = "create -f /dev/null --raw"
		}
		return sprint("kubectl %s /api/v1/namespaces/%s/pods/%s:%s/proxy%s", verb, quoted(e.Namespace), quoted(e.Pod),
			port, path)
	}
	option := ""
	if method != http.MethodGet {
		option = " -X " + method
	}
	return "curl -i -m 2" + option + " http://" + quoted(e.Address) + path
}

// uncounted is about an endpoint without a count, in a cluster whose metrics pages are not read.
func uncounted(c *api.Cluster, e *api.Endpoint, subject api.Subject) condition {
	next := "See whether the Envoys' bootstrap has the access log or the load reports."
	if hasSource(c, sourceRedis) {
		next = "See whether the sorted set in Redis (inflight.redis_key) has it as IP:PORT, also while it is idle."
	}
	f := newCondition(kindEndpoint, api.SeverityError, subject, sprint("No usable counts for %s", e.Named())).explain(
		"It is treated as a median endpoint: no source counts its requests, and its metrics are not read "+
			"(scrape.disabled).", api.BlameNo,
		"Its weight is the part of the pool that an endpoint of its capacity has in the mean.", next, "")
	f.rank = 2
	f.inhibitedBy = conditionID(kindNotReady, c.Name)
	if slices.ContainsFunc(c.Sources, func(s api.SourceStatus) bool {
		return s.Name == sourceRedis && s.State == api.SourceDown
	}) {
		f.inhibitedBy = sourceID(c.Name, sourceRedis)
	}
	return f
}

// followed reports whether an Envoy subscribes to a cluster, here or at another replica, and does not only report.
func followed(p *Observation, cluster string) bool {
	return slices.ContainsFunc(p.Clients, func(c api.Client) bool {
		return slices.ContainsFunc(c.Subscriptions,
			func(s api.Subscription) bool { return s.Cluster == cluster && s.Weighted() })
	}) || slices.ContainsFunc(p.Elsewhere, func(e api.OtherEnvoy) bool {
		return e.Kind == api.FollowerEnvoy && e.State != api.EnvoyShadow && slices.Contains(e.Clusters, cluster)
	})
}

// steered reports whether requests of a cluster follow what is decided: by an Envoy, or by a picker.
func steered(p *Observation, cluster string) bool {
	return followed(p, cluster) || slices.ContainsFunc(p.Status.Pickers.List,
		func(picker api.Picker) bool { return picker.Follows(cluster) })
}

// hasSource reports whether a cluster has a source of this name.
func hasSource(c *api.Cluster, source string) bool {
	return slices.ContainsFunc(c.Sources, func(s api.SourceStatus) bool { return s.Name == source })
}

// clause makes a sentence of a text: a capital letter, a full stop.
func clause(s string) string {
	s = strings.TrimRight(OrUnknown(s), ". ")
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// standIn is what is in use instead of the metrics.
func standIn(e *api.Endpoint) string {
	if e.LoadSource == "in_flight" || e.LoadSource == "fused" {
		return "The Envoys' in-flight counts are used instead."
	}
	return "Its last values fade into the median endpoint's."
}

// outlierBecause explains why Steelyard is not the cause of an outlier.
func outlierBecause(p *Observation, c *api.Cluster) string {
	because := "Its answers fail or do not arrive, which weights cannot change."
	if names := notFollowing(p, c.Name); len(names) > 0 {
		because += sprint(" But these Envoys do not follow, and may still send there: %s.", Listed(names))
	}
	return because
}
