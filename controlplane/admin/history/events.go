package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"steelyard/controlplane/admin/conditions"
	"steelyard/internal/api"
	"steelyard/internal/envoyid"
)

// The bounds of the events that are kept.
const (
	maxEvents     = 1000
	eventsFor     = time.Hour
	eventTogether = 5 * time.Second // events of one kind and cluster within this time are one
)

// A change is an event before it is joined with others. Its texts are made of the subjects: one and several.
type change struct {
	kind     api.EventKind
	cluster  string
	subjects []string
	// detail is why, of the first; empty where there is nothing to add.
	detail string
}

// events is a ring of what happened. It is safe for concurrent use.
type events struct {
	mu      sync.Mutex
	ring    []api.Event // oldest first
	details []string    // of ring
	id      uint64
}

// add takes in a change: with those of its kind and cluster within five seconds it is one event.
func (e *events) add(at time.Time, c change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expire(at)
	for i := len(e.ring) - 1; i >= 0 && at.Sub(e.ring[i].LastAt.Time) < eventTogether; i-- {
		old := &e.ring[i]
		if c.kind == api.EventOverride { // each says who did what
			break
		}
		if old.Kind != c.kind || old.Cluster != c.cluster || at.Sub(old.At.Time) >= eventTogether {
			continue
		}
		old.LastAt = api.At(at)
		e.join(i, c)
		return
	}
	e.id++
	e.ring = append(e.ring, api.Event{ID: e.id, At: api.At(at), LastAt: api.At(at), Kind: c.kind,
		Cluster: c.cluster, Subjects: []string{}})
	e.details = append(e.details, c.detail)
	e.join(len(e.ring)-1, c)
	if extra := len(e.ring) - maxEvents; extra > 0 {
		e.ring, e.details = slices.Delete(e.ring, 0, extra), slices.Delete(e.details, 0, extra)
	}
}

// join adds the subjects to an event. The list is a new one: others may be reading the old.
func (e *events) join(i int, c change) {
	old := &e.ring[i]
	subjects := slices.Clone(old.Subjects)
	for _, s := range c.subjects {
		if slices.Contains(subjects, s) {
			continue
		}
		old.Count++
		if len(subjects) < api.MaxSubjects {
			subjects = append(subjects, s)
		}
	}
	if len(c.subjects) == 0 {
		old.Count++
	}
	old.Subjects = subjects
	if c.detail != "" && e.details[i] != c.detail {
		if e.details[i] == "" || old.Count == 1 {
			e.details[i] = c.detail
		}
	}
	old.Text = eventText(old, e.details[i])
}

func (e *events) expire(now time.Time) {
	gone := 0
	for gone < len(e.ring) && now.Sub(e.ring[gone].LastAt.Time) > eventsFor {
		gone++
	}
	e.ring, e.details = slices.Delete(e.ring, 0, gone), slices.Delete(e.details, 0, gone)
}

// since returns a copy of the events after an id, oldest first, and the id of the oldest that is kept.
func (e *events) since(now time.Time, id uint64) (out []api.Event, oldest uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expire(now)
	if len(e.ring) > 0 {
		oldest = e.ring[0].ID
	}
	i, _ := slices.BinarySearchFunc(e.ring, id+1, func(v api.Event, id uint64) int { return cmp.Compare(v.ID, id) })
	return slices.Clone(e.ring[i:]), oldest
}

// last is the id of the latest event.
func (e *events) last() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.id
}

