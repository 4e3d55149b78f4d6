package admin

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"steelyard/controlplane/view"
	"steelyard/internal/envoyid"
	"steelyard/internal/loops"
	"steelyard/internal/stat"
)

// RecorderOptions are what a Recorder is made of.
type RecorderOptions struct {
	Source  Source
	History *History         // nil: a new one
	Stuck   func() []string  // as in Options
	Now     func() time.Time // nil: time.Now
	Log     *slog.Logger     // nil: none
}

// A Recorder samples all state every second. It keeps what one sample does not show: the shares that
// were served, incidents with their beginnings, events, Envoys that left, and decisions of the last minutes. It is safe
// for concurrent use.
type Recorder struct {
	o      RecorderOptions
	events events
	latest atomic.Pointer[moment]
	hub    hub

	mu       sync.Mutex // guards the following, which loops and the configuration use, too
	clusters map[string]*recorded
	configs  []Configured

	ticking   sync.Mutex               // one tick at a time; guards the following
	envoys    map[envoyid.ID]LeftEnvoy // connected, ready for when they leave
	left      []LeftEnvoy              // the latest first
	incidents []incidentState
	pushes    pushCounts
}

// A recorded is what is kept of a cluster. Only decided may be used without the lock of a tick.
type recorded struct {
	decided
	measured measured
	workings workings
	refused  refusals
}

// A moment is what the Recorder last saw, and found in it. It does not change any more.
type moment struct {
	observation
	measures  map[string]*measure
	incidents []view.Incident
	fleet     *fleet
}

const (
	// recordEvery is the time between two looks.
	recordEvery = time.Second
	leftFor     = time.Hour
	maxLeft     = 256
	maxConfigs  = 10
)

// NewRecorder returns a Recorder that has seen nothing; Run has it look.
func NewRecorder(o RecorderOptions) *Recorder {
	if o.History == nil {
		o.History = NewHistory()
	}
	if o.Stuck == nil {
		o.Stuck = func() []string { return nil }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Recorder{o: o, clusters: map[string]*recorded{}, envoys: map[envoyid.ID]LeftEnvoy{},
		hub: hub{next: make(chan struct{})}}
}

// Run looks once a second until ctx is done, and ends the streams then.
func (r *Recorder) Run(ctx context.Context) error {
	defer r.hub.publish(nil)
	r.events.add(r.o.Now(), change{kind: view.EventStarted})
	r.Tick()
	loops.Every(ctx, recordEvery, func(time.Time) { r.Tick() })
	return nil
}

// Pushed records a decision that was sent to the Envoys. It does not block; the loop of the cluster calls it.
func (r *Recorder) Pushed(cluster string, at time.Time, d Decided) {
	r.of(cluster).pushed(at, d)
}

// of is what is kept of a cluster.
func (r *Recorder) of(cluster string) *recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.clusters[cluster]
	if k == nil {
		k = &recorded{}
		r.clusters[cluster] = k
	}
	return k
}

// Configured records that a configuration was applied.
func (r *Recorder) Configured(c Configured) {
	r.mu.Lock()
	r.configs = append(r.configs, c)
	r.configs = slices.Clone(r.configs[max(0, len(r.configs)-maxConfigs):])
	r.mu.Unlock()
	detail := sprint("generation %d", c.Generation)
	if len(c.Clusters) > 0 {
		detail += ", which changes " + listed(c.Clusters)
	}
	r.events.add(c.At, change{kind: view.EventConfig, detail: detail})
}

// ConfigRefused records that a configuration was refused.
func (r *Recorder) ConfigRefused(at time.Time, why string) {
	r.events.add(at, change{kind: view.EventConfigRefused, detail: why})
}

// Overridden records that an operator changed endpoints by hand; what describes the change.
func (r *Recorder) Overridden(at time.Time, cluster string, endpoints []string, what string) {
	r.events.add(at, change{kind: view.EventOverride, cluster: cluster, subjects: endpoints, detail: what})
}

