package controlplane

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery"
	"steelyard/controlplane/liveness"
	"steelyard/weighting/push"
)

func clusterConfig(name string, endpoints config.Endpoints) config.Cluster {
	c := config.Cluster{Name: name, Engine: "vllm", Endpoints: endpoints}
	c.Push.MinInterval = 5 * time.Millisecond
	c.Weighting.Decay = 10 * time.Second
	return c
}

func static(list ...string) config.Endpoints {
	var e config.Endpoints
	for _, a := range list {
		e.Static = append(e.Static, config.StaticEndpoint{Address: a})
	}
	return e
}

// known is the result of Each: addresses by cluster.
func known(m *Manager) map[string][]string {
	out := map[string][]string{}
	m.Each(func(c config.Cluster, endpoints []discovery.Endpoint) {
		out[c.Name] = []string{}
		for _, e := range endpoints {
			out[c.Name] = append(out[c.Name], e.Address)
		}
	})
	return out
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if condition() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func has(m *Manager, cluster string, want ...string) func() bool {
	return func() bool { return slices.Equal(known(m)[cluster], want) }
}

func TestTheManagerFollowsTheConfiguration(t *testing.T) {
	r := &recorder{}
	var changes atomic.Int64
	m := NewManager(r, push.Cost{}, r, r, func() { changes.Add(1) }, liveness.New(slog.New(slog.DiscardHandler)),
		slog.New(slog.DiscardHandler))
	defer m.Close()

	m.Apply(configOf(clusterConfig("a", static("10.0.0.1:80")), clusterConfig("b", static("10.0.0.2:80"))))
	eventually(t, "both clusters have their endpoints",
		func() bool { return has(m, "a", "10.0.0.1:80")() && has(m, "b", "10.0.0.2:80")() })
	first := m.Cluster("a")

	before := changes.Load()
	m.Apply(configOf(clusterConfig("a", static("10.0.0.1:80", "10.0.0.3:80"))))
	eventually(t, "a has its new endpoint", has(m, "a", "10.0.0.1:80", "10.0.0.3:80"))
	if m.Cluster("a") != first {
		t.Error("a cluster that stays was made again: what it learned is lost")
	}
	if m.Cluster("b") != nil || !slices.Equal(r.removed, []string{"b"}) {
		t.Errorf("removed %v, want b to be gone", r.removed)
	}
	if changes.Load() == before {
		t.Error("changed was not called")
	}
}

func TestANewSourceOfEndpointsKeepsTheOldOnesUntilItAnswers(t *testing.T) {
	r := &recorder{}
	m := NewManager(r, push.Cost{}, r, r, func() {}, liveness.New(slog.New(slog.DiscardHandler)),
		slog.New(slog.DiscardHandler))
	defer m.Close()
	m.Apply(configOf(clusterConfig("a", static("10.0.0.1:80"))))
	eventually(t, "a has its endpoint", has(m, "a", "10.0.0.1:80"))

	file := filepath.Join(t.TempDir(), "targets.json")
	m.Apply(configOf(clusterConfig("a", config.Endpoints{File: file})))
	eventually(t, "the missing file is reported", func() bool {
		return m.Clusters()[0].Sources[0].LastError != ""
	})
	if !has(m, "a", "10.0.0.1:80")() {
		t.Fatalf("endpoints %v, want the old one while the file is missing", known(m)["a"])
	}
	if err := os.WriteFile(file, []byte(`[{"targets": ["10.0.0.7:80"]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file's endpoint is there", has(m, "a", "10.0.0.7:80"))
}

func TestAChangedClusterIsStoppedWhileItsEndpointsChange(t *testing.T) {
	r := &recorder{}
	var changes atomic.Int64
	m := NewManager(r, push.Cost{}, r, r, func() { changes.Add(1) }, liveness.New(slog.New(slog.DiscardHandler)),
		slog.New(slog.DiscardHandler))
	for i := range 100 {
		m.Apply(configOf(clusterConfig("a", static(fmt.Sprintf("10.0.0.%d:80", 1+i%2)))))
	}
	eventually(t, "the last source has answered", has(m, "a", "10.0.0.2:80"))
	m.Close()
	if changes.Load() == 0 {
		t.Error("changed was not called")
	}
}

func TestApplyAfterCloseStartsNothing(t *testing.T) {
	r := &recorder{}
	m := NewManager(r, push.Cost{}, r, r, func() {}, liveness.New(slog.New(slog.DiscardHandler)),
		slog.New(slog.DiscardHandler))
	m.Close()
	m.Apply(configOf(clusterConfig("a", static("10.0.0.1:80"))))
	if m.Cluster("a") != nil { // and goleak finds nothing left
		t.Error("a cluster runs after Close")
	}
}

func TestAChangeOfOptionsReachesARunningCluster(t *testing.T) {
	r := &recorder{}
	m := NewManager(r, push.Cost{}, r, r, func() {}, liveness.New(slog.New(slog.DiscardHandler)),
		slog.New(slog.DiscardHandler))
	defer m.Close()
	c := clusterConfig("a", static("10.0.0.1:80"))
	m.Apply(configOf(c))
	c.Capacity, c.Engine = 7, "tgi"
	m.Apply(configOf(c))
	if got := m.Cluster("a").current(); got.Capacity != 7 || got.Engine != "tgi" {
		t.Errorf("options %+v, want capacity 7 and engine tgi", got)
	}
	m.Each(func(got config.Cluster, _ []discovery.Endpoint) {
		if got.Capacity != 7 {
			t.Errorf("Each has capacity %v, want 7", got.Capacity)
		}
	})
}

func TestCloseStopsEverythingTwice(t *testing.T) {
	r := &recorder{}
	m := NewManager(r, push.Cost{}, r, r, func() {}, liveness.New(slog.New(slog.DiscardHandler)),
		slog.New(slog.DiscardHandler))
	m.Apply(configOf(clusterConfig("a", static("10.0.0.1:80"))))
	m.Close()
	m.Close() // and goleak finds nothing left
}

// Who adds a cluster whose endpoints cannot be found yet must not take the others from new Envoys.
func TestAClusterThatIsAddedLaterDelaysOnlyItself(t *testing.T) {
	r := &recorder{}
	m := NewManager(r, push.Cost{}, r, r, func() {}, liveness.New(slog.New(slog.DiscardHandler)),
		slog.New(slog.DiscardHandler))
	defer m.Close()
	ready, waits := clusterConfig("a", static("10.0.0.1:80")),
		clusterConfig("b", config.Endpoints{File: filepath.Join(t.TempDir(), "missing.json")})
	ready.Scrape.Disabled, waits.Scrape.Disabled = true, true
	waits.WarmUp = time.Hour
	if m.EverReady() {
		t.Error("ready before a configuration was applied")
	}
	m.Apply(configOf(waits))
	eventually(t, "the missing file is reported", func() bool { return m.Clusters()[0].Sources[0].LastError != "" })
	m.Apply(configOf(ready, waits))
	eventually(t, "a is ready", m.Cluster("a").Ready)
	if m.EverReady() {
		t.Error("ready, while one of the first clusters has never been")
	}
	m.Apply(configOf(ready))
	eventually(t, "a has its endpoint", has(m, "a", "10.0.0.1:80"))
	m.Apply(configOf(ready, waits)) // and nobody asked before
	if !m.EverReady() || m.Cluster("b").Ready() {
		t.Errorf("been ready %v with b ready %v, want true and false", m.EverReady(), m.Cluster("b").Ready())
	}
	if c := m.Clusters()[1]; c.Ready || c.NotReadyReason == "" {
		t.Errorf("b is shown as ready %v: %q", c.Ready, c.NotReadyReason)
	}
}

// A DNS name that is gone, or one namespace that may not be read, must not keep a restarted replica from all Envoys.
func TestAClusterWithoutAnAnswerDelaysTheOthersForWarmUpOnly(t *testing.T) {
	r, began := &recorder{}, time.Now()
	cluster := func(name string) *running {
		o := testOptions() // warm-up of 5 s
		return &running{Cluster: NewCluster(name, o, r, r, r, slog.New(slog.DiscardHandler))}
	}
	ready, scraped, silent, other := cluster("ready"), cluster("scraped"), cluster("silent"), cluster("other")
	ready.SetEndpoints(nil)
	scraped.SetEndpoints(addresses("10.0.0.1:80"))
	for _, c := range []struct {
		name     string
		clusters []*running
		after    time.Duration
		ready    bool
		without  []string
	}{
		{"no clusters yet", nil, 0, false, nil},
		{"all ready", []*running{ready}, 0, true, nil},
		{"at first", []*running{ready, silent}, 0, false, nil},
		{"after the warm-up", []*running{silent, ready, other}, time.Minute, true, []string{"other", "silent"}},
		{"another waits for its reports", []*running{ready, silent, scraped}, time.Minute, false, nil},
		{"none has an answer", []*running{silent, other}, time.Hour, false, []string{"other", "silent"}},
	} {
		got, without := readyWithout(c.clusters, began.Add(c.after))
		if got != c.ready || !slices.Equal(without, c.without) {
			t.Errorf("%s: ready %v without %v, want %v without %v", c.name, got, without, c.ready, c.without)
		}
	}
}

func TestAManagerIsReadyWithoutAClusterThatHasNoAnswer(t *testing.T) {
	r := &recorder{}
	m := NewManager(r, push.Cost{}, r, r, func() {}, liveness.New(slog.New(slog.DiscardHandler)),
		slog.New(slog.DiscardHandler))
	defer m.Close()
	good, silent := clusterConfig("good", static("10.0.0.1:80")),
		clusterConfig("silent", config.Endpoints{File: filepath.Join(t.TempDir(), "missing.json")})
	good.Scrape.Disabled, silent.Scrape.Disabled = true, true
	silent.WarmUp = time.Millisecond
	m.Apply(configOf(good, silent))
	eventually(t, "it is ready", m.EverReady)
	c := m.Clusters()[1]
	if c.Ready || c.NotReadyReason != "endpoints: discovery has not answered yet" {
		t.Errorf("the cluster without an answer is shown as ready %v: %q", c.Ready, c.NotReadyReason)
	}
	if c.Pushes != 0 {
		t.Errorf("%d assignments were published of a cluster whose endpoints are unknown", c.Pushes)
	}
}

func configOf(clusters ...config.Cluster) *config.Config { return &config.Config{Clusters: clusters} }

// A barrier is a publisher that lets no cluster's last push return before all have come to it.
type barrier struct {
	recorder
	published sync.Map // by cluster
	closing   atomic.Bool
	last      sync.WaitGroup
}

func (b *barrier) Publish(cluster string, v push.Verdict) (string, error) {
	if b.closing.Load() {
		b.last.Done()
		b.last.Wait()
	}
	b.published.Store(cluster, true)
	return b.recorder.Publish(cluster, v)
}

// slowToRemove takes 20 looks of a Monitor to remove a cluster.
type slowToRemove struct {
	*recorder
	monitor *liveness.Monitor
	stuck   []liveness.Stuck
}

func (s *slowToRemove) Remove(string) {
	for range 20 {
		s.monitor.Check()
	}
	s.stuck = append(s.stuck, s.monitor.Stuck()...)
}

// TestAReloadOfManySlowClustersIsNotStuck: each may wait for a mount that hangs until it is given up.
func TestAReloadOfManySlowClustersIsNotStuck(t *testing.T) {
	monitor := liveness.New(slog.New(slog.DiscardHandler))
	s := &slowToRemove{recorder: &recorder{}, monitor: monitor}
	m := NewManager(s, push.Cost{}, s, s, func() {}, monitor, slog.New(slog.DiscardHandler))
	defer m.Close()
	m.Apply(configOf(clusterConfig("a", static("10.0.0.1:80")), clusterConfig("b", static("10.0.0.2:80")),
		clusterConfig("c", static("10.0.0.3:80"))))
	m.Apply(configOf())
	if len(s.stuck) > 0 {
		t.Errorf("stuck: %v, want nothing", s.stuck)
	}
}

// heldRemoval does not return from removing a cluster until it is released.
type heldRemoval struct {
	*recorder
	removing, release chan struct{}
	pushes            atomic.Int64 // of cluster a
}

func (h *heldRemoval) Remove(string) { close(h.removing); <-h.release }

func (h *heldRemoval) Publish(cluster string, v push.Verdict) (string, error) {
	if cluster == "a" {
		h.pushes.Add(1)
	}
	return h.recorder.Publish(cluster, v)
}

func TestTheLastPushDoesNotWaitForAnApplyThatIsStuck(t *testing.T) {
	h := &heldRemoval{recorder: &recorder{}, removing: make(chan struct{}), release: make(chan struct{})}
	m := NewManager(h, push.Cost{}, h, h, func() {}, liveness.New(slog.New(slog.DiscardHandler)),
		slog.New(slog.DiscardHandler))
	a := clusterConfig("a", static("10.0.0.1:80"))
	a.Capacity, a.Push.MinInterval = 4, time.Hour // so that the only other push is the last
	m.Apply(configOf(a, clusterConfig("b", static("10.0.0.2:80"))))
	eventually(t, "the first push", func() bool { return h.pushes.Load() == 1 })
	var all sync.WaitGroup
	all.Go(func() { m.Apply(configOf(a)) })
	<-h.removing
	all.Go(m.Close)
	eventually(t, "the last push", func() bool { return h.pushes.Load() == 2 })
	close(h.release)
	all.Wait()
}

// TestNoClustersLastPushWaitsForAnothers: Envoys of the last cluster would have theirs late, or not at all.
func TestNoClustersLastPushWaitsForAnothers(t *testing.T) {
	b := &barrier{}
	m := NewManager(b, push.Cost{}, b, b, func() {}, liveness.New(slog.New(slog.DiscardHandler)),
		slog.New(slog.DiscardHandler))
	cfg := configOf()
	for _, name := range []string{"a", "b", "c"} {
		c := clusterConfig(name, static("10.0.0.1:80"))
		c.Capacity = 4
		c.Push.MinInterval = time.Hour // so that the only other push is the last
		cfg.Clusters = append(cfg.Clusters, c)
	}
	m.Apply(cfg)
	eventually(t, "the first pushes", func() bool {
		n := 0
		b.published.Range(func(any, any) bool { n++; return true })
		return n == 3
	})
	b.last.Add(3)
	b.closing.Store(true)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		m.Close()
	}()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("a cluster's last push waits for another cluster")
	}
}