// eventWords are the sentences of each kind: of one subject, and of several. A verb that has no subject has one form.
var eventWords = map[api.EventKind][2]string{
	api.EventStarted:         {"Steelyard started", "Steelyard started"},
	api.EventConfig:          {"a configuration was applied", "%d configurations were applied"},
	api.EventConfigRefused:   {"a configuration was refused", "%d configurations were refused"},
	api.EventPoolsJoined:     {"the InferencePool %s appeared", "%d InferencePools appeared"},
	api.EventPoolsLeft:       {"the InferencePool %s went", "%d InferencePools went"},
	api.EventEndpointsJoined: {"endpoint %s joined", "%d endpoints joined"},
	api.EventEndpointsLeft:   {"endpoint %s left", "%d endpoints left"},
	api.EventFlagged:         {"endpoint %s was flagged", "%d endpoints were flagged"},
	api.EventUnflagged:       {"the flag of endpoint %s was cleared", "the flags of %d endpoints were cleared"},
	api.EventRetried:         {"endpoint %s failed another probe", "%d endpoints failed another probe"},
	api.EventSourceLost:      {"%s was lost", "%d sources were lost"},
	api.EventSourceBack:      {"%s is back", "%d sources are back"},
	api.EventNack:            {"Envoy %s refused an assignment", "%d Envoys refused an assignment"},
	api.EventDropsBegan:      {"Envoys began to refuse requests", "Envoys began to refuse requests"},
	api.EventDropsEnded:      {"Envoys refuse no more requests", "Envoys refuse no more requests"},
	api.EventEnvoyJoined:     {"Envoy %s connected", "%d Envoys connected"},
	api.EventEnvoyLeft:       {"Envoy %s left", "%d Envoys left"},
	api.EventOverride:        {"endpoint %s was changed by hand", "%d endpoints were changed by hand"},
}

// eventText is the sentence of an event.
func eventText(e *api.Event, detail string) string {
	words := eventWords[e.Kind]
	text := words[0]
	switch {
	case e.Count > 1 && strings.Contains(words[1], "%d"):
		text = fmt.Sprintf(words[1], e.Count)
	case strings.Contains(words[0], "%s"):
		text = fmt.Sprintf(words[0], cmp.Or(strings.Join(api.Limit(e.Subjects, 1), ""), "without a node id"))
	}
	if e.Cluster != "" {
		text = e.Cluster + ": " + text
	}
	if detail != "" {
		text += ": " + detail
	}
	return conditions.Clip(text, conditions.MaxEventText)
}

// A nacking is what an Envoy has refused, over its connections.
type nacking struct {
	nacks            uint64
	cluster, message string // of one that is refused now
}

func nackings(clients []api.Client) map[envoyid.ID]nacking {
	out := make(map[envoyid.ID]nacking, len(clients))
	for i := range clients {
		id := IDOf(clients[i].NodeID, clients[i].Address)
		n := out[id]
		for _, s := range clients[i].Subscriptions {
			n.nacks += s.Nacks
			if s.Nack.Current {
				n.cluster, n.message = s.Cluster, s.Nack.Message
			}
		}
		out[id] = n
	}
	return out
}

// changes returns the events between two looks.
func changes(before, after *conditions.Observation) (out []change) {
	clusters := make(map[string]*api.Cluster, len(before.Clusters))
	for i := range before.Clusters {
		clusters[before.Clusters[i].Name] = &before.Clusters[i]
	}
	for i := range after.Clusters {
		now := &after.Clusters[i]
		was := clusters[now.Name]
		if was == nil { // its endpoints joined, and a source may be lost; its other state did not just begin
			was = &api.Cluster{Decision: now.Decision}
		}
		out = append(out, clusterChanges(was, now, before.Refusing[now.Name], after.Refusing[now.Name])...)
	}
	envoys := nackings(before.Clients)
	for id, now := range nackings(after.Clients) {
		was, known := envoys[id]
		if !known {
			out = append(out, change{kind: api.EventEnvoyJoined, subjects: []string{id.NodeID}})
		}
		if now.nacks > was.nacks && now.message != "" {
			out = append(out, change{kind: api.EventNack, cluster: now.cluster, subjects: []string{id.NodeID},
				detail: now.message})
		}
	}
	slices.SortStableFunc(out, func(a, b change) int {
		return strings.Compare(a.cluster+string(a.kind), b.cluster+string(b.kind))
	})
	return out
}

