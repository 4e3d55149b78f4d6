package controlplane

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery"
	"steelyard/controlplane/liveness"
	"steelyard/controlplane/override"
	"steelyard/internal/loops"
	"steelyard/weighting/push"
)

// A Manager runs one Cluster and one source of endpoints for each configured
// cluster, and follows the configuration as it changes.
type Manager struct {
	publisher Publisher
	proxies   Proxies
	observer  Observer
	cost      push.Cost // of a push to a proxy
	changed   func()    // the endpoints of some cluster, or the set of clusters
	monitor   *liveness.Monitor
	log       *slog.Logger
	// kubernetes makes the sources that the Kubernetes API has; nil for none.
	kubernetes KubernetesSource
	overrides  *override.Registry

	// reload is the activity of Apply. The change of each cluster is a piece of work of its own: a list of endpoints on
	// a mount that hangs holds each up for two seconds, and there may be many.
	reload  liveness.Activity
	unwatch func() // of reload

	applying sync.Mutex // one Apply or Close at a time; they wait for goroutines
	closed   bool       // guarded by applying

	// mu guards the map and the fields below, and no code waits under it: the goroutines that
	// Apply waits for look up clusters.
	mu        sync.Mutex
	clusters  map[string]*running
	settled   bool // the clusters are those of a configuration, and no Apply is under way
	beenReady bool // new Envoys could be served, at some moment
}

// running is a cluster with its goroutines.
type running struct {
	*Cluster
	config    config.Cluster
	loop      loops.Task
	discovery loops.Task
}

// NewManager makes a manager of no clusters. changed is called from any goroutine
// whenever the result of Each has changed. It must not block, nor call the
// Manager: Apply and Close wait for goroutines that may be calling it.
// The loops and Apply are watched by activities.
func NewManager(p Publisher, cost push.Cost, proxies Proxies, obs Observer, changed func(),
	monitor *liveness.Monitor, log *slog.Logger) *Manager {
	m := &Manager{
		publisher: p, cost: cost, proxies: proxies, observer: obs, changed: changed,
		monitor: monitor, log: log, clusters: make(map[string]*running),
	}
	m.overrides = override.New(m.refreshOverrides)
	m.unwatch = monitor.Watch("reload of the configuration", &m.reload)
	return m
}

// A KubernetesSource makes the source of endpoints that are found in the Kubernetes API.
type KubernetesSource func(e config.Endpoints, report func(error), log *slog.Logger) discovery.Discoverer

// UseKubernetes sets the maker of those sources. Call it before Apply.
func (m *Manager) UseKubernetes(k KubernetesSource) { m.kubernetes = k }

// Apply makes the clusters those of the configuration. Clusters that stay keep
// their reports, what was learned, and their streams; one whose source of
// endpoints changed keeps its endpoints until the new source has answered.
func (m *Manager) Apply(cfg *config.Config) {
	m.applying.Lock()
	defer m.applying.Unlock()
	if m.closed {
		return
	}
	m.EverReady() // of the previous clusters, for later callers
	m.settle(false)
	m.remove(cfg)
	for _, c := range cfg.Clusters {
		m.reload.Begin()
		if r := m.running(c.Name); r != nil {
			m.change(r, c, optionsOf(c, cfg, m.cost))
		} else {
			m.addCluster(c, optionsOf(c, cfg, m.cost))
		}
		m.reload.End()
	}
	m.settle(true)
	m.changed()
}

func (m *Manager) settle(settled bool) {
	m.mu.Lock()
	m.settled = settled
	m.mu.Unlock()
}

// remove stops the clusters that are not configured any more.
func (m *Manager) remove(cfg *config.Config) {
	var gone []*running
	m.mu.Lock()
	for name, r := range m.clusters {
		if cfg.Cluster(name) == nil {
			gone = append(gone, r)
			delete(m.clusters, name)
		}
	}
	m.mu.Unlock()
	for _, r := range gone {
		m.reload.Begin()
		m.stop(r)
		m.publisher.Remove(r.name)
		m.reload.End()
	}
}

// Close stops all loops and waits for them; a later Apply does nothing. The proxies keep what they have. No loop waits
// for another, for a source of endpoints or for an Apply that is stuck: its last push must lift the drop fraction.
func (m *Manager) Close() {
	for _, r := range m.sorted() {
		r.loop.Cancel()
	}
	m.applying.Lock()
	defer m.applying.Unlock()
	m.closed = true
	m.unwatch()
	all := m.sorted()
	for _, r := range all {
		r.loop.Cancel()
		r.discovery.Cancel()
	}
	for _, r := range all {
		m.stop(&r)
	}
}

// running returns the cluster of that name, or nil.
func (m *Manager) running(name string) *running {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clusters[name]
}

