package lease_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"steelyard/e2e/rig/leasetest"
	"steelyard/internal/lease"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// A world has replicas with clocks of their own, a store, and one that receives grants. Messages are lost, late, or
// arrive twice.
type world struct {
	t        *rapid.T
	now      time.Duration // that has passed
	replicas []*replica
	store    leasetest.Memory
	highest  uint64  // epoch of the store
	grants   []grant // on their way
	accepted struct {
		epoch uint64
		from  *replica
		made  time.Duration
	}
}

type replica struct {
	self   lease.Record
	claim  *lease.Claim
	owner  lease.Record  // that it knows of
	offset time.Duration // of its clock, an hour for example
	asks   []ask
	opens  time.Time // it grants nothing before
	frozen bool
}

// An ask is a question on its way to the store, or its answer on the way back.
type ask struct {
	asked    time.Time
	floor    uint64
	answered bool
	owner    lease.Record
}

type grant struct {
	from  *replica
	epoch uint64
	made  time.Duration
}

func (w *world) clock(r *replica) time.Time { return noon.Add(w.now + r.offset) }

func (w *world) some() *replica { return rapid.SampledFrom(w.replicas).Draw(w.t, "replica") }

func (w *world) check() {
	var acts []string
	for _, r := range w.replicas {
		if r.claim.Acts(w.clock(r)) {
			acts = append(acts, r.self.ID)
		}
	}
	if len(acts) > 1 {
		w.t.Fatalf("%v act at the same time", acts)
	}
}

// TestNoTwoOwnersGrantsAreAccepted: at no time do two replicas act, and grants are accepted in the order of epochs,
// whatever is lost, late or doubled, and whichever replica stands still.
func TestNoTwoOwnersGrantsAreAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t}
		w.store.Now = func() time.Time { return noon.Add(w.now) }
		for i := range rapid.IntRange(2, 4).Draw(t, "replicas") {
			self := lease.Record{ID: fmt.Sprint("r", i)}
			offset := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "offset"))
			w.replicas = append(w.replicas, &replica{self: self, claim: lease.NewClaim(self.ID), offset: offset})
		}
		t.Repeat(map[string]func(*rapid.T){
			"":      func(*rapid.T) { w.check() },
			"pass":  func(*rapid.T) { w.pass(200, time.Millisecond) },
			"leap":  func(*rapid.T) { w.pass(3600, time.Second) },
			"ask":   w.ask,
			"store": w.arrive, "answer": w.answer, "lose": w.lose, "freeze": w.freeze,
			"tell": w.tell, "grant": w.grant, "receive": w.receive, "forget": w.forget,
		})
	})
}

func (w *world) pass(most int, unit time.Duration) {
	w.now += time.Duration(rapid.IntRange(1, most).Draw(w.t, "passes")) * unit
}

func (w *world) ask(*rapid.T) {
	r := w.some()
	if !r.frozen && len(r.asks) < 8 {
		r.asks = append(r.asks, ask{asked: w.clock(r), floor: r.claim.Asks(w.clock(r))})
	}
}

// arrive has a question reach the store, perhaps again.
func (w *world) arrive(t *rapid.T) {
	r := w.some()
	if len(r.asks) == 0 {
		t.Skip("no question")
	}
	i := rapid.IntRange(0, len(r.asks)-1).Draw(t, "which")
	a := r.asks[i]
	a.owner, _ = w.store.Hold(context.Background(), r.self, a.floor)
	a.answered, w.highest = true, max(w.highest, a.owner.Epoch)
	if rapid.Bool().Draw(t, "twice") {
		r.asks = append(r.asks, a)
	} else {
		r.asks[i] = a
	}
}

// answer has an answer reach its replica, perhaps in another order than that of the questions.
func (w *world) answer(t *rapid.T) {
	r := w.some()
	for i, a := range r.asks {
		if a.answered && !r.frozen && rapid.Bool().Draw(t, "this one") {
			r.asks = append(r.asks[:i:i], r.asks[i+1:]...)
			if r.claim.Answered(a.asked, w.clock(r), a.owner) {
				r.owner = a.owner
				r.opens = w.clock(r).Add(time.Second)
			}
			return
		}
	}
	t.Skip("no answer")
}