// Tick looks once.
func (r *Recorder) Tick() {
	r.ticking.Lock()
	defer r.ticking.Unlock()
	now := r.o.Now()
	m := &moment{measures: map[string]*measure{}, observation: observation{now: now, status: r.o.Source.Status(),
		stuck: r.o.Stuck(), clusters: slices.Clone(r.o.Source.Clusters()), clients: r.o.Source.Clients(),
		refusing: map[string]bool{}}}
	p := &m.observation
	p.status.Now = view.At(now)
	step := stepOf(p.clusters)
	for i := range p.clusters {
		c := &p.clusters[i]
		k := r.of(c.Name)
		m.measures[c.Name] = r.record(now, c, k)
		k.workings.add(c.Working, step)
		p.refusing[c.Name] = k.refused.refusing(now, c.Queue)
	}
	r.follow(now, p.clients, p.status.GoneEnvoys)
	p.left = slices.Clone(r.left)
	configured := func(name string) bool { return m.measures[name] != nil }
	r.o.History.keepOnly(configured)
	r.mu.Lock()
	p.configs = r.configs
	maps.DeleteFunc(r.clusters, func(name string, _ *recorded) bool { return !configured(name) })
	r.mu.Unlock()
	if before := r.latest.Load(); before != nil { // what is there at the first look did not just happen
		for _, c := range changes(&before.observation, p) {
			r.events.add(now, c)
			r.log(c)
		}
	}
	r.incidents = evaluate(r.incidents, p)
	m.incidents = shownOf(r.incidents, now)
	m.fleet = fleetOf(m, r.events.last())
	m.fleet.PushRate = r.pushes.rate(now, p.clusters)
	r.latest.Store(m)
	r.hub.publish(&encoder{rec: r, moment: m, parts: map[partKey][]byte{}})
}

// logged are the messages of the events that only the Recorder sees; the others have lines where they happen.
var logged = map[view.EventKind]string{
	view.EventFlagged:    "endpoints flagged",
	view.EventUnflagged:  "flags of endpoints cleared",
	view.EventRetried:    "endpoints failed another probe",
	view.EventDropsBegan: "Envoys begin to refuse requests",
	view.EventDropsEnded: "Envoys refuse no more requests",
}

// log writes what happened, with the first endpoints and the reason of the first of them.
func (r *Recorder) log(c change) {
	message := logged[c.kind]
	if message == "" {
		return
	}
	line := []any{"cluster", c.cluster}
	if n := len(c.subjects); n > 0 {
		line = append(line, "endpoints", limit(c.subjects, view.MaxSubjects), "count", n)
	}
	if c.detail != "" {
		line = append(line, "reason", c.detail)
	}
	r.o.Log.Info(message, line...)
}

// record adds a second of a cluster, and completes it with what the handler knows.
func (r *Recorder) record(now time.Time, c *view.Cluster, k *recorded) *measure {
	m := k.measured.observe(now, c, &k.decided)
	c.Served, c.Use, c.Counts = m.served, m.use, count(c.Endpoints)
	if len(c.Endpoints) > 0 {
		r.o.History.Add(c.Name, now, m.addresses, func(r *row) { r.fill(c, m) })
	}
	return m
}

// A refusals is what the queue of a cluster refused since its start, and when that last grew.
type refusals struct {
	seen  bool
	total uint64
	grew  time.Time
}

// refusing takes in a look, and reports whether the queue has refused requests in the last seconds.
func (r *refusals) refusing(now time.Time, q *stat.Queue) bool {
	if q == nil {
		*r = refusals{}
		return false
	}
	before := r.total
	r.total = 0
	for _, class := range q.Classes {
		r.total += class.RefusedFull + class.RefusedTimeout
	}
	if r.seen && r.total > before {
		r.grew = now
	}
	r.seen = true
	return now.Sub(r.grew) < defaultKeepFor
}

// idOf identifies an Envoy over its connections, and after the last of them.
func idOf(node, address string) envoyid.ID {
	return envoyid.ID{NodeID: node, Host: cmp.Or(envoyid.HostOf(address), address)}
}

