package controlplane

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery"
)

// A Manager runs one Cluster and one source of endpoints for each configured
// cluster, and follows the configuration as it changes.
type Manager struct {
	publisher Publisher
	observer  Observer
	changed   func() // the endpoints of some cluster, or the set of clusters
	log       *slog.Logger

	mu       sync.Mutex
	clusters map[string]*running
	closed   bool
}

// running is a cluster with its goroutines.
type running struct {
	*Cluster
	config    config.Cluster
	loop      task
	discovery task
}

// task is a goroutine that can be stopped and waited for.
type task struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func start(run func(ctx context.Context)) task {
	ctx, cancel := context.WithCancel(context.Background())
	t := task{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		run(ctx)
	}()
	return t
}

func (t task) stop() {
	t.cancel()
	<-t.done
}

// NewManager makes a manager of no clusters. changed is called from any goroutine
// whenever what Each would tell has changed. It must not block, nor call the
// Manager: Apply and Close wait for goroutines that may be calling it.
func NewManager(p Publisher, obs Observer, changed func(), log *slog.Logger) *Manager {
	return &Manager{publisher: p, observer: obs, changed: changed, log: log, clusters: make(map[string]*running)}
}

// Apply makes the clusters those of the configuration. Clusters that stay keep
// their reports, what was learned, and their streams; one whose source of
// endpoints changed keeps its endpoints until the new source has answered.
func (m *Manager) Apply(clusters []config.Cluster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	wanted := make(map[string]bool, len(clusters))
	for _, c := range clusters {
		wanted[c.Name] = true
	}
	for name, r := range m.clusters {
		if !wanted[name] {
			m.stop(r)
			m.publisher.Remove(name)
			delete(m.clusters, name)
		}
	}
	for _, c := range clusters {
		if r := m.clusters[c.Name]; r != nil {
			m.change(r, c)
		} else {
			m.clusters[c.Name] = m.add(c)
		}
	}
	m.changed()
}

// Close stops all loops and waits for them; a later Apply does nothing. The
// proxies keep what they have.
func (m *Manager) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for _, r := range m.clusters {
		m.stop(r)
	}
}

func (m *Manager) add(c config.Cluster) *running {
	r := &running{
		Cluster: NewCluster(c.Name, optionsOf(c), m.publisher, m.observer, m.log),
		config:  c,
	}
	r.loop = start(func(ctx context.Context) { r.Run(ctx) })
	r.discovery = m.discover(r.Cluster, c)
	return r
}

func (m *Manager) change(r *running, c config.Cluster) {
	if !r.config.Equal(&c) {
		r.SetOptions(optionsOf(c))
	}
	if !reflect.DeepEqual(r.config.Endpoints, c.Endpoints) {
		r.discovery.stop()
		r.discovery = m.discover(r.Cluster, c)
	}
	r.config = c
}

func (m *Manager) stop(r *running) {
	r.discovery.stop()
	r.loop.stop()
}

// discover runs the cluster's source of endpoints.
func (m *Manager) discover(cluster *Cluster, c config.Cluster) task {
	report := func(err error) { cluster.Discovered(time.Now(), err) }
	source := discoverer(c.Endpoints, report, m.log.With("cluster", c.Name))
	return start(func(ctx context.Context) {
		up := make(chan []discovery.Endpoint)
		run := start(func(context.Context) {
			if err := source.Run(ctx, up); err != nil {
				report(err)
				m.log.Error("discovery cannot work", "cluster", c.Name, "err", err)
			}
		})
		defer run.stop()
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
func discoverer(e config.Endpoints, report func(error), log *slog.Logger) discovery.Discoverer {
	switch {
	case e.DNS != nil:
		return discovery.NewDNS(discovery.DNSConfig{
			Name: e.DNS.Name, Type: e.DNS.Type, Port: e.DNS.Port, Interval: e.DNS.Interval,
		}, report, log)
	case e.File != "":
		return discovery.NewFile(e.File, report, log)
	}
	static := make([]discovery.Endpoint, len(e.Static))
	for i, s := range e.Static {
		static[i] = discovery.Endpoint(s)
	}
	report(nil) // what stands in the configuration cannot fail later
	return discovery.NewStatic(static)
}

// Each calls f for every cluster, sorted by name, with its configuration and its
// endpoints of the moment.
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
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.clusters[name]; r != nil {
		return r.Cluster
	}
	return nil
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

// optionsOf translates a cluster's configuration for its loop.
func optionsOf(c config.Cluster) Options {
	return Options{
		Engine:      c.Engine,
		Scraped:     !c.Scrape.Disabled,
		Counted:     c.Inflight.RedisKey != "",
		MinInterval: c.Push.MinInterval,
		Capacity:    c.Capacity,
		WarmUp:      c.WarmUp,
		Push: PushOptions{
			Deadband:           c.Push.Deadband,
			Heartbeat:          c.Push.Heartbeat,
			EndpointStaleAfter: c.Push.EndpointStaleAfter,
		},
		Params: c.Params(),
	}
}