func (w *world) lose(t *rapid.T) {
	if r := w.some(); len(r.asks) > 0 {
		i := rapid.IntRange(0, len(r.asks)-1).Draw(t, "which")
		r.asks = append(r.asks[:i:i], r.asks[i+1:]...)
	}
}

func (w *world) freeze(*rapid.T) {
	r := w.some()
	r.frozen = !r.frozen
}

// tell has an owner tell another replica.
func (w *world) tell(*rapid.T) {
	from, to := w.some(), w.some()
	if o := from.owner; o.ID == from.self.ID && !to.frozen && to.claim.Told(w.clock(to), o) {
		to.owner = o
	}
}

func (w *world) grant(*rapid.T) {
	r := w.some()
	if now := w.clock(r); r.claim.Acts(now) && !r.frozen && !now.Before(r.opens) {
		w.grants = append(w.grants, grant{r, r.owner.Epoch, w.now})
	}
}

// receive has a grant arrive, perhaps twice, and late.
func (w *world) receive(t *rapid.T) {
	if len(w.grants) == 0 {
		t.Skip("no grant")
	}
	i := rapid.IntRange(0, len(w.grants)-1).Draw(t, "which")
	g := w.grants[i]
	if rapid.Bool().Draw(t, "once") {
		w.grants = append(w.grants[:i:i], w.grants[i+1:]...)
	}
	last := &w.accepted
	if g.epoch < last.epoch {
		return // refused
	}
	if g.epoch == last.epoch && last.from != nil && g.from != last.from {
		t.Fatalf("grants of %s and of %s with epoch %d are accepted", last.from.self.ID, g.from.self.ID, g.epoch)
	}
	last.epoch, last.from, last.made = g.epoch, g.from, g.made
}

// forget has the store lose all that it has, its epoch too, after the lease has ended: the replicas that go on have
// seen that epoch.
func (w *world) forget(t *rapid.T) {
	for _, r := range w.replicas {
		if len(r.asks) > 0 || r.claim.Floor() < w.highest {
			t.Skip("a replica knows less")
		}
	}
	w.now += lease.TTL
	w.store.Lose()
}

func TestAnOwnerActsForItsTermAfterItAsked(t *testing.T) {
	c := lease.NewClaim("a")
	a, b := lease.Record{ID: "a", Epoch: 1}, lease.Record{ID: "b", Epoch: 2}
	if !c.Answered(noon, noon.Add(100*time.Millisecond), a) || !c.Acts(noon.Add(lease.Term-1)) ||
		c.Acts(noon.Add(lease.Term)) {
		t.Error("the term does not count from the question")
	}
	if c.Answered(noon.Add(lease.Every), noon.Add(lease.Every), a) || !c.Acts(noon.Add(lease.Every+lease.Term-1)) {
		t.Error("a renewal is another owner, or does not renew")
	}
	if !c.Told(noon.Add(2*lease.Every), b) || c.Acts(noon.Add(2*lease.Every)) || c.Floor() != 2 {
		t.Error("the announcement of a new owner does not count")
	}
	if c.Answered(noon.Add(lease.Every), noon.Add(3*lease.Every), a) ||
		c.Told(noon.Add(3*lease.Every), lease.Record{ID: "c", Epoch: 2}) {
		t.Error("a late answer counts, or an owner without a higher epoch")
	}
	if c.Told(noon.Add(3*lease.Every), lease.Record{ID: "c", Epoch: 1 << 30}) || c.Floor() != 2 {
		t.Error("an epoch that is made up counts")
	}
	if c.Answered(noon.Add(4*lease.Every), noon.Add(4*lease.Every), a) || c.Asks(noon.Add(4*lease.Every)) != 0 {
		t.Error("a store that knows only the owner before counts, or is to raise its epoch")
	}
	if late := noon.Add(time.Minute); !c.Answered(late, late, a) || c.Asks(late) != 2 {
		t.Error("a store that has lost the new owner does not count")
	}
}