// clusterChanges walks both lists of endpoints, which are sorted. The queue of the cluster was, and is, refusing.
func clusterChanges(was, now *api.Cluster, wasRefusing, isRefusing bool) (out []change) {
	byKind := map[api.EventKind]*change{}
	add := func(kind api.EventKind, subject, detail string) {
		if kind == api.EventOverride { // each says who did what
			out = append(out, change{kind: kind, cluster: now.Name, subjects: []string{subject}, detail: detail})
			return
		}
		c := byKind[kind]
		if c == nil {
			c = &change{kind: kind, cluster: now.Name, detail: detail}
			byKind[kind] = c
		}
		c.subjects = append(c.subjects, subject)
	}
	before, after := was.Endpoints, now.Endpoints
	for len(before) > 0 || len(after) > 0 {
		switch {
		case len(after) == 0 || len(before) > 0 && before[0].Address < after[0].Address:
			add(api.EventEndpointsLeft, before[0].Named(), "")
			before = before[1:]
			continue
		case len(before) == 0 || before[0].Address > after[0].Address:
			add(api.EventEndpointsJoined, after[0].Named(), "")
		default:
			endpointChanges(&before[0], &after[0], add)
			before = before[1:]
		}
		after = after[1:]
	}
	lost, known := lostSources(now), lostSources(was)
	for source, why := range lost {
		if _, already := known[source]; !already {
			add(api.EventSourceLost, "source "+source, why)
		}
	}
	for i := range now.Sources { // one that was taken out of the configuration is not back
		source := now.Sources[i].Name
		_, still := lost[source]
		if _, before := known[source]; before && !still {
			add(api.EventSourceBack, "source "+source, "")
		}
	}
	dropped := was.Decision.DropFraction.Or(0) > 0 || wasRefusing
	if drops := now.Decision.DropFraction.Or(0) > 0 || isRefusing; drops != dropped {
		kind := api.EventDropsEnded
		if drops {
			kind = api.EventDropsBegan
		}
		byKind[kind] = &change{kind: kind, cluster: now.Name}
	}
	for _, c := range byKind {
		slices.Sort(c.subjects)
		out = append(out, *c)
	}
	return out
}

// lostSources are the sources that are lost, with why.
func lostSources(c *api.Cluster) map[string]string {
	lost := map[string]string{}
	for i := range c.Sources {
		if s := &c.Sources[i]; conditions.SourceLost(s) {
			lost[s.Name] = s.LastError
		}
	}
	return lost
}

// endpointChanges compares two looks at an endpoint.
func endpointChanges(was, now *api.Endpoint, add func(kind api.EventKind, subject, detail string)) {
	flagged := func(e *api.Endpoint) bool { return e.Overloaded || e.Probed != "" || e.Tried != "" }
	switch in, out := flagged(was), flagged(now); {
	case was.Probed != "" && now.Outlier:
		add(api.EventRetried, now.Named(), now.OverloadReason)
	case out && !in:
		add(api.EventFlagged, now.Named(), now.OverloadReason)
	case in && !out:
		add(api.EventUnflagged, now.Named(), "")
	}
	if after := overrideOf(now); after != "" && after != overrideOf(was) {
		add(api.EventOverride, now.Named(), after)
	}
	switch before, after := conditions.Unread(was), conditions.Unread(now); {
	case after && !before:
		add(api.EventSourceLost, "the metrics endpoint of "+now.Named(), now.LastScrape.Error)
	case before && !after:
		add(api.EventSourceBack, "the metrics endpoint of "+now.Named(), "")
	}
}

// overrideOf is what an operator decided about an endpoint, in words; empty for nothing.
func overrideOf(e *api.Endpoint) string {
	if e.Override == nil {
		return ""
	}
	return conditions.OverrideText(*e.Override)
}
