package follow

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"steelyard/picking"
	"steelyard/picking/prefix"
	"steelyard/weighting"
	"steelyard/xds/loads/loadsv1"
)

// A Pool has the loads of one cluster, and chooses by them. It is safe for concurrent use.
type Pool struct {
	mu      sync.Mutex
	picker  picking.Picker
	updated time.Time // when the loads were decided; zero before the first update
	members []string
	known   map[string]bool // the members
	drop    float64
	queue   *loadsv1.QueueHeaders // nil without a queue
	reader  *prefix.Reader        // it does not change

	cluster string
	routes  *prefix.Table         // nil where prompts are not looked at
	learned chan *loadsv1.Learned // for the other pickers
	matches prefix.Matches
	cached  []picking.Cached
}

func (p *Pool) set(m *loadsv1.Update, now time.Time) {
	u, set := updateOf(m), m.GetPrefix()
	p.update(u, m, now)
	if p.routes != nil { // not under the lock: an endpoint may have many
		p.routes.SetEndpoints(func(yield func(string, int) bool) {
			for _, e := range u.Endpoints {
				if !yield(e.Address, e.Restarts) {
					return
				}
			}
		})
		p.routes.Limit(prefix.Limits{Routes: int(min(set.GetRoutes(), maxRoutes)),
			TTL: time.Duration(set.GetTtlSeconds()) * time.Second})
		p.routes.Expire(now)
	}
}

// update takes in all but what concerns the routes.
func (p *Pool) update(u picking.Update, m *loadsv1.Update, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.picker.Update(u, now)
	p.updated, p.drop, p.queue = now.Add(-u.Age), u.Drop, m.GetQueue()
	p.reader = &prefix.Reader{Markers: m.GetPrefix().GetMarkers(), BlockTokens: u.BlockTokens,
		TokensPerByte: u.TokensPerByte}
	same := func(a string, e picking.Endpoint) bool { return a == e.Address }
	if slices.EqualFunc(p.members, u.Endpoints, same) {
		return
	}
	p.members, p.known = p.members[:0], make(map[string]bool, len(u.Endpoints))
	for _, e := range u.Endpoints {
		p.members, p.known[e.Address] = append(p.members, e.Address), true
	}
}

// Queue returns the class and the tenant of a request with these headers in the queue of the cluster; ok is false if
// its requests do not wait.
func (p *Pool) Queue(header func(name string) string) (class, tenant string, ok bool) {
	p.mu.Lock()
	queue := p.queue
	p.mu.Unlock()
	if queue == nil {
		return "", "", false
	}
	first := func(names ...string) (value string) {
		for _, name := range names {
			if value == "" && name != "" {
				value = header(name)
			}
		}
		return value
	}
	return first(queue.GetClass(), objective), first(queue.GetTenant(), fairnessID), true
}

// queues reports whether the requests of the cluster wait.
func (p *Pool) queues() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue != nil
}

// Reader reads the prompts of the cluster, as its engines cache them.
func (p *Pool) Reader() *prefix.Reader {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reader
}

// Drop returns the share of the requests that are to be refused, because all endpoints are saturated.
func (p *Pool) Drop(now time.Time) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.updated) > picking.Stale {
		return 0
	}
	return p.drop
}

// Choose picks an endpoint for a request, and counts it there. By its prompt, unless that is nil, the routes that were
// learned count too.
func (p *Pool) Choose(now time.Time, r picking.Request, prompt *prefix.Prompt) picking.Choice {
	random := rand.Float64()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.routes != nil && prompt != nil {
		r.Cached, r.Key = p.match(prompt)
	}
	return p.picker.Choose(now, r, random)
}

// match returns what the routes have of a prompt, the most of it first. The memory is reused.
func (p *Pool) match(prompt *prefix.Prompt) (cached []picking.Cached, key uint64) {
	p.routes.Match(prompt, &p.matches)
	deepest := 0
	p.cached = p.cached[:0]
	for _, m := range p.matches.All {
		deepest = max(deepest, m.Blocks)
		p.cached = append(p.cached, picking.Cached{Address: m.Address, Share: prompt.Share(m.Blocks)})
	}
	return p.cached, prompt.Key(deepest)
}

// Asked returns what the routes have of a prompt, for a request that asks for a place. It has at most maxCached
// endpoints: where more have a part of the prompt, such as a system prompt that all have, what the others have at most
// is left out, as it makes no difference.
func (p *Pool) Asked(prompt *prefix.Prompt) (cached []picking.Cached, key uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.routes == nil {
		return nil, 0
	}
	all, key := p.match(prompt)
	common := 0.
	if len(all) > maxCached {
		common = all[maxCached].Share
	}
	for _, c := range all[:min(len(all), maxCached)] {
		if c.Share > common {
			cached = append(cached, picking.Cached{Address: c.Address, Share: c.Share - common})
		}
	}
	return cached, key
}

