package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"steelyard/cmd/internal/table"
	"steelyard/collectors/loadstats"
	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery"
	"steelyard/sim"
	"steelyard/weighting/push"
	"steelyard/xds/envoyspec"
)

// A deployment is a cluster of a configuration in the traffic of a scenario.
type deployment struct {
	config  *config.Config
	cluster *config.Cluster
	file    string // of the configuration
	notes   []note // what was taken from where
}

// A note says where a value comes from.
type note struct{ what, value, from string }

func (f *deployment) list(what, value, from string) {
	f.notes = append(f.notes, note{what, value, from})
}

// Where things come from, besides the configuration.
const (
	fromScenario = "the scenario"
	fromNowhere  = "nowhere: assumed"

	learned = "; Steelyard has to learn them, because capacity is not configured"
)

// newDeployment reads the configuration and finds the cluster in it; with one cluster
// its name may be left out.
func newDeployment(path, cluster string) (*deployment, error) {
	cfg, err := config.Load(path)
	if err != nil {
		return nil, err
	}
	f := &deployment{config: cfg, file: filepath.Base(path)}
	if f.cluster = cfg.Cluster(cluster); f.cluster != nil {
		return f, nil
	}
	if cluster == "" && len(cfg.Clusters) == 1 {
		f.cluster = &cfg.Clusters[0]
		return f, nil
	}
	var names []string
	for _, c := range cfg.Clusters {
		names = append(names, c.Name)
	}
	if cluster == "" {
		return nil, Usage{fmt.Errorf("%s has %d clusters: write --cluster with one of %s", path, len(names),
			strings.Join(names, ", "))}
	}
	return nil, Usage{fmt.Errorf("--cluster %s: %s has no such cluster: write one of %s", cluster, path,
		strings.Join(names, ", "))}
}

// name is the name of its row.
func (f *deployment) name() string { return f.file + ":" + f.cluster.Name }

// place replaces the scenario's pods with the endpoints. count is the number of endpoints
// where the configuration does not have it, 0 where it does.
func (f *deployment) place(s sim.Scenario, count int) (sim.Scenario, error) {
	endpoints, from, err := f.endpoints(count)
	if err != nil {
		return s, err
	}
	before := podsOf(s)
	if len(endpoints) > mostPods {
		return s, fmt.Errorf("cluster %s has %d endpoints: at most %d are simulated", f.cluster.Name, len(endpoints),
			mostPods)
	}
	f.list("endpoints", fmt.Sprint(len(endpoints)), from)
	var all []sim.PodGroup
	configured := 0
	for i, e := range endpoints {
		pod := before[i*len(before)/len(endpoints)]
		pod.Zone = e.Zone
		if e.Capacity > 0 {
			configured++
			if pod.Engine != nil {
				pod.Capacity = e.Capacity
			} else {
				pod.Slots = max(1, int(math.Round(e.Capacity)))
			}
		}
		all = append(all, pod)
	}
	f.noteSlots(configured, all)
	s.Pods = grouped(all)
	s.Events = slices.Clone(s.Events)
	for i := range s.Events {
		s.Events[i].Pods = stretched(s.Events[i].Pods, len(before), len(endpoints))
	}
	f.noteScenario(s)
	return s, nil
}

// endpoints are those that the configuration names, with the cluster's capacity
// where they have none of their own.
func (f *deployment) endpoints(count int) (endpoints []discovery.Endpoint, from string, err error) {
	e := f.cluster.Endpoints
	if !e.Remote() && count > 0 {
		return nil, "", Usage{fmt.Errorf("--pods: %s lists the endpoints of cluster %s: remove the flag", f.file,
			f.cluster.Name)}
	}
	switch {
	case e.Remote() && count == 0:
		by := "by DNS"
		if e.InKubernetes() {
			by = "in the Kubernetes API"
		}
		return nil, "", Usage{fmt.Errorf("cluster %s finds its endpoints %s, which is not queried here: write "+
			"--pods with their number", f.cluster.Name, by)}
	case e.Remote():
		endpoints, from = make([]discovery.Endpoint, count), "--pods"
	case e.File != "":
		endpoints, err = discovery.ReadFile(context.Background(), e.File)
		from = e.File
	default:
		endpoints, from = e.Listed(), f.file
	}
	if err == nil && len(endpoints) == 0 {
		err = errors.New("it has no endpoint")
	}
	if err != nil {
		return nil, "", fmt.Errorf("endpoints of cluster %s: %w", f.cluster.Name, err)
	}
	for i := range endpoints {
		if endpoints[i].Capacity == 0 {
			endpoints[i].Capacity = f.cluster.Capacity
		}
	}
	return endpoints, from, nil
}

