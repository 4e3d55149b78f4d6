package controlplane

import (
	"fmt"
	"time"

	"steelyard/weighting"
)

// Ready reports whether the cluster has something worth publishing, or nothing to publish.
func (c *Cluster) Ready() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready || c.waitingFor() == ""
}

// unanswered reports whether discovery gave no answer within warm_up. Nothing is published for such a cluster: an
// empty assignment would take the endpoints from Envoys that know them.
func (c *Cluster) unanswered(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.discovered && now.Sub(c.began) >= c.options.WarmUp
}

// blindAfter is how long what a cluster is decided by may fail until another replica may decide better.
const blindAfter = 10 * time.Second

// Blind says why another replica may decide better about the cluster: its endpoints are not known or no longer up to
// date here, or none of them can be asked. It is empty if they are. Where nobody knows better, that is no fault.
func (c *Cluster) Blind(now time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	fails := func(s *source) bool { return s.lastErr != nil && now.Sub(s.failing) > blindAfter }
	switch {
	case !c.discovered:
		return "discovery has not answered yet"
	case fails(&c.discovery):
		return fmt.Sprintf("discovery fails: %v", c.discovery.lastErr)
	case c.options.Scraped && len(c.records) > 0 && fails(&c.scrapes):
		return fmt.Sprintf("no endpoint can be scraped: %v", c.scrapes.lastErr)
	}
	return ""
}

// enoughTries is how often in a row an endpoint or a source is tried without success
// before the first round continues without it.
const enoughTries = 3

// waitingFor is what the first full round still lacks; empty when nothing. While no
// endpoint has reported, it gives up on none: the fault is then more likely here than
// in the whole pool.
func (c *Cluster) waitingFor() string {
	if !c.discovered {
		return "endpoints: discovery has not answered yet"
	}
	var scraped, failed, counted int
	for _, r := range c.records {
		switch {
		case r.server != (weighting.ServerReport{}):
			scraped++
		case r.failures >= enoughTries:
			failed++
		}
		if r.inFlight.Known() {
			counted++
		}
	}
	all := len(c.records)
	switch {
	case all == 0:
		return ""
	case c.options.Counted && counted == 0 && (!c.options.Scraped || c.counts.failures < enoughTries):
		return fmt.Sprintf("in-flight counts: none for any of %d endpoints yet", all)
	case c.options.Scraped && (scraped == 0 || scraped+failed < all):
		return fmt.Sprintf("scrapes: %d of %d endpoints have answered, %d have failed %d times", scraped, all, failed,
			enoughTries)
	case !c.options.Counted && !c.options.Scraped && c.reporting.Reporting < c.reporting.Subscribers.Proxies:
		return fmt.Sprintf("proxies: %d of %d report their requests", c.reporting.Reporting,
			c.reporting.Subscribers.Proxies)
	}
	return ""
}
