package controlplane

import (
	"fmt"
	"time"

	"steelyard/controlplane/discovery"
	"steelyard/internal/api"
	"steelyard/weighting"
)

// Clusters shows all clusters to the admin API.
func (m *Manager) Clusters() []api.Cluster {
	now := time.Now()
	sorted := m.sorted()
	out := make([]api.Cluster, len(sorted))
	for i := range sorted {
		out[i] = sorted[i].View(now)
	}
	return out
}

// View shows the cluster to the admin API. The loop needs the lock, too, so it is held only for copying.
func (c *Cluster) View(now time.Time) api.Cluster {
	weights := c.publisher.Weights(c.name)
	proxies, disputes := c.proxies.Sources(c.name, now), c.proxies.Disputes(c.name, now)
	v, decision, seen := c.copied(now, proxies)
	v.Disputes = disputes
	v.Decision, v.Endpoints = api.FromDecision(decision, now)
	v.Working = api.WorkingOf(decision)
	var requests float64
	var counted bool
	var histograms []*api.Histogram
	for i := range v.Endpoints {
		e := &v.Endpoints[i]
		if w, ok := weights[e.Address]; ok {
			e.Weight = api.Num(float64(w))
		}
		// Decisions are sorted by address, and so is most of what discovery finds.
		if h := seen.show(e, now); h != nil {
			e.FirstToken = api.Latencies(h)
			histograms = append(histograms, h)
		}
		if n, known := e.Requests.Value(); known {
			requests, counted = requests+n, true
		}
	}
	if counted {
		v.Requests = api.Num(requests)
	}
	v.FirstToken = api.Latencies(api.Merge(histograms))
	return v
}

// copied copies what View needs under the lock.
func (c *Cluster) copied(now time.Time, proxies []api.SourceStatus) (api.Cluster, weighting.Decision, seen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := api.Cluster{
		Name: c.name, Engine: c.options.Engine, Ready: c.ready,
		Sources: append(c.sources(now), c.expected(proxies)...),
		LastPush: api.Push{At: api.At(c.pushes.at), Version: c.pushes.last.Version,
			Reason: c.pushes.last.Reason},
		Pushes:             c.pushes.pushed,
		SuppressedPushes:   c.pushes.suppressed,
		MinIntervalSeconds: api.Seconds(max(c.options.Push.Budget.MinInterval, c.pushes.pause.Interval)),
		MinIntervalReason:  c.pushes.pause.Limit,
		Shedding:           c.options.Push.Params.Shedding.Enabled,
	}
	if d := c.reporting.Dropped; d.Known() {
		v.DroppedRequests = api.Num(d.Value)
	}
	if !c.ready {
		v.NotReadyReason = c.waitingFor()
		v.Ready = v.NotReadyReason == ""
	}
	s := seen{options: c.options, found: c.endpoints, records: make([]record, len(c.inOrder)),
		overrides: c.overrides}
	if c.countsByProxies() {
		s.countedBy = c.reporting.Source
	} else {
		s.byRedis = true
	}
	for _, e := range c.leaving {
		v.Terminating = append(v.Terminating, api.Terminating{Address: e.Address, Pod: e.Pod, Node: e.Node})
	}
	for i, r := range c.inOrder {
		s.records[i] = *r
	}
	return v, c.decision, s
}

// seen is a copy of what the sources report about each endpoint.
type seen struct {
	options   Options
	countedBy string // source of the in-flight counts
	byRedis   bool
	found     []discovery.Endpoint
	records   []record
	overrides map[string]api.Override // replaced as a whole, so that it can be read without the lock
	byAddress map[string]int          // made when the order is not that of the decision
	next      int
}

// of returns the index of an address, -1 where it is no endpoint. It is fastest for addresses in the order of
// discovery.
func (s *seen) of(address string) int {
	if s.next < len(s.found) && s.found[s.next].Address == address {
		s.next++
		return s.next - 1
	}
	if s.byAddress == nil {
		s.byAddress = make(map[string]int, len(s.found))
		for i := range s.found {
			s.byAddress[s.found[i].Address] = i
		}
	}
	i, ok := s.byAddress[address]
	if !ok {
		return -1
	}
	s.next = i + 1
	return i
}

// firstTokenFor is how long the latest histogram of first tokens counts.
const firstTokenFor = 10 * time.Second

// show adds what the sources report about the endpoint. It returns the times to its first tokens; nil: unknown.
func (s *seen) show(e *api.Endpoint, now time.Time) *api.Histogram {
	if o, ok := s.overrides[e.Address]; ok && now.Before(o.Until.Time) {
		e.Override = &o
	}
	i := s.of(e.Address)
	e.Engine = s.options.Engine
	if i < 0 {
		return nil
	}
	if engine := s.found[i].Engine; engine != "" {
		e.Engine = engine
	}
	e.Namespace, e.Pod, e.Node = s.found[i].Namespace, s.found[i].Pod, s.found[i].Node
	e.Role, e.Model = s.found[i].Role, s.found[i].Model
	r := &s.records[i]
	e.LastScrape = viewScrape(r.scrape)
	if !r.scrape.At.IsZero() {
		e.ImplausibleReadings = api.Num(float64(r.server.Implausible))
		e.WrongCounters, e.LastWrongCounters = r.wrong, api.At(r.wrongAt)
	}
	if n := r.server.Completions; n.Known() {
		e.CompletedRequests = api.Num(n.Value)
	}
	switch {
	case !s.byRedis && r.proxies.InFlight.Known():
		e.InFlightSource, e.InFlightOthers = s.countedBy, r.others(&s.options, now)
	case s.byRedis && r.inFlight.Known():
		e.InFlightSource = "redis"
	}
	viewProxies(e, r, now)
	if now.Sub(r.firstTokenAt) > firstTokenFor {
		return nil
	}
	return r.firstToken
}

