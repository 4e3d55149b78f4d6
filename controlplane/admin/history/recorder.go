package history

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"steelyard/controlplane/admin/conditions"
	"steelyard/internal/api"
	"steelyard/internal/envoyid"
	"steelyard/internal/loops"
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
	latest atomic.Pointer[Moment]
	hub    Hub

	mu       sync.Mutex // guards the following, which loops and the configuration use, too
	clusters map[string]*recorded
	configs  []conditions.Configured

	ticking   sync.Mutex                   // one tick at a time; guards the following
	envoys    map[envoyid.ID]api.LeftEnvoy // connected, ready for when they leave
	left      []api.LeftEnvoy              // the latest first
	incidents []conditions.IncidentState
	pushes    pushCounts
}

// A recorded is what is kept of a cluster. Only decided may be used without the lock of a tick.
type recorded struct {
	decided
	measured measured
	workings workings
	refused  refusals
}

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
	return &Recorder{o: o, clusters: map[string]*recorded{}, envoys: map[envoyid.ID]api.LeftEnvoy{},
		hub: Hub{next: make(chan struct{})}}
}

// Run looks once a second until ctx is done, and ends the streams then.
func (r *Recorder) Run(ctx context.Context) error {
	defer r.hub.publish(nil)
	r.events.add(r.o.Now(), change{kind: api.EventStarted})
	r.Tick()
	loops.Every(ctx, recordEvery, func(time.Time) { r.Tick() })
	return nil
}

// Latest is the moment of the latest look; nil before the first.
func (r *Recorder) Latest() *Moment { return r.latest.Load() }

// Hub wakes the streams that show each second.
func (r *Recorder) Hub() *Hub { return &r.hub }

// History has the past of the clusters.
func (r *Recorder) History() *History { return r.o.History }