// Learn notes that an endpoint of the pool has answered a prompt.
func (p *Pool) Learn(prompt *prefix.Prompt, address string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.routes == nil || len(prompt.Steps) == 0 || !p.known[address] {
		return
	}
	p.routes.Learn(prompt, address, prefix.Own, now)
	l := &loadsv1.Learned{Clusters: []string{p.cluster}, Endpoint: address,
		Hashes: make([]uint64, 0, len(prompt.Steps))}
	for _, s := range prompt.Steps {
		l.Hashes = append(l.Hashes, s.Hash)
	}
	select {
	case p.learned <- l:
	default: // others get the next one
	}
}

// received notes what other pickers have learned, or that an endpoint has lost it. It may come before the first loads,
// which then leave only the routes of the endpoints that there are.
func (p *Pool) received(l *loadsv1.Learned, now time.Time) {
	p.mu.Lock()
	known := p.routes != nil && (p.updated.IsZero() || p.known[l.GetEndpoint()])
	p.mu.Unlock()
	if known {
		p.routes.Take(&prefix.Learned{Address: l.GetEndpoint(), Hashes: l.GetHashes(), Kept: l.GetKept(),
			Age: time.Duration(l.GetAgeSeconds()) * time.Second}, prefix.Others, now)
	}
}

// Unknown reports whether one of the addresses is not among the endpoints of the pool; false before the first update.
func (p *Pool) Unknown(addresses ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.updated.IsZero() && slices.ContainsFunc(addresses, func(a string) bool { return !p.known[a] })
}

// Routes returns the sizes of the table of routes; false if there is none.
func (p *Pool) Routes() (prefix.Stats, bool) {
	if p.routes == nil {
		return prefix.Stats{}, false
	}
	return p.routes.Stats(), true
}

// State returns the number of endpoints and the age of their loads; known is false before the first update.
func (p *Pool) State(now time.Time) (endpoints int, age time.Duration, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.members), now.Sub(p.updated), !p.updated.IsZero()
}

// updateOf converts an update of the wire; endpoints with numbers that the fill cannot use are left out.
func updateOf(u *loadsv1.Update) picking.Update {
	c := u.GetCost()
	out := picking.Update{
		ArrivalRate: atLeast0(u.GetArrivalRate()),
		Cost: picking.Cost{Base: atLeast0(c.GetBase()), PerByte: atLeast0(c.GetPerByte()), Mean: atLeast0(c.GetMean()),
			Most: atLeast0(c.GetMost()), Cached: min(atLeast0(c.GetCached()), picking.MostCached)},
		Drop:          min(1, atLeast0(u.GetDropFraction())),
		BlockTokens:   int(min(u.GetPrefix().GetBlockTokens(), math.MaxInt32)),
		TokensPerByte: atLeast0(u.GetPrefix().GetTokensPerByte()),
		LongestMatch:  u.GetPrefix().GetLongestMatch(),
		Age:           ageOf(u.GetAgeSeconds()),
		Endpoints:     make([]picking.Endpoint, 0, len(u.GetEndpoints())),
	}
	for _, e := range u.GetEndpoints() {
		if !(e.GetSlots() > 0 && e.GetSpeed() > 0 && e.GetLoad() >= 0) {
			continue
		}
		out.Endpoints = append(out.Endpoints, picking.Endpoint{Address: e.GetAddress(), Avoid: avoidanceOf(e),
			LoadAge: ageOf(e.GetLoadAgeSeconds()), Restarts: int(e.GetRestarts()),
			Share:  min(1, atLeast0(e.GetShare())),
			Vessel: weighting.Vessel{Load: e.GetLoad(), Slots: e.GetSlots(), Speed: e.GetSpeed()}})
	}
	return out
}

func avoidanceOf(e *loadsv1.Endpoint) picking.Avoidance {
	switch {
	case e.GetDrained():
		return picking.AvoidDrained
	case e.GetAvoid():
		return picking.AvoidFlagged
	}
	return picking.AvoidNone
}

// ageOf returns an age within its bounds; 0 for one that is not a number.
func ageOf(seconds float64) time.Duration {
	return time.Duration(min(atLeast0(seconds), maxAge.Seconds()) * float64(time.Second))
}

// atLeast0 returns x, or 0 if it is negative or not a number.
func atLeast0(x float64) float64 {
	if x > 0 {
		return x
	}
	return 0
}

// The headers in which clients of llm-d name what is a class and a tenant here. They count if a request does not have
// the header that the configuration names.
const (
	objective  = "x-llm-d-inference-objective"
	fairnessID = "x-llm-d-inference-fairness-id"
)
