package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"steelyard/collectors/loadstats"
	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery"
	"steelyard/sim"
	"steelyard/weighting/push"
	"steelyard/xds/envoyspec"
)

// policy is how the configuration uses the signals.
func (f *deployment) policy(s sim.Scenario, envoyPolicy sim.Balancer) sim.Policy {
	c, cfg := f.cluster, f.config
	y := &sim.Steelyard{
		Budget: push.Budget{
			MinInterval:    c.Push.MinInterval,
			BytesPerSecond: float64(cfg.XDS.PushBudget) / float64(len(cfg.Clusters)),
			ProxyCPU:       c.Push.EnvoyCPU,
			Cost:           envoyspec.PushCost,
		},
		Deadband: c.Push.Deadband, Heartbeat: c.Push.Heartbeat,
		EnvoyPolicy: envoyPolicy,
		Capacity:    f.capacityKnown(),
		Params:      c.Params(),
	}
	if !c.Scrape.Disabled {
		y.ScrapeInterval = c.Scrape.Interval
		f.list("scrapes", "every "+config.DurationText(c.Scrape.Interval), f.file)
	}
	f.source(y, s)
	f.list("pushes", fmt.Sprintf("at least %s apart, deadband %s", config.DurationText(c.Push.MinInterval),
		number(c.Push.Deadband)),
		f.file)
	f.mode(y, s)
	budgets := fmt.Sprintf("%.1f MiB/s of pushes, %s of a core of each Envoy", y.Budget.BytesPerSecond/(1<<20),
		number(c.Push.EnvoyCPU))
	if len(cfg.Clusters) > 1 {
		budgets += ", as if it asked only for this cluster" // the configuration does not have the Envoys' clusters
	}
	f.list("budgets", budgets, f.file)
	f.list("law", fmt.Sprintf("policy %s, fresh %s, hold %s, decay %s, floor %s",
		c.Policy, config.DurationText(c.Weighting.Fresh), config.DurationText(c.Weighting.Hold),
		config.DurationText(c.Weighting.Decay), number(c.Weighting.Floor)),
		f.file)
	f.list("Envoys' policy", string(envoyPolicy)+" under the weights", "--envoy-policy")
	f.noteSignals(s.Signals, y.Source)
	return sim.Policy{Name: f.name(), Steelyard: y}
}

// noteSignals describes delays and losses of signals.
func (f *deployment) noteSignals(g sim.Signals, source sim.Source) {
	var delays []string
	for _, d := range []struct {
		of    string
		delay *time.Duration
	}{{"scrapes", g.ScrapeDelay}, {"signals", g.Delay}, {"pushes", g.PushDelay}} {
		if d.delay != nil {
			delays = append(delays, config.DurationText(*d.delay)+" of "+d.of)
		}
	}
	if len(delays) > 0 {
		f.list("delays", strings.Join(delays, ", "), fromScenario)
	}
	switch len(delays) {
	case 0:
		f.list("delays", "of signals and pushes: as in one data center", fromNowhere)
	case 1, 2:
		f.list("other delays", "as in one data center", fromNowhere)
	}
	if g.Loss == nil {
		return
	}
	lost, ok := lossy[source]
	if !ok {
		lost = "the counts of an access log or Redis, which are not used here"
	}
	f.list("loss", number(*g.Loss)+" of "+lost, fromScenario)
}

// lossy names what can get lost.
var lossy = map[sim.Source]string{
	sim.AccessLog: "the entries of the access log",
	sim.Redis:     "the changes of the counts in Redis",
}

// mode chooses between the two modes of an Envoy: with shedding enabled it is shedding, and
// there is no fallback.
func (f *deployment) mode(y *sim.Steelyard, s sim.Scenario) {
	switch stale := f.cluster.Push.EndpointStaleAfter; {
	case f.cluster.Shedding.Enabled:
		f.list("shedding", "Envoys refuse the excess of a saturated pool, and have no fallback (mode shedding)", f.file)
	case stale > 0:
		y.FallbackAfter = stale
		from := f.file
		_, after := y.Budget.Stretch(push.Subscribers{Proxies: s.Envoys}, len(podsOf(s)), 0, stale)
		if after > stale {
			from += ", stretched to the budgets"
		}
		f.list("fallback", "Envoys balance by themselves "+config.DurationText(after)+
			" after the last push (mode failsafe)", from)
	}
}

