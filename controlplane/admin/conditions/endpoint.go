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

// unsteered is what an endpoint gets where Envoys only report.
const unsteered = "Nobody follows the weights, so they change nothing about its requests."

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
		func(picker api.Picker) bool { return picker.Follows(cluster) }) ||
		slices.ContainsFunc(p.Elsewhere, func(e api.OtherEnvoy) bool {
			return e.Kind == api.FollowerPicker && api.Picker{Clusters: e.Clusters}.Follows(cluster)
		})
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
