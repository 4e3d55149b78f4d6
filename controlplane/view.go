package controlplane

import (
	"fmt"
	"time"

	"steelyard/controlplane/discovery"
	"steelyard/controlplane/view"
	"steelyard/weighting"
)

// Clusters shows all clusters to the admin API.
func (m *Manager) Clusters() []view.Cluster {
	now := time.Now()
	sorted := m.sorted()
	out := make([]view.Cluster, len(sorted))
	for i := range sorted {
		out[i] = sorted[i].View(now)
	}
	return out
}

// View shows the cluster to the admin API.
func (c *Cluster) View(now time.Time) view.Cluster {
	weights := c.publisher.Weights(c.name)
	proxies, disputes := c.proxies.Sources(c.name, now), c.proxies.Disputes(c.name, now)
	c.mu.Lock()
	defer c.mu.Unlock()
	v := view.Cluster{
		Name: c.name, Engine: c.options.Engine, Ready: c.ready,
		Sources: append(c.sources(now), c.expected(proxies)...),
		LastPush: view.Push{At: view.At(c.pushes.at), Version: c.pushes.last.Version,
			Reason: c.pushes.last.Reason},
		Pushes:             c.pushes.pushed,
		SuppressedPushes:   c.pushes.suppressed,
		MinIntervalSeconds: view.Seconds(max(c.options.Push.Budget.MinInterval, c.pushes.pause.Interval)),
		MinIntervalReason:  c.pushes.pause.Limit,
		Shedding:           c.options.Push.Params.Shedding.Enabled,
		Disputes:           disputes,
	}
	if d := c.reporting.Dropped; d.Known() {
		v.DroppedRequests = view.Num(d.Value)
	}
	if !c.ready {
		v.NotReadyReason = c.waitingFor()
		v.Ready = v.NotReadyReason == ""
	}
	v.Decision, v.Endpoints = view.FromDecision(c.decision, now)
	found := make(map[string]discovery.Endpoint, len(c.endpoints))
	for _, e := range c.endpoints {
		found[e.Address] = e
	}
	for i := range v.Endpoints {
		e := &v.Endpoints[i]
		e.Engine = found[e.Address].Engine
		if e.Engine == "" {
			e.Engine = c.options.Engine
		}
		if w, ok := weights[e.Address]; ok {
			e.Weight = view.Num(float64(w))
		}
		if r := c.records[e.Address]; r != nil {
			e.LastScrape = viewScrape(r.scrape)
			if !r.scrape.At.IsZero() {
				e.ImplausibleReadings, e.LastImplausibleReading = view.Num(float64(r.server.Implausible)),
					view.At(r.implausible)
			}
			c.viewProxies(e, r, now)
		}
	}
	return v
}

// expected is the sources that are proxies. Those that have nothing to report are idle, unless
// the pool has requests.
func (c *Cluster) expected(proxies []view.SourceStatus) []view.SourceStatus {
	const traffic = 0.5 // requests per second
	for i := range proxies {
		if s := &proxies[i]; s.State == view.SourceIdle && c.decision.ArrivalRate > traffic {
			s.State, s.Envoys.Idle = view.SourceOff, view.Num(0)
			s.LastError = fmt.Sprintf("the pool gets %.1f requests a second, but no Envoy that watches it reports any",
				c.decision.ArrivalRate)
		}
	}
	return proxies
}

// viewProxies shows the proxies' reports of one endpoint.
func (c *Cluster) viewProxies(e *view.Endpoint, r *record, now time.Time) {
	switch byProxies := c.countsByProxies(); {
	case byProxies && r.proxies.InFlight.Known():
		e.InFlightSource = c.reporting.Source
	case !byProxies && r.inFlight.Known():
		e.InFlightSource = "redis"
	}
	if f := r.proxies.Proxies.Failed; f.Known() {
		e.FailedRequests = view.Num(f.Value)
	}
	if f := r.proxies.Proxies.Errors; f.Known() {
		e.ErrorRequests = view.Num(f.Value)
	}
	e.ResponseBytes, e.ResponseBytesAgeSeconds = viewReading(r.proxies.ResponseBytes, now)
	e.FailedShare, e.FailedShareAgeSeconds = viewReading(r.proxies.FailedShare, now)
}

func viewReading(r weighting.Reading, now time.Time) (value, age view.Number) {
	if !r.Known() {
		return view.Number{}, view.Number{}
	}
	return view.Num(r.Value), view.Seconds(r.Age(now))
}

func viewScrape(s Scrape) view.Scrape {
	if s.At.IsZero() {
		return view.Scrape{}
	}
	v := view.Scrape{At: view.At(s.At), DurationSeconds: view.Seconds(s.Took)}
	if s.Err != nil {
		v.Error = s.Err.Error()
	}
	return v
}

// sources shows the health of the cluster's sources.
func (c *Cluster) sources(now time.Time) []view.SourceStatus {
	hold := c.options.Push.Params.Hold
	out := []view.SourceStatus{c.discovery.view("discovery", false)}
	if c.options.Scraped {
		s := c.scrapes
		s.lastErr = c.failing()
		out = append(out, s.view("scrape", now.Sub(s.lastSuccess) > hold))
	}
	if c.options.Counted {
		s := c.counts.view("redis", now.Sub(c.counts.lastSuccess) > hold)
		s.IgnoredMembers = c.ignored
		out = append(out, s)
	}
	if c.pushes.err != nil {
		out = append(out, view.SourceStatus{
			Name: "push", State: view.SourceStale,
			LastSuccess: view.At(c.pushes.at), LastError: c.pushes.err.Error(),
		})
	}
	return out
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
func (s *source) view(name string, late bool) view.SourceStatus {
	v := view.SourceStatus{Name: name, State: view.SourceOK, LastSuccess: view.At(s.lastSuccess)}
	if s.lastErr != nil {
		v.LastError = s.lastErr.Error()
	}
	switch {
	case s.lastSuccess.IsZero() || late:
		v.State = view.SourceDown
	case s.lastErr != nil:
		v.State = view.SourceStale
	}
	return v
}