// capacityKnown reports whether the slots of all endpoints are configured.
func (f *deployment) capacityKnown() bool {
	endpoints, _, err := f.endpoints(0)
	return f.cluster.Capacity > 0 || err == nil &&
		!slices.ContainsFunc(endpoints, func(e discovery.Endpoint) bool { return e.Capacity == 0 })
}

// source chooses the in-flight counts as the daemon does: reports of Envoys take precedence
// over Redis.
func (f *deployment) source(y *sim.Steelyard, s sim.Scenario) {
	x, redis := f.config.XDS, f.cluster.Inflight.RedisKey != ""
	besides := ""
	if redis {
		besides = "; not Redis, while all Envoys report"
		if f.cluster.Inflight.AddCounts {
			besides = "; nobody else counts in Redis here"
		}
	}
	busy := busyShare(s, x.AccessLog.ReportsAbove)
	switch {
	case !x.AccessLog.Disabled && !x.LoadReports.Disabled && busy > 0.5:
		y.Source = sim.LoadReports
		y.ReportInterval = f.reportInterval(s.Envoys, true)
		f.list("in flight", fmt.Sprintf("Envoys' load reports every %s; the access log is off above %s requests/s of "+
			"an Envoy",
			config.DurationText(y.ReportInterval), number(x.AccessLog.ReportsAbove)), f.file+besides)
	case !x.AccessLog.Disabled:
		y.Source = sim.AccessLog
		y.ReportInterval = f.reportInterval(s.Envoys, false)
		text := "Envoys' upstream access log"
		if busyShare(s, x.AccessLog.BatchAbove) > 0.5 {
			y.SignalDelay = batchDelay
			text += fmt.Sprintf(", in batches above %s requests/s of an Envoy", number(x.AccessLog.BatchAbove))
		}
		if y.Uncorrected = x.LoadReports.Disabled; !y.Uncorrected {
			text += ", corrected with load reports every " + config.DurationText(y.ReportInterval)
		}
		f.list("in flight", text, f.file+besides)
	case !x.LoadReports.Disabled:
		y.Source = sim.LoadReports
		y.ReportInterval = f.reportInterval(s.Envoys, true)
		f.list("in flight", "Envoys' load reports every "+config.DurationText(y.ReportInterval), f.file+besides)
	case redis:
		y.Source, y.ReportInterval = sim.Redis, f.config.Redis.Interval
		f.list("in flight", "Redis, read every "+config.DurationText(y.ReportInterval), f.file)
	default:
		y.Source = sim.Scrape
		f.list("in flight", "from scrapes only", f.file)
	}
}

// batchDelay is the delay of an entry in a batch, as measured at 300 requests a second
// of an Envoy.
const batchDelay = 6 * time.Millisecond

// busyShare is the part of the traffic that comes from Envoys with more requests per
// second than the threshold.
func busyShare(s sim.Scenario, threshold float64) (busy float64) {
	shares := s.EnvoyShares
	if len(shares) == 0 {
		shares = slices.Repeat([]float64{1}, s.Envoys)
	}
	var sum float64
	for _, share := range shares {
		sum += share
	}
	perSecond := s.ArrivalRate()
	for _, share := range shares {
		if perSecond*share/sum > threshold {
			busy += share / sum
		}
	}
	return busy
}

// reportInterval is the interval of load reports, with or without an access log; 0, which means
// the simulator's own, where there are none.
func (f *deployment) reportInterval(envoys int, isAlone bool) time.Duration {
	r := f.config.XDS.LoadReports
	if r.Disabled {
		return 0
	}
	budget := float64(r.Budget)
	if isAlone {
		_, alone := loadstats.Fleet{ReportsOnly: envoys}.Intervals(r.Interval, budget, loadstats.ReportBytes)
		return alone
	}
	withLog, _ := loadstats.Fleet{WithAccessLog: envoys}.Intervals(r.Interval, budget, loadstats.ReportBytes)
	return withLog
}
