package pods

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"steelyard/internal/api"
)

// loaded gives the endpoints these loads.
func loaded(loads ...float64) func(c *api.Cluster) {
	return func(c *api.Cluster) {
		for i, load := range loads {
			c.Endpoints[i].Load = api.Num(load)
		}
	}
}

func drain(e *api.Endpoint) { e.Override = &api.Override{Kind: api.OverrideDrain} }

func TestCostsFollowTheWorkComparedWithTheMean(t *testing.T) {
	for _, c := range []struct {
		name string
		pool *api.Cluster
		want map[string]int
	}{
		{"none", pool(0), map[string]int{}},
		{"all idle", pool(4, loaded(0, 0, 0, 0)), map[string]int{"/a": 0, "/b": 0, "/c": 0, "/d": 0}},
		{"all as busy", pool(4, loaded(9, 9, 9, 9)), map[string]int{"/a": 2, "/b": 2, "/c": 2, "/d": 2}},
		{"idle, half, mean and more", pool(4, loaded(0, 3, 6, 15)), map[string]int{"/a": 0, "/b": 1, "/c": 2, "/d": 3}},
		{"one request in an idle pool", pool(3, loaded(0, 0, 1)), map[string]int{"/a": 0, "/b": 0, "/c": 2}},
		{"by seconds of work", pool(2, the(0, func(e *api.Endpoint) { e.Work.Seconds = api.Num(9) }),
			the(1, func(e *api.Endpoint) { e.Work.Seconds = api.Num(1) })), map[string]int{"/a": 3, "/b": 0}},
		{"seconds are known of one only", pool(2, loaded(1, 9), the(0, func(e *api.Endpoint) {
			e.Work.Seconds = api.Num(9)
		})), map[string]int{"/a": 0, "/b": 3}},
		{"one that hangs is busy", pool(3, loaded(5, 5, 50), hang(2)), map[string]int{"/a": 2, "/b": 2, "/c": 0}},
		{"one is drained", pool(3, loaded(5, 5, 50), the(2, drain)), map[string]int{"/a": 2, "/b": 2, "/c": 0}},
		{"one is unknown", pool(2, loaded(5), the(1, func(e *api.Endpoint) { e.Load = api.Number{} })),
			map[string]int{"/a": 2}},
		{"one is no Pod", pool(2, loaded(5, 5), the(0, func(e *api.Endpoint) { e.Pod = "" })), map[string]int{"/b": 2}},
		{"two ports of a Pod", pool(4, loaded(1, 9, 5, 5), the(1, func(e *api.Endpoint) { e.Pod = "a" })),
			map[string]int{"/a": 3, "/c": 2, "/d": 2}},
	} {
		var costs Costs
		if got := costs.Update(WorkOf([]api.Cluster{*c.pool}), nil, noon); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAPodOfTwoClustersHasTheHigherCost(t *testing.T) {
	busy, idle := pool(2, loaded(9, 1)), pool(2, loaded(0, 10))
	drained := pool(2, loaded(0, 10), the(0, drain))
	for name, order := range map[string][]api.Cluster{"busy first": {*busy, *idle}, "idle first": {*idle, *busy},
		"drained first": {*drained, *busy}, "busy before drained": {*busy, *drained}} {
		var costs Costs
		if got := costs.Update(WorkOf(order), nil, noon)["/a"]; got != 3 {
			t.Errorf("%s: %d, want 3", name, got)
		}
	}
}

// after updates the costs for that long, as the daemon does, and returns them and how many were written.
func after(costs *Costs, written map[string]int, from time.Time, length time.Duration,
	now func() *api.Cluster) (writes int) {
	for passed := time.Duration(0); passed <= length; passed += 15 * time.Second {
		for name, cost := range costs.Update(WorkOf([]api.Cluster{*now()}), written, from.Add(passed)) {
			if was, has := written[name]; !has || was != cost {
				written[name] = cost
				writes++
			}
		}
	}
	return writes
}

// Each of a hundred Pods has a tenth of forty requests by chance.
func TestCostsOfABalancedPoolDoNotMove(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := pool(100)
	for i := range c.Endpoints {
		c.Endpoints[i].Pod = fmt.Sprint(i)
	}
	balanced := func() *api.Cluster {
		for i := range c.Endpoints {
			n := 0.0
			for range 40 {
				if r.Float64() < 0.1 {
					n++
				}
			}
			c.Endpoints[i].Load = api.Num(n)
		}
		return c
	}
	var costs Costs
	written := map[string]int{}
	after(&costs, written, noon, 15*time.Minute, balanced) // the first ones are by chance
	if writes := after(&costs, written, noon.Add(15*time.Minute), time.Hour, balanced); writes > 0 {
		t.Errorf("%d writes in an hour", writes)
	}
	restarted := Costs{}
	if writes := after(&restarted, written, noon.Add(2*time.Hour), 0, balanced); writes > 0 {
		t.Errorf("%d writes at a restart", writes)
	}
}

func TestACostFollowsWorkThatChanges(t *testing.T) {
	var costs Costs
	written := map[string]int{}
	c := pool(4, loaded(8, 8, 8, 8))
	same := func() *api.Cluster { return c }
	after(&costs, written, noon, time.Minute, same)
	loaded(0)(c)
	after(&costs, written, noon.Add(time.Minute), 3*time.Minute, same)
	if written["/a"] != 1 || written["/b"] != 2 {
		t.Errorf("the costs are %v, three minutes after one has no work", written)
	}
	after(&costs, written, noon.Add(4*time.Minute), 10*time.Minute, same)
	if written["/a"] != 0 || written["/b"] != 2 {
		t.Errorf("the costs are %v, ten minutes later", written)
	}
	drained := pool(4, loaded(8, 8, 8, 8), the(1, drain))
	after(&costs, written, noon.Add(15*time.Minute), 0, func() *api.Cluster { return drained })
	if written["/b"] != 0 {
		t.Errorf("the costs are %v, as one is drained", written)
	}
}
