package daemon

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"steelyard/cmd/internal/gateway"
	"steelyard/controlplane/discovery/kubernetes"
	"steelyard/internal/api"
	"steelyard/internal/loops"
)

// The times of what is written into status.parents of pools.
const (
	parentsInterval  = 5 * time.Second
	parentsPatience  = 20 * time.Second // that all requests of a pass may take
	parentsRetry     = time.Minute      // after a write that failed
	parentsRest      = time.Minute      // between two writes to a pool without a translation: others may write, too
	gatewaysInterval = 30 * time.Second // between two looks whether Gateways are still there
	followedAfter    = 10 * time.Second // of Envoys that stay, until a pool is served to them
	leftAfter        = time.Minute      // of no Envoy, until it is not: they come back after a restart

	maxAsked = 1000 // Gateways that wait to be written
	maxShown = 4    // errors
)

// parents keep status.parents of pools in line with what is served, one pass after the other.
//
// What the routes of a Gateway name is written once for each translation, by the replica that was asked, and then left:
// replicas that were asked at other times do not fight, and what a process before this one wrote stays until Envoy
// Gateway asks, or the Gateway is gone. That Envoys follow, all replicas know alike.
type parents struct {
	woken loops.Signal

	// Of the passes.
	follows map[types.NamespacedName]*following
	wrote   map[types.NamespacedName]time.Time // or found it changed
	rests   map[types.NamespacedName]time.Time // until when nothing is written; without a name, to all of a namespace
	refused map[types.NamespacedName]error     // why
	looked  time.Time                          // for Gateways
	lookErr error

	mu     sync.Mutex // guards the fields below
	left   []kubernetes.FoundPool
	asked  map[string]translation
	absent map[string]int // how often in a row a Gateway had no routes
	err    string
}

func newParents() parents {
	return parents{woken: loops.NewSignal(), follows: map[types.NamespacedName]*following{},
		wrote: map[types.NamespacedName]time.Time{}, rests: map[types.NamespacedName]time.Time{},
		refused: map[types.NamespacedName]error{}, asked: map[string]translation{}, absent: map[string]int{}}
}

// named has the pools that Gateways name written.
func (p *parents) named(pools map[string][]api.GatewayPool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for gateway, named := range pools {
		if _, waits := p.asked[gateway]; gateway != "" && (waits || len(p.asked) < maxAsked) {
			p.asked[gateway] = translation{pools: named}
			delete(p.absent, gateway)
		}
	}
	p.woken.Set()
}

// leave has the parents taken out of pools that are no longer followed.
func (p *parents) leave(pools []kubernetes.FoundPool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = append(p.left, pools...)
}

// failing is why something is not written; empty if all is.
func (p *parents) failing() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// A translation is what the routes of a Gateway name. Once a pool is written, it is left to the replica that is asked
// next, also while another pool waits, such as one that does not exist.
type translation struct {
	pools []api.GatewayPool
	waits map[types.NamespacedName]bool // those that are not written; nil for all
}

func (t translation) has(pool types.NamespacedName) bool { return t.waits == nil || t.waits[pool] }

// A following is whether Envoys follow a pool, without the moments between two connections.
type following struct {
	on      bool
	differs time.Time // since when it looks otherwise; zero if it does not
}

func (f *following) update(now time.Time, on bool) bool {
	after := followedAfter
	if f.on {
		after = leftAfter
	}
	switch {
	case on == f.on:
		f.differs = time.Time{}
	case f.differs.IsZero():
		f.differs = now
	case now.Sub(f.differs) >= after:
		*f = following{on: on}
	}
	return f.on
}

// A parentsView is what is known in one pass.
type parentsView struct {
	client     *kubernetes.Client
	controller string
	service    kubernetes.ParentRef   // that Envoys have the weights from; without a name there is none
	gateway    *gateway.Server        // that Envoy Gateway asks; nil for none
	pools      []kubernetes.FoundPool // that are known
	namespaces []string               // in which all are known
	clusters   map[types.NamespacedName]string
	follow     func(cluster string) bool // whether an Envoy does, of any replica
	certain    bool                      // it is known who follows other replicas

	// Of this pass.
	asked      map[string]translation
	named      map[types.NamespacedName][]kubernetes.Parent // the same, by pool
	gone       map[string]bool                              // Gateways
	unfinished map[string]map[types.NamespacedName]bool     // by Gateway, the pools that it is not written into
}

// asks reports whether a Gateway is to be written into a pool, or taken out of it.
func (v *parentsView) asks(gateway string, pool types.NamespacedName) bool {
	t, ok := v.asked[gateway]
	return ok && t.has(pool)
}

