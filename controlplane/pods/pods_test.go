package pods

import (
	"strings"
	"testing"
	"time"

	"steelyard/internal/api"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// pool is a cluster of n Pods that are well, changed.
func pool(n int, changes ...func(c *api.Cluster)) *api.Cluster {
	c := &api.Cluster{Name: "llama", Ready: true, Sources: []api.SourceStatus{{Name: "scrape", State: api.SourceOK}}}
	for i := range n {
		c.Endpoints = append(c.Endpoints, api.Endpoint{Address: string(rune('a' + i)), Pod: string(rune('a' + i)),
			Share: api.Num(1 / float64(n)), Load: api.Num(float64(i)), LastScrape: api.Scrape{At: api.At(noon)}})
	}
	for _, change := range changes {
		change(c)
	}
	return c
}

// hang makes endpoints hang that have worked.
func hang(which ...int) func(c *api.Cluster) {
	return func(c *api.Cluster) {
		for _, i := range which {
			e := &c.Endpoints[i]
			e.Outlier, e.OverloadReason, e.OutlierSince = true, "stalled since", api.At(noon.Add(-time.Hour))
			e.WorkedAt = e.OutlierSince
		}
	}
}

// the changes one endpoint.
func the(i int, change func(e *api.Endpoint)) func(c *api.Cluster) {
	return func(c *api.Cluster) { change(&c.Endpoints[i]) }
}

func TestAPodIsWedgedIfItsEngineHangsAndItsPageAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		pool   *api.Cluster
		wedged string
	}{
		{"all are well", pool(4), ""},
		{"one hangs", pool(4, hang(1)), "b"},
		{"two hang", pool(4, hang(2, 3)), "cd"},
		{"more than half hang", pool(4, hang(0, 1, 2)), ""},
		{"one of two hangs", pool(2, hang(0)), "a"},
		{"the only one hangs", pool(1, hang(0)), ""},
		{"one that hung is tried again", pool(4, hang(1), the(1, func(e *api.Endpoint) {
			e.Outlier, e.Probed = false, "stalled since"
		})), ""},
		{"another port of its Pod answers", pool(4, hang(1), the(2, func(e *api.Endpoint) { e.Pod = "b" })), ""},
		{"both ports of its Pod hang", pool(4, hang(1, 2), the(2, func(e *api.Endpoint) { e.Pod = "b" })), "b"},
		{"an Envoy does not report", pool(4, hang(1), func(c *api.Cluster) {
			c.Sources[0].State = api.SourcePartial
		}), ""},
		{"one fails its requests", pool(4, hang(1), the(1, func(e *api.Endpoint) { e.OverloadReason = "fails" })), ""},
		{"its page is dead", pool(4, hang(1), the(1, func(e *api.Endpoint) { e.LastScrape.Error = "timeout" })), ""},
		{"an operator has it", pool(4, hang(1), the(1, func(e *api.Endpoint) {
			e.Override = &api.Override{Kind: api.OverrideDrain}
		})), ""},
		{"it is no Pod", pool(4, hang(1), the(1, func(e *api.Endpoint) { e.Pod = "" })), ""},
		{"Steelyard is blind", pool(4, hang(1), func(c *api.Cluster) { c.Sources[0].State = api.SourceDown }), ""},
		{"it is not ready", pool(4, hang(1), func(c *api.Cluster) { c.Ready = false }), ""},
	} {
		names := ""
		for _, e := range Wedged(c.pool, Busy([]api.Cluster{*c.pool}), 0) {
			names += e.Pod
		}
		if names != c.wedged {
			t.Errorf("%s: %q hang, want %q", c.name, names, c.wedged)
		}
	}
}

// A Pod with a port for chats and one for embeddings is an endpoint of two clusters.
func TestAPodThatAnotherClusterNeedsIsNotWedged(t *testing.T) {
	for _, c := range []struct {
		name   string
		chat   *api.Cluster
		wedged int
	}{
		{"it answers there", pool(3), 0},
		{"it hangs there, too", pool(3, hang(0)), 1},
		{"an operator pinned it there", pool(3, hang(0), the(0, func(e *api.Endpoint) {
			e.Override = &api.Override{Kind: api.OverridePin}
		})), 0},
		{"an operator drained it there", pool(3, hang(0), the(0, func(e *api.Endpoint) {
			e.Override = &api.Override{Kind: api.OverrideDrain}
		})), 0},
		{"it fails there", pool(3, hang(0), the(0, func(e *api.Endpoint) { e.OverloadReason = "fails" })), 0},
		{"it is tried again there", pool(3, the(0, func(e *api.Endpoint) { e.Probed = "stalled since" })), 0},
		{"it is not there", pool(3, the(0, func(e *api.Endpoint) { e.Pod = "z" })), 1},
	} {
		embed := pool(3, hang(0))
		if got := len(Wedged(embed, Busy([]api.Cluster{*c.chat, *embed}), 0)); got != c.wedged {
			t.Errorf("%s: %d wedged Pods, want %d", c.name, got, c.wedged)
		}
	}
}

func TestAFaultThatSpreadsTakesOutNoMoreThanHalfOfThePods(t *testing.T) {
	all := pool(8)
	for taken := 0; ; taken++ {
		hang(0)(all)
		if len(Wedged(all, Busy([]api.Cluster{*all}), taken)) == 0 {
			if taken != 4 {
				t.Errorf("%d of 8 Pods are taken out, want 4", taken)
			}
			return
		}
		all.Endpoints = all.Endpoints[1:]
	}
}

