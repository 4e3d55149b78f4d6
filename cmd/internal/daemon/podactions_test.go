package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery/kubernetes"
	"steelyard/controlplane/pods"
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
		"one of small, still an endpoint":          {"small-b", 8, 1, nil},
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

// TestAPodOfTwoClustersIsTheOneThatIsEvictedOfBoth: the Lease of each is needed. The API keeps what is written.
func TestAPodOfTwoClustersIsTheOneThatIsEvictedOfBoth(t *testing.T) {
	leases := map[string][]byte{}
	leaseName := regexp.MustCompile("steelyard-eviction-[0-9a-f]+")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/eviction"):
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Success"}`)
		case r.Method == http.MethodGet && leases[leaseName.FindString(r.URL.Path)] == nil:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "code": 404}`)
		default:
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
			if r.Method != http.MethodGet {
				leases[string(leaseName.Find(body))] = body
			}
			_, _ = w.Write(leases[leaseName.FindString(r.URL.Path+string(body))])
		}
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Appendf(nil, "current-context: a\ncontexts: [{name: a, context: {cluster: a}}]\n"+
		"clusters: [{name: a, cluster: {server: %q}}]\n", server.URL)
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	client, err := kubernetes.New(kubernetes.Options{Kubeconfig: kubeconfig, Log: log,
		Requested: func(string, string, string) {}})
	if err != nil {
		t.Fatal(err)
	}
	embed, chat := ofPods("embed", 3), ofPods("chat", 3)
	a := podActions{client: client, d: &Daemon{options: Options{Log: log}},
		in: map[string][]string{"both": {"embed", "chat"}, "other": {"chat"}, "third": {"more"}}}
	for _, c := range []struct {
		uid     string
		cluster *api.Cluster
		want    string
	}{{"both", &embed, "evicted"}, {"other", &chat, "another Pod"}, {"both", &chat, "evicted"},
		{"third", &chat, "evicted"}} {
		m := member{pods.Pod{Endpoint: chat.Endpoints[0], UID: c.uid},
			kubernetes.Pod{Namespace: "models", Name: c.uid, UID: c.uid}}
		if became, err := a.evictOne(t.Context(), c.cluster, m); err != nil || !strings.HasPrefix(became, c.want) {
			t.Errorf("%s: %q (%v), want %q", c.uid, became, err, c.want)
		}
	}
}
