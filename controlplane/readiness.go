package controlplane

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"steelyard/weighting"
)

// becomeReady reports whether the cluster may be published. Once ready, a cluster
// stays so, whatever fails. A pool without endpoints has nothing to publish; its
// first endpoints begin the first round.
func (c *Cluster) becomeReady(now time.Time) bool {
	c.mu.Lock()
	was, warmUp, endpoints := c.ready, c.options.WarmUp, len(c.endpoints)
	var waiting string
	var waited time.Duration
	if !was && !c.populated.IsZero() {
		waiting, waited = c.waitingFor(), now.Sub(c.populated)
		c.ready = waiting == "" || waited >= warmUp
	}
	ready := c.ready
	c.mu.Unlock()
	switch {
	case was || !ready:
	case waiting == "":
		c.log.Info("ready", "endpoints", endpoints, "after", waited)
	default:
		c.log.Warn("published without a full round of reports", "warm_up", warmUp, "waiting_for", waiting)
	}
	return ready
}

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

// EverReady reports whether new Envoys could be served at some time since the first Apply. A cluster that is added
// later and not ready delays only itself.
func (m *Manager) EverReady() bool {
	m.mu.Lock()
	been, settled, clusters := m.beenReady, m.settled, slices.Collect(maps.Values(m.clusters))
	m.mu.Unlock()
	if been || !settled {
		return been
	}
	ready, without := readyWithout(clusters, time.Now())
	if !ready {
		return false
	}
	m.mu.Lock()
	first := !m.beenReady
	m.beenReady = true
	m.mu.Unlock()
	if first && len(without) > 0 {
		m.log.Warn("ready without clusters whose discovery has never answered", "clusters", without)
	}
	return true
}

// readyWithout reports whether new Envoys can be served, and which clusters they do without: those whose discovery does
// not answer. One of them, such as a DNS name that is gone, would otherwise keep every restarted replica from the
// Envoys of all others. Where none has an answer, the fault is more likely here, and other replicas serve better; where
// there are no clusters, those of pools are still to come.
func readyWithout(clusters []*running, now time.Time) (ready bool, without []string) {
	for _, c := range clusters {
		switch {
		case c.Ready():
		case c.unanswered(now):
			without = append(without, c.name)
		default:
			return false, nil
		}
	}
	slices.Sort(without)
	return len(without) < len(clusters), without
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