// wait keeps a Gateway for the next pass, for one pool.
func (v *parentsView) wait(gateway string, pool types.NamespacedName) {
	if v.unfinished[gateway] == nil {
		v.unfinished[gateway] = map[types.NamespacedName]bool{}
	}
	v.unfinished[gateway][pool] = true
}

// touched are the Gateways that a translation was for, and that a pool has, or is to have.
func (v *parentsView) touched(pool *kubernetes.FoundPool) (gateways []string) {
	for _, p := range append(pool.Parents(v.controller), v.named[nameOf(pool)]...) {
		if v.asks(p.Gateway(), nameOf(pool)) {
			gateways = append(gateways, p.Gateway())
		}
	}
	return gateways
}

// wanted are the parents of a pool.
func (v *parentsView) wanted(pool *kubernetes.FoundPool, followed bool) (out []kubernetes.Parent) {
	for _, p := range pool.Parents(v.controller) {
		asked := v.asks(p.Gateway(), nameOf(pool))
		if p.Kind == kubernetes.GatewayKind && v.gateway != nil && !asked && !v.gone[p.Gateway()] {
			out = append(out, p)
		}
	}
	out = append(out, v.named[nameOf(pool)]...)
	slices.SortFunc(out, func(a, b kubernetes.Parent) int { return cmp.Compare(a.Gateway(), b.Gateway()) })
	served := slices.ContainsFunc(out, func(p kubernetes.Parent) bool { return p.Refused == "" })
	if followed && v.service.Name != "" && !served && !pool.ServedByOthers(v.controller) {
		out = append(out, kubernetes.Parent{ParentRef: v.service})
	}
	return out
}

// found are the names of the pools that are known.
func (v *parentsView) found() map[types.NamespacedName]bool {
	all := map[types.NamespacedName]bool{}
	for i := range v.pools {
		all[nameOf(&v.pools[i])] = true
	}
	return all
}

func nameOf(pool *kubernetes.FoundPool) types.NamespacedName {
	return types.NamespacedName{Namespace: pool.Namespace, Name: pool.Name}
}

// run writes the parents of pools until ctx is done.
func (p *parents) run(ctx context.Context, look func() *parentsView, log *slog.Logger) {
	ticks := time.NewTicker(parentsInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		case <-p.woken:
		}
		limited, cancel := context.WithTimeout(ctx, parentsPatience)
		err := p.pass(limited, time.Now(), look())
		cancel()
		if ctx.Err() == nil {
			p.finish(err, log)
		}
	}
}

// finish makes the result of a pass the state, and logs an error that is new.
func (p *parents) finish(err error, log *slog.Logger) {
	text := ""
	if err != nil {
		text = strings.Join(api.Limit(strings.Split(err.Error(), "\n"), maxShown), "; ")
	}
	p.mu.Lock()
	before := p.err
	p.err = text
	p.mu.Unlock()
	if text != "" && text != before {
		log.Warn("status.parents of InferencePools is not written", "error", text)
	}
}

func (p *parents) pass(ctx context.Context, now time.Time, v *parentsView) error {
	v.named = map[types.NamespacedName][]kubernetes.Parent{}
	v.unfinished = map[string]map[types.NamespacedName]bool{}
	if v.gateway != nil && now.Sub(p.looked) >= gatewaysInterval {
		p.looked, p.lookErr = now, p.lookForGateways(ctx, v)
	}
	p.take(v)
	p.forget(v, now)
	for i := range v.pools {
		pool := &v.pools[i]
		if done, err := p.write(ctx, now, pool, v); err != nil {
			p.fail(pool, err, now)
		} else if done {
			continue
		}
		for _, gateway := range v.touched(pool) {
			v.wait(gateway, nameOf(pool))
		}
	}
	p.putBack(v)
	p.clear(ctx, now, v)
	err := p.lookErr
	for _, where := range slices.SortedFunc(maps.Keys(p.refused), byName) {
		err = errors.Join(err, p.refused[where])
	}
	return err
}

func byName(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) }

// fail lets a pool rest that cannot be written; its whole namespace if the right is missing.
func (p *parents) fail(pool *kubernetes.FoundPool, err error, now time.Time) {
	where := nameOf(pool)
	if kubernetes.RightMissing(err) {
		where.Name = ""
	}
	p.rests[where], p.refused[where] = now.Add(parentsRetry), err
}