// podsOf are the Pods of endpoints, an hour old.
func podsOf(endpoints []api.Endpoint) (all []Pod) {
	for _, e := range endpoints {
		all = append(all, Pod{Endpoint: e, UID: "uid-" + e.Pod, Started: noon.Add(-time.Hour), Controlled: true})
	}
	return all
}

func TestAPodIsEvictedOnlyIfNothingSpeaksAgainstIt(t *testing.T) {
	same := func(*Pod) {}
	ago := func(d time.Duration) api.Time { return api.At(noon.Add(-d)) }
	for _, c := range []struct {
		name   string
		change func(p *Pod)
		seen   time.Duration // hanging, before noon
		kept   string        // why, if it is
	}{
		{"it has hung for a minute", same, time.Minute, ""},
		{"it has hung for a moment", same, time.Second, "less than a minute"},
		{"it has no controller", func(p *Pod) { p.Controlled = false }, time.Hour, "no controller"},
		{"a long job of an engine that counts only what ends", func(p *Pod) { p.WorkedAt = api.Time{} }, time.Hour,
			"not shown work"},
		{"it has worked meanwhile", func(p *Pod) { p.WorkedAt = ago(time.Second) }, time.Hour, "less than a minute"},
		{"it was healthy meanwhile", func(p *Pod) { p.OutlierSince = ago(time.Second) }, time.Hour,
			"less than a minute"},
		{"its engine is new", func(p *Pod) { p.Started = noon.Add(-9 * time.Minute) }, 8 * time.Minute, "ten minutes"},
		{"its container started again between two passes", func(p *Pod) { p.Started = noon.Add(-time.Second) },
			time.Hour, "ten minutes"},
		{"it is not known when it started", func(p *Pod) { p.Started = time.Time{} }, time.Hour, "ten minutes"},
	} {
		cluster := pool(3, hang(0))
		wedged := podsOf(cluster.Endpoints[:1])
		c.change(&wedged[0])
		var w Watch
		w.Update(wedged, wedged, noon.Add(-c.seen))
		kept := w.Kept(&wedged[0], noon)
		_, evicted := Evictable(cluster, wedged, &w, noon)
		if evicted != (c.kept == "") || evicted != (kept == "") || !strings.Contains(kept, c.kept) {
			t.Errorf("%s: evicted %t, kept because %q, want %q", c.name, evicted, kept, c.kept)
		}
	}
}

func TestThePodThatHasHungForTheLongestIsEvictedIfAnotherIsWell(t *testing.T) {
	hung := pool(4, hang(0, 1))
	wedged := podsOf(hung.Endpoints[:2])
	var w Watch
	w.Update(wedged, wedged[1:], noon.Add(-3*time.Minute))
	w.Update(wedged, wedged, noon.Add(-2*time.Minute))
	if first, due := Evictable(hung, wedged, &w, noon); !due || first.Pod != "b" {
		t.Errorf("%q is evicted: %t", first.Pod, due)
	}
	wedged[1].Controlled = false
	if first, due := Evictable(hung, wedged, &w, noon); !due || first.Pod != "a" {
		t.Errorf("%q is evicted: %t, if the other may not be", first.Pod, due)
	}
	for i := range hung.Endpoints[2:] {
		hung.Endpoints[2+i].LastScrape.Error = "timeout"
	}
	if _, due := Evictable(hung, wedged, &w, noon); due {
		t.Error("it is evicted, and no other one is well")
	}
}

func TestAPodHangsSinceSteelyardSawItAndWhileItIsTriedAgainForAMinute(t *testing.T) {
	var w Watch
	one := pool(2, hang(0))
	uid := "first"
	same := func(*api.Endpoint) {}
	trial := func(e *api.Endpoint) { e.Outlier, e.Probed = false, "stalled since" }
	flagged := func(e *api.Endpoint) { e.Outlier, e.Probed = true, "" }
	for _, c := range []struct {
		second int
		change func(*api.Endpoint)
		want   time.Duration
	}{
		{0, same, 0},
		{5, same, 5 * time.Second},
		{10, trial, 10 * time.Second},
		{15, flagged, 15 * time.Second},
		{20, func(e *api.Endpoint) { e.Outlier = false }, 0},
		{25, flagged, 0},
		{30, trial, 5 * time.Second},
		{90, trial, 0}, // it may be idle for hours
		{95, flagged, 0},
		{100, same, 5 * time.Second},
		{105, func(*api.Endpoint) { uid = "another Pod of its name" }, 0},
	} {
		c.change(&one.Endpoints[0])
		now := noon.Add(time.Duration(c.second) * time.Second)
		of := func(endpoints []api.Endpoint) []Pod {
			all := podsOf(endpoints)
			for i := range all {
				all[i].UID = uid + all[i].Pod
			}
			return all
		}
		all := of(one.Endpoints)
		w.Update(all, of(Wedged(one, Busy([]api.Cluster{*one}), 0)), now)
		if got := w.For(&all[0], now); got != c.want {
			t.Errorf("after %d s it has hung for %v, want %v", c.second, got, c.want)
		}
	}
}

func TestTheConditionSaysThatAPodHangsAfterSecondsUnlessItIsNew(t *testing.T) {
	for _, c := range []struct {
		name       string
		seen, runs time.Duration
		want       bool
	}{
		{"it hangs", 15 * time.Second, time.Hour, true},
		{"it has hung for a moment", 14 * time.Second, time.Hour, false},
		{"it is new", time.Minute, 9 * time.Minute, false},
	} {
		wedged := podsOf(pool(3, hang(0)).Endpoints[:1])
		wedged[0].Started = noon.Add(-c.runs)
		var w Watch
		w.Update(wedged, wedged, noon.Add(-c.seen))
		if got := w.Reportable(&wedged[0], noon); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
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
