package sim

import (
	"math/rand/v2"
	"time"

	"steelyard/picking"
	"steelyard/picking/prefix"
)

// pickers choose in the Envoys, one in each: by the decisions of the control plane, which reach them when weights
// would, by their own choices since, and, where they look at content, by the routes that each has learned by itself.
type pickers struct {
	w       *world
	each    []picking.Picker
	routers []*router // by Envoy; nil where content is not looked at
	random  *rand.Rand
	updates mailbox[picking.Update]
	shared  mailbox[learned]
	cached  []picking.Cached
}

// learned is an answer on its way to the pickers of the other Envoys.
type learned struct {
	envoy, pod int32
	content    prefix.Prompt
}

// shareDelay is from an answer to the routes at the other Envoys.
const shareDelay = instant(100 * time.Millisecond)

func newPickers(g *group, content bool) *pickers {
	w := g.w
	k := &pickers{w: w, each: make([]picking.Picker, len(w.envoys)), random: source(w.s.Seed, streamPickers),
		updates: newMailbox[picking.Update](w.calendar, g.lanes+lanePickers),
		shared:  newMailbox[learned](w.calendar, g.lanes+laneShared)}
	for range w.envoys {
		if content {
			k.routers = append(k.routers, newRouter())
		}
	}
	return k
}

// send puts an update on its way.
func (k *pickers) send(u picking.Update, delay instant) {
	k.updates.send(k.w.now+delay, u)
}

// receive hands an update to all pickers.
func (k *pickers) receive() {
	u := k.updates.receive()
	for i := range k.each {
		k.each[i].Update(u, k.w.now.time())
	}
}

// pick is the choice of an Envoy's picker; -1 where it leaves it to the weights.
func (k *pickers) pick(a *arrival) int32 {
	r := picking.Request{Size: -1}
	if a.prompt.bytes > 0 {
		r.Size = int64(a.prompt.bytes)
	}
	if k.routers != nil {
		k.look(k.routers[a.envoy], &a.content, &r)
	}
	c := k.each[a.envoy].Choose(k.w.now.time(), r, k.random.Float64())
	if c.Address == "" {
		return -1
	}
	return podNumber(c.Address)
}

// look adds what is known of the content to a request.
func (k *pickers) look(from *router, content *prefix.Prompt, r *picking.Request) {
	k.cached = k.cached[:0]
	deepest := 0
	for _, m := range from.match(content) {
		deepest = max(deepest, m.Blocks)
		k.cached = append(k.cached, picking.Cached{Address: m.Address, Share: content.Share(m.Blocks)})
	}
	r.Cached, r.Key = k.cached, content.Key(deepest)
}

// learn takes in an answer at the Envoy that passed it on.
func (k *pickers) learn(r *request) {
	k.routers[r.envoy].table.Learn(&r.content, podName(int(r.pod)), prefix.Own, k.w.now.time())
	if k.w.p.Steelyard.Picker == PickerShared {
		k.shared.send(k.w.now+shareDelay, learned{r.envoy, r.pod, r.content})
	}
}

// share hands an answer to the pickers of the other Envoys.
func (k *pickers) share() {
	l := k.shared.receive()
	for i, to := range k.routers {
		if i != int(l.envoy) {
			to.table.Learn(&l.content, podName(int(l.pod)), prefix.Others, k.w.now.time())
		}
	}
}