// lookForGateways notes which Gateways are gone: Envoy Gateway does not say so.
func (p *parents) lookForGateways(ctx context.Context, v *parentsView) error {
	all := map[string]bool{}
	for _, gateway := range v.gateway.Gateways() {
		all[gateway] = true
	}
	for i := range v.pools {
		for _, parent := range v.pools[i].Parents(v.controller) {
			all[parent.Gateway()] = true
		}
	}
	delete(all, "") // not a Gateway, or of no known name
	var failed error
	for _, gateway := range slices.Sorted(maps.Keys(all)) {
		namespace, name, _ := strings.Cut(gateway, "/")
		attached, err := v.client.Attached(ctx, namespace, name)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		p.mu.Lock()
		p.absent[gateway]++
		if attached {
			delete(p.absent, gateway)
		}
		gone := p.absent[gateway] > 1
		p.mu.Unlock()
		if gone {
			v.gateway.Forget(gateway)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.absent, func(gateway string, _ int) bool { return !all[gateway] })
	return failed
}

// take has the Gateways that translations were for written in this pass.
func (p *parents) take(v *parentsView) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v.gone = map[string]bool{}
	for gateway, times := range p.absent {
		v.gone[gateway] = times > 1
	}
	v.asked, p.asked = p.asked, map[string]translation{}
	found := v.found()
	for gateway, t := range v.asked {
		namespace, name, _ := strings.Cut(gateway, "/")
		ref := kubernetes.ParentRef{Kind: kubernetes.GatewayKind, Namespace: namespace, Name: name}
		for _, n := range t.pools {
			pool := types.NamespacedName{Namespace: n.Namespace, Name: n.Name}
			if !t.has(pool) {
				continue
			}
			if n.Picker == "" { // the status of others is their controller's
				v.named[pool] = append(v.named[pool], kubernetes.Parent{ParentRef: ref, Refused: n.Reason})
			}
			if slices.Contains(v.namespaces, n.Namespace) && !found[pool] {
				v.wait(gateway, pool) // it will be found soon
			}
		}
	}
}

// clear takes the parents out of the pools that are left. It is tried once: the rights may be gone with the namespace.
func (p *parents) clear(ctx context.Context, now time.Time, v *parentsView) {
	p.mu.Lock()
	left := p.left
	p.left = nil
	p.mu.Unlock()
	for i := range left {
		_, err := v.client.SetParents(ctx, v.controller, &left[i], nil)
		if err != nil && !errors.Is(err, kubernetes.ErrChanged) {
			p.fail(&left[i], err, now)
		}
	}
}

// putBack keeps the Gateways that are not written into all pools for the next pass, for only these pools, unless
// there was a translation since.
func (p *parents) putBack(v *parentsView) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for gateway, waits := range v.unfinished {
		if _, newer := p.asked[gateway]; !newer {
			p.asked[gateway] = translation{pools: v.asked[gateway].pools, waits: waits}
		}
	}
}

// forget drops what is remembered of pools that are gone, and of faults that are to be tried again.
func (p *parents) forget(v *parentsView, now time.Time) {
	found := v.found()
	maps.DeleteFunc(p.follows, func(pool types.NamespacedName, _ *following) bool { return !found[pool] })
	maps.DeleteFunc(p.wrote, func(pool types.NamespacedName, _ time.Time) bool { return !found[pool] })
	maps.DeleteFunc(p.rests, func(_ types.NamespacedName, until time.Time) bool { return !until.After(now) })
	maps.DeleteFunc(p.refused, func(where types.NamespacedName, _ error) bool { return p.rests[where].IsZero() })
}

// write writes those of one pool; false if it or its namespace rests, it has changed, or the pass has no time left: one
// that hangs is not the fault of those after it.
func (p *parents) write(ctx context.Context, now time.Time, pool *kubernetes.FoundPool, v *parentsView) (
	done bool, err error) {
	wanted := v.wanted(pool, p.followed(pool, v, now))
	rests := len(v.touched(pool)) == 0 && now.Sub(p.wrote[nameOf(pool)]) < parentsRest
	refused := !p.rests[nameOf(pool)].IsZero() || !p.rests[types.NamespacedName{Namespace: pool.Namespace}].IsZero()
	if rests || refused || ctx.Err() != nil {
		return false, nil
	}
	wrote, err := v.client.SetParents(ctx, v.controller, pool, wanted)
	changed := errors.Is(err, kubernetes.ErrChanged)
	if wrote || changed {
		p.wrote[nameOf(pool)] = now
	}
	if changed {
		return false, nil
	}
	return err == nil, err
}

// followed reports whether Envoys follow a pool.
func (p *parents) followed(pool *kubernetes.FoundPool, v *parentsView, now time.Time) bool {
	f := p.follows[nameOf(pool)]
	if f == nil { // after a restart, as before
		f = &following{on: slices.ContainsFunc(pool.Parents(v.controller), func(parent kubernetes.Parent) bool {
			return parent.ParentRef == v.service
		})}
		p.follows[nameOf(pool)] = f
	}
	cluster := v.clusters[nameOf(pool)]
	on := cluster != "" && v.follow(cluster)
	return f.update(now, on || !v.certain && f.on)
}
