package daemon

import (
	"strings"
	"testing"
	"time"

	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery/kubernetes"
	"steelyard/internal/api"
)

// ofPods is a cluster whose Pods are named after it: those of "big" are big-a, big-b, …
func ofPods(name string, n int) api.Cluster {
	c := api.Cluster{Name: name, Ready: true}
	for i := range n {
		pod := name + "-" + string(rune('a'+i))
		c.Endpoints = append(c.Endpoints, api.Endpoint{Address: pod, Pod: pod, Namespace: "models",
			Share: api.Num(0.5), LastScrape: api.Scrape{At: api.At(time.Now())}})
	}
	return c
}

// add adds Pods that the Kubernetes API has.
func (v *view) add(pods ...kubernetes.Pod) {
	v.byName, v.used = map[string]kubernetes.Pod{}, map[string]bool{}
	for _, p := range pods {
		p.Namespace, p.UID = "models", "uid-"+p.Name
		v.known, v.byName[p.Namespace+"/"+p.Name] = append(v.known, p), p
	}
}

// TestAHungPodOfAnotherPoolIsNotTakenOutOfThisOne: of the two Pods of small, one hangs, which is no more than half.
func TestAHungPodOfAnotherPoolIsNotTakenOutOfThisOne(t *testing.T) {
	for name, c := range map[string]struct {
		out   string         // the Pod whose condition says that it hangs
		bigs  int            // endpoints of big
		found int            // Pods of small that hang
		was   map[string]int // endpoints a pass before
	}{
		"none":                                     {"", 8, 1, nil},
		"one of big, still an endpoint":            {"big-a", 8, 1, nil},
		"one of big, by its gate no endpoint":      {"big-h", 7, 1, map[string]int{"big": 8, "small": 2}},
		"one of small, by its gate no endpoint":    {"small-c", 8, 0, map[string]int{"big": 8, "small": 3}},
		"one that was no endpoint since the start": {"other", 8, 0, nil},
	} {
		pods := []kubernetes.Pod{{Name: "small-a"}, {Name: "small-b"}, {Name: "small-c"}, {Name: "other"},
			{Name: "big-a"}, {Name: "big-h"}}
		for i := range pods {
			if pods[i].Name == c.out {
				pods[i].Serving = "False"
			}
		}
		var a podActions
		if c.was != nil {
			before := view{clusters: []api.Cluster{ofPods("big", c.was["big"]), ofPods("small", c.was["small"])}}
			before.add(pods...)
			a.findHanging(&before, time.Now())
		}
		v := view{clusters: []api.Cluster{ofPods("big", c.bigs), ofPods("small", 2)}}
		v.add(pods...)
		hung := &v.clusters[1].Endpoints[0]
		hung.Outlier, hung.OverloadReason = true, "stalled since"
		if found := a.findHanging(&v, time.Now()); len(found[1]) != c.found {
			t.Errorf("%s: %d Pods of small hang, want %d", name, len(found[1]), c.found)
		}
	}
}

// TestWhyAPodIsKeptIsShown: nothing is asked of the Kubernetes API then.
func TestWhyAPodIsKeptIsShown(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		pod      kubernetes.Pod
		followed bool
		want     string
	}{
		"only reports":  {kubernetes.Pod{Controlled: true, Started: now.Add(-time.Hour)}, false, "no Envoy follows"},
		"no controller": {kubernetes.Pod{Started: now.Add(-time.Hour)}, true, "no controller"},
	} {
		a := podActions{section: config.Kubernetes{Wedged: config.Wedged{Evict: true}}}
		for _, at := range []time.Time{now.Add(-2 * time.Minute), now} {
			v := view{clusters: []api.Cluster{ofPods("llama", 3)}}
			hung := &v.clusters[0].Endpoints[0]
			hung.Outlier, hung.OverloadReason = true, "stalled since"
			hung.WorkedAt = api.At(now.Add(-time.Hour))
			c.pod.Name = hung.Pod
			v.add(c.pod)
			found := a.findHanging(&v, at)[0]
			became, err := a.evict(t.Context(), &v.clusters[0], found, c.followed, at)
			if err != nil || len(found) != 1 || !strings.Contains(became[found[0].UID], c.want) {
				t.Errorf("%s: %d hang, and it is %q (%v), want %q", name, len(found), became, err, c.want)
			}
		}
	}
}
