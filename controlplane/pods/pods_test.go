package pods

import (
	"maps"
	"testing"
	"time"

	"steelyard/internal/api"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// pool is a cluster of n Pods that are well, changed.
func pool(n int, change func(c *api.Cluster)) *api.Cluster {
	c := &api.Cluster{Name: "llama", Ready: true, Sources: []api.SourceStatus{{Name: "scrape", State: api.SourceOK}}}
	for i := range n {
		c.Endpoints = append(c.Endpoints, api.Endpoint{Address: string(rune('a' + i)), Pod: string(rune('a' + i)),
			Share: api.Num(1 / float64(n)), Load: api.Num(float64(i)), LastScrape: api.Scrape{At: api.At(noon)}})
	}
	if change != nil {
		change(c)
	}
	return c
}

// hang makes endpoints hang; the name of the node is for how long Steelyard has seen it.
func hang(since time.Duration, which ...int) func(c *api.Cluster) {
	return func(c *api.Cluster) {
		for _, i := range which {
			e := &c.Endpoints[i]
			e.Outlier, e.OverloadReason, e.OutlierSince = true, "stalled since", api.At(noon.Add(-time.Hour))
			e.Node = since.String()
		}
	}
}

func and(changes ...func(c *api.Cluster)) func(c *api.Cluster) {
	return func(c *api.Cluster) {
		for _, change := range changes {
			change(c)
		}
	}
}

func TestAPodIsWedgedIfItsEngineHangsAndItsPageAnswers(t *testing.T) {
	long := 2 * time.Minute
	for _, c := range []struct {
		name            string
		pool            *api.Cluster
		wedged, evicted string
	}{
		{"all are well", pool(4, nil), "", ""},
		{"one hangs", pool(4, hang(long, 1)), "b", "b"},
		{"one has hung for a moment", pool(4, hang(time.Second, 1)), "b", ""},
		{"two hang, one for longer", pool(4, and(hang(long, 3), hang(long+time.Second, 2))), "cd", "c"},
		{"more than half hang", pool(4, hang(long, 0, 1, 2)), "", ""},
		{"one of two hangs", pool(2, hang(long, 0)), "a", "a"},
		{"the only one hangs", pool(1, hang(long, 0)), "", ""},
		{"one that hung is tried again", pool(4, and(hang(long, 1), func(c *api.Cluster) {
			c.Endpoints[1].Outlier, c.Endpoints[1].Probed = false, "stalled since"
		})), "", ""},
		{"another port of its Pod answers", pool(4, and(hang(long, 1), func(c *api.Cluster) {
			c.Endpoints[2].Pod = "b"
		})), "", ""},
		{"both ports of its Pod hang", pool(4, and(hang(long, 1, 2), func(c *api.Cluster) {
			c.Endpoints[2].Pod = "b"
		})), "b", "b"},
		{"an Envoy does not report", pool(4, and(hang(long, 1), func(c *api.Cluster) {
			c.Sources[0].State = api.SourcePartial
		})), "", ""},
		{"one fails its requests", pool(4, and(hang(long, 1), func(c *api.Cluster) {
			c.Endpoints[1].OverloadReason = "fails"
		})), "", ""},
		{"its page is dead", pool(4, and(hang(long, 1), func(c *api.Cluster) {
			c.Endpoints[1].LastScrape.Error = "timeout"
		})), "", ""},
		{"an operator has it", pool(4, and(hang(long, 1), func(c *api.Cluster) {
			c.Endpoints[1].Override = &api.Override{Kind: api.OverrideDrain}
		})), "", ""},
		{"it is no Pod", pool(4, and(hang(long, 1), func(c *api.Cluster) { c.Endpoints[1].Pod = "" })), "", ""},
		{"Steelyard is blind", pool(4, and(hang(long, 1), func(c *api.Cluster) {
			c.Sources[0].State = api.SourceDown
		})), "", ""},
		{"it is not ready", pool(4, and(hang(long, 1), func(c *api.Cluster) { c.Ready = false })), "", ""},
		{"no other one is well", pool(2, and(hang(long, 0), func(c *api.Cluster) {
			c.Endpoints[1].LastScrape.Error = "timeout"
		})), "a", ""},
	} {
		wedged, names := Wedged(c.pool, 0), ""
		var seen Watch
		for i := range wedged {
			ago, err := time.ParseDuration(wedged[i].Node)
			if err != nil {
				t.Fatal(err)
			}
			before := seen.since
			seen.Update(nil, wedged[i:i+1], noon.Add(-ago))
			maps.Copy(seen.since, before)
		}
		for _, e := range wedged {
			names += e.Pod
		}
		evicted, due := Evictable(c.pool, wedged, &seen, noon)
		if !due {
			evicted.Pod = ""
		}
		if names != c.wedged || evicted.Pod != c.evicted {
			t.Errorf("%s: %q hang and %q is evicted, want %q and %q", c.name, names, evicted.Pod, c.wedged, c.evicted)
		}
	}
}

func TestAFaultThatSpreadsTakesOutNoMoreThanHalfOfThePods(t *testing.T) {
	all := pool(8, nil)
	for taken := 0; ; taken++ {
		hang(time.Minute, 0)(all)
		if len(Wedged(all, taken)) == 0 {
			if taken != 4 {
				t.Errorf("%d of 8 Pods are taken out, want 4", taken)
			}
			return
		}
		all.Endpoints = all.Endpoints[1:]
	}
}

func TestAPodHangsSinceSteelyardSawItAndWhileItIsTriedAgain(t *testing.T) {
	var w Watch
	one := pool(2, hang(time.Minute, 0))
	at := func(second int, change func(e *api.Endpoint)) time.Duration {
		e := &one.Endpoints[0]
		change(e)
		now := noon.Add(time.Duration(second) * time.Second)
		w.Update([]api.Cluster{*one}, Wedged(one, 0), now)
		return w.For(e, now).Round(time.Second)
	}
	same := func(*api.Endpoint) {}
	for _, c := range []struct {
		second int
		change func(*api.Endpoint)
		want   time.Duration
	}{
		{0, same, 0},
		{5, same, 5 * time.Second},
		{10, func(e *api.Endpoint) { e.Outlier, e.Probed = false, "stalled since" }, 10 * time.Second},
		{15, func(e *api.Endpoint) { e.Outlier, e.Probed = true, "" }, 15 * time.Second},
		{20, func(e *api.Endpoint) { e.Outlier = false }, 0},
		{25, func(e *api.Endpoint) { e.Outlier = true }, 0},
	} {
		if got := at(c.second, c.change); got != c.want {
			t.Errorf("after %d s it has hung for %v, want %v", c.second, got, c.want)
		}
	}
}

func TestTheConditionOfAPodHasAWayBack(t *testing.T) {
	before, after := noon.Add(-time.Minute), noon.Add(-time.Second)
	for _, c := range []struct {
		name           string
		condition      Condition
		serving, write bool
	}{
		{"well, without a gate", Condition{}, true, false},
		{"well, and a gate waits", Condition{Gated: true}, true, true},
		{"well, and it says so", Condition{Gated: true, Status: "True"}, true, false},
		{"hangs", Condition{Wedged: true}, false, true},
		{"hangs, and was well", Condition{Wedged: true, Status: "True"}, false, true},
		{"hangs, and it says so", Condition{Wedged: true, Status: "False", Since: before}, false, false},
		{"hung", Condition{Status: "False", Since: before}, false, false},
		{"hung, and has started again", Condition{Status: "False", Since: before, Started: after}, true, true},
		{"seems to hang still, and has started again",
			Condition{Wedged: true, Status: "False", Since: before, Started: after}, true, true},
		{"hung ten minutes ago", Condition{Status: "False", Since: noon.Add(-retry)}, true, true},
	} {
		if serving, write := c.condition.Next(noon); serving != c.serving || write != c.write {
			t.Errorf("%s: %t, written %t, want %t, %t", c.name, serving, write, c.serving, c.write)
		}
	}
}

func TestTheLeastBusyQuarterCostsTheLeast(t *testing.T) {
	for _, c := range []struct {
		name string
		pool *api.Cluster
		want map[string]int
	}{
		{"four", pool(4, nil), map[string]int{"a": 0, "b": 1, "c": 2, "d": 3}},
		{"eight", pool(8, nil), map[string]int{"a": 0, "b": 0, "c": 1, "d": 1, "e": 2, "f": 2, "g": 3, "h": 3}},
		{"two", pool(2, nil), map[string]int{"a": 0, "b": 2}},
		{"none", pool(0, nil), map[string]int{}},
		{"by seconds of work", pool(2, func(c *api.Cluster) {
			c.Endpoints[0].Work.Seconds, c.Endpoints[1].Work.Seconds = api.Num(9), api.Num(1)
		}), map[string]int{"a": 2, "b": 0}},
		{"seconds are known of one only", pool(2, func(c *api.Cluster) {
			c.Endpoints[0].Work.Seconds = api.Num(9)
		}), map[string]int{"a": 0, "b": 2}},
		{"one hangs", pool(2, hang(time.Minute, 1)), map[string]int{"a": 0, "b": 2}},
		{"one that hangs is busy", pool(3, hang(time.Minute, 2)), map[string]int{"a": 0, "c": 1, "b": 2}},
		{"one is drained", pool(3, func(c *api.Cluster) {
			c.Endpoints[2].Override = &api.Override{Kind: api.OverrideDrain}
		}), map[string]int{"a": 0, "c": 1, "b": 2}},
		{"one is unknown", pool(2, func(c *api.Cluster) { c.Endpoints[1].Load = api.Number{} }),
			map[string]int{"a": 0}},
		{"one is no Pod", pool(2, func(c *api.Cluster) { c.Endpoints[0].Pod = "" }), map[string]int{"b": 0}},
	} {
		if got := Costs(c.pool); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