// Events are those after an id, oldest first, with the ids of the oldest that is kept and of the latest of all.
func (r *Recorder) Events(now time.Time, id uint64) (out []api.Event, oldest, latest uint64) {
	latest = r.events.last()
	out, oldest = r.events.since(now, id)
	return out, oldest, latest
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
func (r *Recorder) Configured(c conditions.Configured) {
	r.mu.Lock()
	r.configs = append(r.configs, c)
	r.configs = slices.Clone(r.configs[max(0, len(r.configs)-maxConfigs):])
	r.mu.Unlock()
	detail := fmt.Sprintf("generation %d", c.Generation)
	if len(c.Clusters) > 0 {
		detail += ", which changes " + conditions.Listed(c.Clusters)
	}
	r.events.add(c.At, change{kind: api.EventConfig, detail: detail})
}

// PoolsChanged records the InferencePools that became clusters, and those that are none any more.
func (r *Recorder) PoolsChanged(at time.Time, joined, left []string) {
	for kind, pools := range map[api.EventKind][]string{api.EventPoolsJoined: joined, api.EventPoolsLeft: left} {
		if len(pools) > 0 {
			r.events.add(at, change{kind: kind, subjects: pools})
		}
	}
}

// ConfigRefused records that a configuration was refused.
func (r *Recorder) ConfigRefused(at time.Time, why string) {
	r.events.add(at, change{kind: api.EventConfigRefused, detail: why})
}

// OverrideEnded records the end of an override, with how it ended. Its beginning is seen in the clusters.
func (r *Recorder) OverrideEnded(at time.Time, v api.Override, how string) {
	r.events.add(at, change{kind: api.EventOverride, cluster: v.Cluster, subjects: []string{v.Address}, detail: how})
}

// Tick looks once.
func (r *Recorder) Tick() {
	r.ticking.Lock()
	defer r.ticking.Unlock()
	now := r.o.Now()
	m := &Moment{Measures: map[string]*Measure{}, Observation: conditions.Observation{Now: now,
		Status: r.o.Source.Status(), Stuck: r.o.Stuck(), Clusters: slices.Clone(r.o.Source.Clusters()),
		Clients: r.o.Source.Clients(), Elsewhere: r.o.Source.Elsewhere(), Refusing: map[string]bool{}}}
	p := &m.Observation
	p.Status.Now = api.At(now)
	step, shadows := stepOf(p.Clusters), conditions.ShadowEnvoys(p.Clients)
	for i := range p.Clusters {
		c := &p.Clusters[i]
		k := r.of(c.Name)
		c.ShadowEnvoys = shadows[c.Name]
		m.Measures[c.Name] = r.record(now, c, k)
		k.workings.add(c.Working, step)
		p.Refusing[c.Name] = k.refused.refusing(now, c.Queue)
	}
	r.follow(now, p.Clients, p.Status.GoneEnvoys)
	p.Left = slices.Clone(r.left)
	configured := func(name string) bool { return m.Measures[name] != nil }
	r.o.History.keepOnly(configured)
	r.mu.Lock()
	p.Configs = r.configs
	maps.DeleteFunc(r.clusters, func(name string, _ *recorded) bool { return !configured(name) })
	r.mu.Unlock()
	for _, c := range changes(r.before(p), p) {
		r.events.add(now, c)
		r.log(c)
	}
	r.incidents = conditions.Evaluate(r.incidents, p)
	m.Incidents = conditions.Shown(r.incidents, now)
	m.Fleet = fleetOf(m, r.events.last())
	m.Fleet.PushRate = r.pushes.rate(now, p.Clusters)
	r.latest.Store(m)
	r.hub.publish(m)
}

// before is the look before p. What is there at the first look did not just happen, but for sources that are lost.
func (r *Recorder) before(p *conditions.Observation) *conditions.Observation {
	if last := r.latest.Load(); last != nil {
		return &last.Observation
	}
	first := *p
	first.Clusters = slices.Clone(p.Clusters)
	for i := range first.Clusters {
		first.Clusters[i].Sources = nil
	}
	return &first
}

// logged are the messages of the events that only the Recorder sees; the others have lines where they happen.
var logged = map[api.EventKind]string{
	api.EventFlagged:    "endpoints flagged",
	api.EventUnflagged:  "flags of endpoints cleared",
	api.EventRetried:    "endpoints failed another probe",
	api.EventDropsBegan: "Envoys begin to refuse requests",
	api.EventDropsEnded: "Envoys refuse no more requests",
}

// log writes what happened, with the first endpoints and the reason of the first of them.
func (r *Recorder) log(c change) {
	message := logged[c.kind]
	if message == "" {
		return
	}
	line := []any{"cluster", c.cluster}
	if n := len(c.subjects); n > 0 {
		line = append(line, "endpoints", api.Limit(c.subjects, api.MaxSubjects), "count", n)
	}
	if c.detail != "" {
		line = append(line, "reason", c.detail)
	}
	r.o.Log.Info(message, line...)
}

// record adds a second of a cluster, and completes it with what the handler knows.
func (r *Recorder) record(now time.Time, c *api.Cluster, k *recorded) *Measure {
	m := k.measured.observe(now, c, &k.decided)
	if m.ShadowEnvoys = c.ShadowEnvoys; m.ShadowEnvoys > 0 { // their requests are not meant to match
		m.Served.VsDecided, m.Served.Noise = api.Number{}, api.Number{}
	}
	c.Served, c.Use, c.Counts = m.Served, m.Use, conditions.CountEndpoints(c.Endpoints)
	if len(c.Endpoints) > 0 {
		r.o.History.Add(c.Name, now, m.addresses, func(r *Row) { r.fill(c, m) })
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
func (r *refusals) refusing(now time.Time, q *api.Queue) bool {
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
	return now.Sub(r.grew) < conditions.DefaultKeepFor
}

// follow keeps the list of the Envoys that left.
func (r *Recorder) follow(now time.Time, clients []api.Client, gone []api.GoneEnvoy) {
	connected := make(map[envoyid.ID]api.LeftEnvoy, len(clients))
	back := map[string]bool{}
	for i := range clients {
		c, id := &clients[i], IDOf(clients[i].NodeID, clients[i].Address)
		back[c.NodeID] = true
		e := api.LeftEnvoy{Node: c.Node, Address: c.Address, ConnectedAt: c.ConnectedAt, Clusters: []string{}}
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
		e.LeftAt, e.LeftReason = api.At(now), "it closed its streams"
		if i := slices.IndexFunc(gone, func(g api.GoneEnvoy) bool { return g.NodeID == e.NodeID }); i >= 0 {
			e.LeftAt, e.LeftReason, e.Vanished, e.Silent = gone[i].Since, gone[i].Cause, true, gone[i].Silent
			why = gone[i].Cause
		}
		leaving = append(leaving, e.NodeID)
		r.left = append(r.left, e)
	}
	r.envoys = connected
	r.left = append(r.left, r.unseen(gone)...)
	r.left = slices.DeleteFunc(r.left, func(e api.LeftEnvoy) bool {
		return back[e.NodeID] || now.Sub(e.LeftAt.Time) > leftFor
	})
	slices.SortStableFunc(r.left, func(a, b api.LeftEnvoy) int { return b.LeftAt.Compare(a.LeftAt.Time) })
	r.left = api.Limit(r.left, maxLeft)
	if len(leaving) > 0 {
		slices.Sort(leaving)
		r.events.add(now, change{kind: api.EventEnvoyLeft, subjects: leaving, detail: why})
	}
}

// maxClusters is how many of the clusters of an Envoy that left are kept.
const maxClusters = 20

// unseen are Envoys that came and vanished between two looks.
func (r *Recorder) unseen(gone []api.GoneEnvoy) (out []api.LeftEnvoy) {
	for _, g := range api.Limit(gone, maxLeft) {
		if !slices.ContainsFunc(r.left, func(e api.LeftEnvoy) bool { return e.NodeID == g.NodeID }) {
			out = append(out, api.LeftEnvoy{Node: api.Node{NodeID: g.NodeID}, Address: g.Address, Clusters: []string{},
				LeftAt: g.Since, LeftReason: g.Cause, Vanished: true, Silent: g.Silent})
		}
	}
	return out
}

// fleetOf sums a moment up.
func fleetOf(m *Moment, lastEvent uint64) *api.Fleet {
	f := &api.Fleet{StartedAt: m.Status.StartedAt, ConfigGeneration: m.Status.ConfigGeneration,
		Ready: conditions.Ready(m.Status, m.Clusters), State: conditions.WorstState(m.Incidents),
		Envoys: conditions.CountEnvoys(&m.Observation), Clusters: make([]api.FleetCluster, 0, len(m.Clusters)),
		Incidents: api.Limit(m.Incidents, 50), LastEventID: lastEvent}
	for i := range m.Clusters {
		c := &m.Clusters[i]
		state := conditions.WorstState(conditions.ClusterIncidents(m.Incidents, c.Name))
		line := api.FleetCluster{Name: c.Name, State: state, Ready: c.Ready, Counts: c.Counts,
			ArrivalRate: c.Decision.ArrivalRate, MedianLoad: c.Decision.MedianLoad,
			WaterLevel: c.Decision.WaterLevel, Unit: c.Decision.Unit, FirstTokenMean: c.FirstTokenMean,
			AnswerP99: c.AnswerP99Seconds, CapacityUsed: c.Use.CapacityUsed, ToSpare: c.Use.ToSpare,
			DropFraction: c.Decision.DropFraction, DecisionAge: c.Decision.AgeSeconds, VsDecided: c.Served.VsDecided}
		line.FullestLoad, line.InFlight = poolSums(c.Endpoints)
		f.Clusters = append(f.Clusters, line)
	}
	slices.SortFunc(f.Clusters, func(a, b api.FleetCluster) int { return strings.Compare(a.Name, b.Name) })
	return f
}

// Working is the decision at a time, how far back they are kept, and the time between two.
func (r *Recorder) Working(cluster string, at, now time.Time) (w api.Working, kept, step time.Duration, ok bool) {
	r.ticking.Lock()
	defer r.ticking.Unlock()
	past := &r.of(cluster).workings
	if len(past.kept) == 0 {
		return api.Working{}, 0, 0, false
	}
	w, ok = past.at(at)
	return w, now.Sub(past.kept[0].At()), past.step, ok
}