// follow keeps the list of the Envoys that left.
func (r *Recorder) follow(now time.Time, clients []Client, gone []stat.GoneEnvoy) {
	connected := make(map[envoyid.ID]LeftEnvoy, len(clients))
	back := map[string]bool{}
	for i := range clients {
		c, id := &clients[i], idOf(clients[i].NodeID, clients[i].Address)
		back[c.NodeID] = true
		e := LeftEnvoy{Node: c.Node, Address: c.Address, ConnectedAt: c.ConnectedAt, Clusters: []string{}}
		if before, ok := connected[id]; ok {
			e.Clusters = before.Clusters
		}
		for k := range c.Subscriptions {
			if name := c.Subscriptions[k].Cluster; !slices.Contains(e.Clusters, name) && len(e.Clusters) < maxClusters {
				e.Clusters = append(e.Clusters, name)
			}
		}
		connected[id] = e
	}
	var leaving []string
	var why string
	for id, e := range r.envoys {
		if _, still := connected[id]; still {
			continue
		}
		e.LeftAt, e.LeftReason = view.At(now), "it closed its streams"
		if i := slices.IndexFunc(gone, func(g stat.GoneEnvoy) bool { return g.NodeID == e.NodeID }); i >= 0 {
			e.LeftAt, e.LeftReason, e.Vanished, e.Silent = gone[i].Since, gone[i].Cause, true, gone[i].Silent
			why = gone[i].Cause
		}
		leaving = append(leaving, e.NodeID)
		r.left = append(r.left, e)
	}
	r.envoys = connected
	r.left = append(r.left, r.unseen(gone)...)
	r.left = slices.DeleteFunc(r.left, func(e LeftEnvoy) bool {
		return back[e.NodeID] || now.Sub(e.LeftAt.Time) > leftFor
	})
	slices.SortStableFunc(r.left, func(a, b LeftEnvoy) int { return b.LeftAt.Compare(a.LeftAt.Time) })
	r.left = limit(r.left, maxLeft)
	if len(leaving) > 0 {
		slices.Sort(leaving)
		r.events.add(now, change{kind: view.EventEnvoyLeft, subjects: leaving, detail: why})
	}
}

// maxClusters is how many of the clusters of an Envoy that left are kept.
const maxClusters = 20

// unseen are Envoys that came and vanished between two looks.
func (r *Recorder) unseen(gone []stat.GoneEnvoy) (out []LeftEnvoy) {
	for _, g := range limit(gone, maxLeft) {
		if !slices.ContainsFunc(r.left, func(e LeftEnvoy) bool { return e.NodeID == g.NodeID }) {
			out = append(out, LeftEnvoy{Node: stat.Node{NodeID: g.NodeID}, Address: g.Address, Clusters: []string{},
				LeftAt: g.Since, LeftReason: g.Cause, Vanished: true, Silent: g.Silent})
		}
	}
	return out
}

// fleetOf sums a moment up.
func fleetOf(m *moment, lastEvent uint64) *fleet {
	f := &fleet{StartedAt: m.status.StartedAt, ConfigGeneration: m.status.ConfigGeneration,
		Ready: ready(m.status, m.clusters), State: worstState(m.incidents), Envoys: envoysOf(&m.observation),
		Clusters: make([]fleetCluster, 0, len(m.clusters)), Incidents: limit(m.incidents, 50), LastEventID: lastEvent}
	for i := range m.clusters {
		c := &m.clusters[i]
		line := fleetCluster{Name: c.Name, State: worstState(clusterIncidents(m.incidents, c.Name)), Ready: c.Ready,
			Counts: c.Counts, ArrivalRate: c.Decision.ArrivalRate, MedianLoad: c.Decision.MedianLoad,
			WaterLevel: c.Decision.WaterLevel, Unit: c.Decision.Unit, FirstTokenMean: c.FirstTokenMean,
			AnswerP99: c.AnswerP99Seconds, CapacityUsed: c.Use.CapacityUsed, ToSpare: c.Use.ToSpare,
			DropFraction: c.Decision.DropFraction, DecisionAge: c.Decision.AgeSeconds, VsDecided: c.Served.VsDecided}
		line.FullestLoad, line.InFlight = poolSums(c.Endpoints)
		f.Clusters = append(f.Clusters, line)
	}
	slices.SortFunc(f.Clusters, func(a, b fleetCluster) int { return strings.Compare(a.Name, b.Name) })
	return f
}