func (m *Manager) addCluster(c config.Cluster, o Options) {
	r := &running{
		Cluster: NewCluster(c.Name, o, m.publisher, m.proxies, m.observer, m.log),
		config:  c,
	}
	r.loop = loops.Start(context.Background(), func(ctx context.Context) {
		defer m.monitor.Watch("cluster "+c.Name, &r.activity)()
		_ = r.Run(ctx) // ends only with ctx
	})
	r.discovery = m.discover(r.Cluster, c)
	m.mu.Lock()
	m.clusters[c.Name] = r
	m.mu.Unlock()
	m.refreshOverrides(c.Name)
}

func (m *Manager) change(r *running, c config.Cluster, o Options) {
	if o != r.current() {
		r.SetOptions(o)
	}
	if !reflect.DeepEqual(r.config.Endpoints, c.Endpoints) {
		r.discovery.Stop()
		discovery := m.discover(r.Cluster, c)
		m.mu.Lock()
		r.discovery = discovery
		m.mu.Unlock()
	}
	m.mu.Lock()
	r.config = c
	m.mu.Unlock()
}

func (m *Manager) stop(r *running) {
	r.discovery.Stop()
	r.loop.Stop()
}

// discover runs the cluster's source of endpoints.
func (m *Manager) discover(cluster *Cluster, c config.Cluster) loops.Task {
	report := func(err error) { cluster.Discovered(time.Now(), err) }
	source := m.discoverer(c.Endpoints, report, m.log.With("cluster", c.Name))
	return loops.Start(context.Background(), func(ctx context.Context) {
		up := make(chan []discovery.Endpoint)
		run := loops.Start(ctx, func(ctx context.Context) {
			if err := source.Run(ctx, up); err != nil {
				report(err)
				m.log.Error("discovery ended: the endpoints stay as they are", "cluster", c.Name, "error", err)
			}
		})
		defer run.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case endpoints := <-up:
				cluster.SetEndpoints(endpoints)
				m.changed()
			}
		}
	})
}

// discoverer picks the source that the configuration names.
func (m *Manager) discoverer(e config.Endpoints, report func(error), log *slog.Logger) discovery.Discoverer {
	switch {
	case e.InKubernetes():
		return m.kubernetes(e, report, log)
	case e.DNS != nil:
		return discovery.NewDNS(discovery.DNSConfig{
			Name: e.DNS.Name, Type: e.DNS.Type, Port: e.DNS.Port, Interval: e.DNS.Interval,
		}, report, log)
	case e.File != "":
		return discovery.NewFile(e.File, report, log)
	}
	report(nil) // a static list cannot fail later
	return discovery.NewStatic(e.Listed())
}

// Each calls f for every cluster, sorted by name, with its configuration and its
// current endpoints.
func (m *Manager) Each(f func(c config.Cluster, endpoints []discovery.Endpoint)) {
	for _, r := range m.sorted() {
		r.mu.Lock()
		endpoints := r.endpoints
		r.mu.Unlock()
		f(r.config, endpoints)
	}
}

// Cluster returns a running cluster, or nil.
func (m *Manager) Cluster(name string) *Cluster {
	if r := m.running(name); r != nil {
		return r.Cluster
	}
	return nil
}

// refreshOverrides gives a cluster its current overrides.
func (m *Manager) refreshOverrides(cluster string) {
	if c := m.Cluster(cluster); c != nil {
		c.setOverrides(m.overrides.Of(cluster, time.Now()))
	}
}

// Endpoints returns those of a cluster; false before its source has answered.
func (m *Manager) Endpoints(name string) ([]discovery.Endpoint, bool) {
	c := m.Cluster(name)
	if c == nil {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.endpoints, c.discovered
}

// sorted copies the running clusters, so that nothing is called under the lock.
func (m *Manager) sorted() []running {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]running, 0, len(m.clusters))
	for _, r := range m.clusters {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b running) int { return strings.Compare(a.name, b.name) })
	return out
}

// optionsOf translates a cluster's configuration for its loop. The clusters share
// the budget of bytes evenly, because which of them will change most is not known in advance.
func optionsOf(c config.Cluster, cfg *config.Config, cost push.Cost) Options {
	o := Options{
		Engine:         c.Engine,
		Scraped:        !c.Scrape.Disabled,
		Counted:        c.Inflight.RedisKey != "",
		CountsOthers:   c.Inflight.AddCounts,
		ScrapeInterval: c.Scrape.Interval,
		Capacity:       c.Capacity,
		WarmUp:         c.WarmUp,
		Push: push.Options{
			Params: c.Params(),
			Budget: push.Budget{
				MinInterval:    c.Push.MinInterval,
				BytesPerSecond: float64(cfg.XDS.PushBudget) / float64(len(cfg.Clusters)),
				ProxyCPU:       c.Push.EnvoyCPU,
				Cost:           cost,
			},
			Deadband:   c.Push.Deadband,
			Heartbeat:  c.Push.Heartbeat,
			StaleAfter: c.Push.EndpointStaleAfter,
		},
	}
	if cfg.Redis != nil {
		o.CountInterval = cfg.Redis.Interval
	}
	return o
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