func (f *deployment) noteSlots(configured int, all []sim.PodGroup) {
	of := func(p sim.PodGroup) float64 { return float64(p.Slots) }
	if all[0].Engine != nil {
		of = func(p sim.PodGroup) float64 { return p.Capacity }
	}
	least, most := of(all[0]), of(all[0])
	for _, p := range all {
		least, most = min(least, of(p)), max(most, of(p))
	}
	value := number(least)
	if least != most {
		value += " to " + number(most)
	}
	switch {
	case configured == len(all) && all[0].Engine != nil:
		f.list("capacity", value, f.file)
	case configured == len(all):
		f.list("slots", value, f.file+" (capacity)")
	case all[0].Engine != nil:
		f.list("slots", "derived by the engine", fromScenario+learned)
	case configured == 0:
		f.list("slots", value, fromScenario+learned)
	default:
		f.list("slots", value, fmt.Sprintf("%s for %d endpoints (capacity), %s for the others", f.file, configured,
			fromScenario))
	}
}

func (f *deployment) noteScenario(s sim.Scenario) {
	f.list("Envoys", fmt.Sprint(s.Envoys), fromScenario)
	if s.Rate > 0 {
		f.list("traffic", number(s.Rate)+" requests/s", fromScenario)
	} else {
		f.list("traffic", fmt.Sprintf("%s of what these endpoints can do, %s requests/s", number(s.Load),
			table.Number(s.ArrivalRate())), fromScenario)
	}
	if s.Prompts != nil {
		f.list("requests", "prompts of "+s.Prompts.Trace.Name, fromScenario)
	} else {
		f.list("service time", fmt.Sprintf("%s, mean %s", serviceKind(s.Service), config.DurationText(s.Service.Mean)),
			fromScenario)
	}
	if text := eventsText(s.Events); text != "" {
		f.list("events", text, fromScenario+", stretched over the endpoints")
	}
}

// podsOf lists the pods of a scenario one by one.
func podsOf(s sim.Scenario) (all []sim.PodGroup) {
	for _, group := range s.Pods {
		one := group
		one.Count = 1
		all = append(all, slices.Repeat([]sim.PodGroup{one}, group.Count)...)
	}
	return all
}

// grouped puts neighbours that are alike together.
func grouped(all []sim.PodGroup) (groups []sim.PodGroup) {
	for _, p := range all {
		if n := len(groups); n > 0 {
			last := groups[n-1]
			last.Count = p.Count
			if last == p {
				groups[n-1].Count++
				continue
			}
		}
		groups = append(groups, p)
	}
	return groups
}

// stretched are the endpoints that stand for some pods, where there are n
// endpoints for every m pods.
func stretched(pods []int, m, n int) (endpoints []int) {
	for _, pod := range pods {
		first := pod * n / m
		for e := first; e < max(first+1, (pod+1)*n/m); e++ {
			if !slices.Contains(endpoints, e) {
				endpoints = append(endpoints, e)
			}
		}
	}
	return endpoints
}

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

// explanation is the list of what was taken from where.
func (f *deployment) explanation() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is cluster %s of %s:\n", f.name(), f.cluster.Name, f.file)
	t := table.New("  WHAT", "VALUE", "FROM")
	for _, n := range f.notes {
		t.Add("  "+n.what, n.value, n.from)
	}
	t.Write(&b, 0)
	return b.String() + "\n"
}