// expected corrects the state of the proxies' sources: without reports they are idle only if the pool has no
// requests, and off otherwise.
func (c *Cluster) expected(proxies []api.SourceStatus) []api.SourceStatus {
	const traffic = 0.5 // requests per second
	for i := range proxies {
		if s := &proxies[i]; s.State == api.SourceIdle && c.decision.ArrivalRate > traffic {
			s.State, s.Envoys.Idle = api.SourceOff, api.Num(0)
			s.LastError = fmt.Sprintf("the pool gets %.1f requests a second, but no Envoy that watches it reports any",
				c.decision.ArrivalRate)
		}
	}
	return proxies
}

// viewProxies shows the proxies' reports of one endpoint.
func viewProxies(e *api.Endpoint, r *record, now time.Time) {
	if n := r.proxies.Proxies.Issued; n.Known() {
		e.Requests, e.HashedRequests = api.Num(n.Value), api.Num(r.proxies.Proxies.Hashed.Value)
	}
	if f := r.proxies.Proxies.Failed; f.Known() {
		e.FailedRequests = api.Num(f.Value)
	}
	if f := r.proxies.Proxies.Errors; f.Known() {
		e.ErrorRequests = api.Num(f.Value)
	}
	e.ResponseBytes, e.ResponseBytesAgeSeconds = viewReading(r.proxies.ResponseBytes, now)
	e.FailedShare, e.FailedShareAgeSeconds = viewReading(r.proxies.FailedShare, now)
}

func viewReading(r weighting.Reading, now time.Time) (value, age api.Number) {
	if !r.Known() {
		return api.Number{}, api.Number{}
	}
	return api.Num(r.Value), api.Seconds(r.Age(now))
}

func viewScrape(s Scrape) api.Scrape {
	if s.At.IsZero() {
		return api.Scrape{}
	}
	v := api.Scrape{At: api.At(s.At), DurationSeconds: api.Seconds(s.Took), Doubt: s.Doubt}
	if s.Err != nil {
		v.Error = s.Err.Error()
	}
	return v
}

// sources shows the health of the cluster's sources.
func (c *Cluster) sources(now time.Time) []api.SourceStatus {
	hold := c.options.Push.Params.Hold
	out := []api.SourceStatus{c.found()}
	if c.options.Scraped {
		s := c.scrapes
		s.lastErr = c.failing()
		v := s.view("scrape", now.Sub(s.lastSuccess) > hold)
		if len(c.records) == 0 {
			v.State = api.SourceIdle
		}
		out = append(out, v)
	}
	if c.options.Counted {
		s := c.counts.view("redis", now.Sub(c.counts.lastSuccess) > hold)
		s.IgnoredMembers = c.ignored
		out = append(out, s)
	}
	if c.pushes.err != nil {
		out = append(out, api.SourceStatus{
			Name: "push", State: api.SourceStale,
			LastSuccess: api.At(c.pushes.at), LastError: c.pushes.err.Error(),
		})
	}
	return out
}

// found shows discovery. A set of endpoints does not age, and what is left out of it is no failure.
func (c *Cluster) found() api.SourceStatus {
	v := c.discovery.view("discovery", false)
	if c.omitted == nil {
		return v
	}
	if v.State == api.SourceOK {
		v.State = api.SourcePartly
	}
	v.Omitted = api.Omissions{Count: c.omitted.Count, First: c.omitted.First}
	return v
}

// failing sums up the endpoints whose latest scrape failed; nil when none did.
func (c *Cluster) failing() error {
	var failed int
	var example string
	for address, r := range c.records {
		if r.scrape.Err != nil {
			failed++
			if example == "" || address < example {
				example = address
			}
		}
	}
	if failed == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d endpoints fail, the first %s: %w", failed, len(c.records), example,
		c.records[example].scrape.Err)
}

// view shows one source. One that fails is stale while its previous values are still in
// use, and down after that.
func (s *source) view(name string, late bool) api.SourceStatus {
	v := api.SourceStatus{Name: name, State: api.SourceOK, LastSuccess: api.At(s.lastSuccess)}
	if s.lastErr != nil {
		v.LastError = s.lastErr.Error()
	}
	switch {
	case s.lastSuccess.IsZero() || late:
		v.State = api.SourceDown
	case s.lastErr != nil:
		v.State = api.SourceStale
	}
	return v
}
