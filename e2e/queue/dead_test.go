package queue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/e2e/rig/testbed"
)

// watched are replicas for servers with one place each, which see when a request begins next to another one.
func watched(t *testing.T, n int, cluster string) (*replicas, *doubles) {
	t.Helper()
	seen := &doubles{at: make(map[string]int)}
	pool := testbed.Servers(t, testbed.Same(4, modelsim.Options{Slots: 8, Observer: seen})...)
	if cluster == "" {
		cluster = "queue: {max_in_flight: 1}"
	} else {
		cluster = listed(t, pool, n, cluster)
	}
	return startReplicas(t, n, inRedis(t), pool, cluster), seen
}

// listed has each replica find the servers in a file of its own, DIR/servers-I.json.
func listed(t *testing.T, pool []*modelsim.Server, n int, dir string) string {
	t.Helper()
	list := ""
	for i, s := range pool {
		if i > 0 {
			list += ", "
		}
		list += fmt.Sprintf("%q", s.Address())
	}
	for i := range n {
		path := filepath.Join(dir, fmt.Sprintf("servers-%d.json", i))
		if err := os.WriteFile(path, []byte(`[{"targets": [`+list+`]}]`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return "endpoints: {file: " + filepath.Join(dir, "servers-$I.json") + "}\nqueue: {max_in_flight: 1}"
}

// TestEnvoysThatTheirBalancerLeadsToADeadOwner wait, and then follow the weights: none of their requests fails. The
// others go on in the queue of the next owner, and those come back to it with the balancer.
func TestEnvoysThatTheirBalancerLeadsToADeadOwner(t *testing.T) {
	for _, b := range blows {
		if !b.dead {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			r, seen := watched(t, 2, "")
			c := r.steady(24, 20*time.Millisecond)
			c.more(300)
			owner := r.owner()
			i := slices.Index(r.all, owner)
			if i < 0 {
				t.Fatal("no replica grants places, or several do")
			}
			before := c.answeredBy(i)
			r.away = owner
			b.hit(r, i)
			r.all[0].Eventually("the other one grants places, and all Envoys get answers", func() error {
				if r.owner() == nil {
					return errors.New("none does")
				}
				if n := c.answeredBy(i) - before; n < 60 { // of 24 at a time
					return fmt.Errorf("%d requests are answered to the Envoy of the dead one", n)
				}
				return nil
			})
			r.lead(i, 1-i)
			c.finish()
			r.joined(0, 0)
			r.queued()
			calm := seen.count()
			r.answer(300, 24, 20*time.Millisecond)
			if n := seen.count() - calm; n > 0 {
				t.Errorf("%d requests began next to another one, after all Envoys had come back", n)
			}
			b.heal(r, i)
		})
	}
}

// TestAFollowerThatIsCutOffWithTheOwnerGoesOnToTheNext: both cannot reach the lease, and the follower learns of the
// next owner from the one before.
func TestAFollowerThatIsCutOffWithTheOwnerGoesOnToTheNext(t *testing.T) {
	r, seen := watched(t, 3, "")
	c := r.steady(24, 20*time.Millisecond)
	c.more(300)
	both := func(hang bool) func(*replicas, int) {
		return func(r *replicas, i int) {
			r.store[i].Hang(hang)
			r.store[(i+1)%3].Hang(hang)
		}
	}
	late := lateness(t)
	for range 2 {
		r.strike(blow{"cut off from the lease, with a follower", false, both(true), both(false)}, seen)
		c.more(300)
	}
	c.end(late())
	r.joined(0, 0)
}

// TestAnOwnerThatIsBlindGivesWayToOneThatSees: it cannot read its endpoints any more, and the other replica can.
func TestAnOwnerThatIsBlindGivesWayToOneThatSees(t *testing.T) {
	dir := proctest.Dir(t)
	r, seen := watched(t, 2, dir)
	c := r.steady(24, 20*time.Millisecond)
	c.more(300)
	owner := r.owner()
	i := slices.Index(r.all, owner)
	if i < 0 {
		t.Fatal("no replica grants places, or several do")
	}
	late := lateness(t)
	if err := os.Remove(filepath.Join(dir, fmt.Sprintf("servers-%d.json", i))); err != nil {
		t.Fatal(err)
	}
	r.all[0].Eventually("the other one grants places", func() error {
		if o := r.owner(); o == nil || o == owner {
			return errors.New("not yet")
		}
		return nil
	})
	c.more(600)
	if n := seen.count(); n > 0 {
		t.Errorf("%d requests began next to another one", n)
	}
	c.end(late())
	r.joined(0, 0)
	if q, err := r.all[1-i].Queue(); err != nil || q.Owner.Epoch.Or(0) != 2 {
		t.Errorf("the owner is %+v (%v), want epoch 2: one change", q.Owner, err)
	}
}
