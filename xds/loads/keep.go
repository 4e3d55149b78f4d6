package loads

import (
	"sync"
	"time"

	"steelyard/internal/api"
	"steelyard/picking/prefix"
	"steelyard/weighting"
	"steelyard/xds/loads/loadsv1"
)

const (
	// maxKept bounds the routes of all clusters that are kept for pickers that come.
	maxKept = 500_000
	// maxTold bounds the routes of a cluster that one is sent.
	maxTold = prefix.DefaultRoutes
	// recounting is how old a count of routes by age may be.
	recounting = 5 * time.Second
	// telling is the time between two snapshots of a cluster: after a restart, all pickers come at once.
	telling = 100 * time.Millisecond
)

// keeping has the routes of the clusters of which pickers have learned something. It has its own lock, so that it
// delays no loads.
type keeping struct {
	mu     sync.Mutex
	limits map[string]prefix.Limits // of the clusters that are configured
	tables map[string]*keptTable
}

type keptTable struct {
	*prefix.Table
	names []string // the cluster's

	counting sync.Mutex // guards the following
	counted  time.Time
	count    api.Routes

	telling sync.Mutex // guards the following
	told    []*loadsv1.Learned
	toldAt  time.Time
}

// configure replaces the clusters, and the limits of their routes.
func (k *keeping) configure(settings map[string]Settings) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.limits = make(map[string]prefix.Limits, len(settings))
	for name, s := range settings {
		k.limits[name] = prefix.Limits{Routes: int(s.Prefix.GetRoutes()),
			TTL: time.Duration(s.Prefix.GetTtlSeconds()) * time.Second}
	}
	for name := range k.tables {
		if _, configured := k.limits[name]; !configured {
			delete(k.tables, name)
		}
	}
	k.divide()
}

// divide gives each table its part of maxKept, and no more than is configured.
func (k *keeping) divide() {
	for name, t := range k.tables {
		l := k.limits[name]
		if l.Routes <= 0 {
			l.Routes = prefix.DefaultRoutes
		}
		l.Routes = min(l.Routes, max(1, maxKept/len(k.tables)))
		t.Limit(l)
	}
}

// table returns the routes of a cluster; nil for none. made reports that they begin with this call.
func (k *keeping) table(cluster string, begin bool) (t *keptTable, made bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t = k.tables[cluster]
	if _, configured := k.limits[cluster]; t != nil || !begin || !configured {
		return t, false
	}
	t = &keptTable{Table: prefix.NewTable(prefix.Limits{}), names: []string{cluster}}
	k.tables[cluster] = t
	k.divide()
	return t, true
}

// keep takes in what a picker has learned, of one cluster.
func (s *Server) keep(l *loadsv1.Learned, o prefix.Origin) {
	cluster := l.GetClusters()[0]
	t, made := s.keeping.table(cluster, len(l.GetHashes()) > 0)
	if t == nil {
		return
	}
	if made {
		s.mu.Lock()
		d := s.clusters[cluster].decision
		s.mu.Unlock()
		setEndpoints(t.Table, &d)
	}
	t.Take(&prefix.Learned{Address: l.GetEndpoint(), Hashes: l.GetHashes(), Kept: l.GetKept(),
		Age: time.Duration(l.GetAgeSeconds()) * time.Second}, o, time.Now())
}

// followEndpoints forgets the routes of endpoints that left or lost them, and tells the latter to other replicas: those
// that cannot scrape the endpoint do not see it. The pickers here see it in the loads.
func (s *Server) followEndpoints(cluster string, d *weighting.Decision) {
	t, _ := s.keeping.table(cluster, false)
	if t == nil {
		return
	}
	restarted := setEndpoints(t.Table, d)
	t.Expire(time.Now())
	for _, address := range restarted {
		s.tellReplicas(&loadsv1.Learned{Clusters: []string{cluster}, Endpoint: address})
	}
}

// setEndpoints makes the endpoints of a table those of a decision.
func setEndpoints(t *prefix.Table, d *weighting.Decision) (restarted []string) {
	if len(d.Endpoints) == 0 {
		return nil
	}
	return t.SetEndpoints(func(yield func(string, int) bool) {
		for i := range d.Endpoints {
			if !yield(d.Endpoints[i].Address, d.Endpoints[i].Restarts) {
				return
			}
		}
	})
}

// Kept returns the routes that are kept of some clusters, of all where none is named, at a time or later: the newest
// first of each.
func (s *Server) Kept(from time.Time, clusters ...string) (all []*loadsv1.Learned) {
	if len(clusters) == 0 {
		clusters = s.keeping.names()
	}
	for _, cluster := range clusters {
		if t, _ := s.keeping.table(cluster, false); t != nil {
			all = append(all, t.snapshot(from)...)
		}
	}
	return all
}

// snapshot returns the routes at a time or later. All that come at the same time get the same one.
func (t *keptTable) snapshot(from time.Time) []*loadsv1.Learned {
	for {
		told, wait := t.fresh(from)
		if wait <= 0 {
			return told
		}
		time.Sleep(wait)
	}
}

// fresh returns a snapshot of a time or later; above 0, how long it takes until one may be made.
func (t *keptTable) fresh(from time.Time) (told []*loadsv1.Learned, wait time.Duration) {
	t.telling.Lock()
	defer t.telling.Unlock()
	if !t.toldAt.Before(from) {
		return t.told, 0
	}
	if wait := time.Until(t.toldAt.Add(telling)); wait > 0 {
		return nil, wait
	}
	t.told, t.toldAt = nil, time.Now()
	for _, k := range t.Snapshot(maxTold, t.toldAt) {
		t.told = append(t.told, &loadsv1.Learned{Clusters: t.names, Endpoint: k.Address, Hashes: k.Hashes, Kept: true,
			AgeSeconds: uint32(k.Age / time.Second)})
	}
	return t.told, 0
}

func (k *keeping) names() (names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name := range k.tables {
		names = append(names, name)
	}
	return names
}

// Routes counts the routes that are kept of a cluster; nil for none.
func (s *Server) Routes(cluster string) *api.Routes {
	t, _ := s.keeping.table(cluster, false)
	if t == nil {
		return nil
	}
	t.counting.Lock()
	defer t.counting.Unlock()
	if now := time.Now(); now.Sub(t.counted) > recounting {
		stats, ages := t.Stats(), t.Ages(now, time.Minute, 10*time.Minute, time.Hour)
		t.counted, t.count = now, api.Routes{Here: stats.Own, Elsewhere: stats.Others, Evicted: stats.Evicted,
			LastMinute: ages[0], LastTenMinutes: ages[0] + ages[1], LastHour: ages[0] + ages[1] + ages[2]}
	}
	count := t.count
	return &count
}
