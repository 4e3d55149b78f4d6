package admin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"steelyard/controlplane/admin/conditions"
	"steelyard/controlplane/admin/current"
	"steelyard/controlplane/admin/history"
	"steelyard/internal/api"
	"steelyard/internal/api/apitest"
)

// TestNoTwoBadgesContradictEachOther walks the states of a pool: whatever holds, the state of the cluster, the states
// of its endpoints, readiness, sources and problems agree.
func TestNoTwoBadgesContradictEachOther(t *testing.T) {
	type part struct {
		name string
		set  func(s *scene)
	}
	pools := []part{
		{"ready", func(*scene) {}},
		{"not ready", func(s *scene) { s.pool().Ready, s.pool().NotReadyReason = false, "no reports yet" }},
		{"no endpoints", func(s *scene) { s.pool().Endpoints = nil }},
		{"no decision", func(s *scene) { s.pool().Decision.At = api.At(s.Now.Add(-time.Minute)) }},
		{"drops", func(s *scene) { s.pool().Decision.DropFraction = api.Num(0.2) }},
	}
	endpoints := []part{{"as they were", func(*scene) {}}}
	for _, n := range []int{1, 4, 8} {
		for name, set := range map[string]func(e *api.Endpoint){
			"outlier":    func(e *api.Endpoint) { e.Outlier, e.Overloaded = true, true },
			"overloaded": func(e *api.Endpoint) { e.Overloaded = true },
			"probed":     func(e *api.Endpoint) { e.Probed = "failing: the last 5 requests failed" },
			"blind":      func(e *api.Endpoint) { e.Reason = "neutral" },
			"unused":     func(e *api.Endpoint) { e.Reason = "unused" },
			"unread": func(e *api.Endpoint) {
				e.LastScrape.Error, e.Inputs = "get http://x/metrics: refused",
					[]api.Input{{Field: "queue", State: "neutral"}}
			},
			"warming": func(e *api.Endpoint) { e.Reason = "ramp" },
			"late":    func(e *api.Endpoint) { e.Reason = "decay" },
		} {
			endpoints = append(endpoints, part{fmt.Sprint(n, " ", name), func(s *scene) {
				for i := range min(n, len(s.pool().Endpoints)) {
					set(s.endpoint(i))
				}
			}})
		}
	}
	sources := []part{
		{"sources well", func(*scene) {}},
		{"source down", func(s *scene) { s.pool().Sources[0].State = api.SourceDown }},
		{"source stale", func(s *scene) { s.pool().Sources[0].State = api.SourceStale }},
		{"source partial", func(s *scene) { s.pool().Sources[0].State = api.SourcePartial }},
	}
	walked := 0
	for _, p := range pools {
		for _, e := range endpoints {
			for _, src := range sources {
				s := calm()
				s.look()
				for _, set := range []part{p, src, e} {
					set.set(s)
				}
				s.after(time.Second)
				s.agrees(t, strings.Join([]string{p.name, e.name, src.name}, ", "))
				walked++
			}
		}
	}
	if walked < 200 {
		t.Errorf("only %d combinations", walked)
	}
}

// agrees checks everything that is shown of the pool against everything else.
func (s *scene) agrees(t *testing.T, name string) {
	t.Helper()
	c := *s.pool()
	incidents := conditions.ClusterIncidents(conditions.Shown(s.states, s.Now), c.Name)
	state := conditions.WorstState(incidents)
	m := &history.Moment{Incidents: incidents}
	shown := current.CompleteCluster(&s.Observation, c, m)
	if shown.State != state {
		t.Errorf("%s: the cluster shows %s, its incidents are %s", name, shown.State, state)
	}
	if state == api.StateOK {
		if !c.Ready || c.Counts.Total == 0 || c.Decision.DropFraction.Or(0) > 0 {
			t.Errorf("%s: ok, and ready %v, %d endpoints, drops %v", name, c.Ready, c.Counts.Total,
				c.Decision.DropFraction)
		}
	}
	if conditions.Worst(shown.Problems) == api.SeverityError && state == api.StateOK {
		t.Errorf("%s: ok, with the problems %v", name, shown.Problems)
	}
	blind := 0
	for i := range c.Endpoints {
		e := c.Endpoints[i]
		current.CompleteEndpoint(&s.Observation, &c, &e, 0, nil)
		blind += conditions.BoolToInt(e.State == api.EndpointBlind)
		shownWell := e.State == api.EndpointOK || e.State == api.EndpointWarming || e.State == api.EndpointAboveLevel
		if shownWell && conditions.CountEndpoints([]api.Endpoint{e}).Stale > 0 {
			t.Errorf("%s: %s is %s, and counted as stale", name, e.Address, e.State)
		}
		bad := e.State == api.EndpointOutlier || e.State == api.EndpointBlind
		if bad && state != api.StateError {
			t.Errorf("%s: %s is %s, and the cluster %s", name, e.Address, e.State, state)
		}
		failing := conditions.CountEndpoints([]api.Endpoint{e}).Failing > 0
		if e.State == api.EndpointOK && (e.Overloaded || failing || conditions.Worst(e.Problems) != "") {
			t.Errorf("%s: %s is ok, with %v", name, e.Address, e.Problems)
		}
		if e.State == api.EndpointProbed && (e.Overloaded || state == api.StateOK) {
			t.Errorf("%s: %s is tried again, with the flag %v in a cluster that is %s", name, e.Address, e.Overloaded,
				state)
		}
		if e.State == api.EndpointOverloaded && !e.Overloaded || e.State == api.EndpointOutlier && !e.Outlier {
			t.Errorf("%s: %s is %s, without its flag", name, e.Address, e.State)
		}
	}
	if blind > c.Counts.Stale {
		t.Errorf("%s: %d endpoints are blind, and %d counted as stale", name, blind, c.Counts.Stale)
	}
	ids := map[string]bool{}
	for _, i := range incidents {
		if ids[i.ID] {
			t.Errorf("%s: two incidents %s", name, i.ID)
		}
		ids[i.ID] = true
	}
}

// pageAgrees wants the page that the server renders, and the frames for its script, to have these counts.
func (s *scene) pageAgrees(t *testing.T, want api.FleetEnvoys) {
	t.Helper()
	now := func() time.Time { return s.Now }
	f := fixed{clusters: s.Clusters, clients: s.Clients, others: s.Elsewhere, status: s.Status}
	r := history.NewRecorder(history.RecorderOptions{Source: f, Now: now})
	r.Tick()
	if got := r.Latest().Fleet.Envoys; got != want {
		t.Errorf("the frames have %+v, want %+v", got, want)
	}
	doc, _ := parsePage(t, New(Options{Source: f, Recorder: r, Now: now}), "/")
	shown := fmt.Sprintf("followed by %d of %d Envoys", want.InSync, want.Asked())
	if chain := words(byID(t, doc, "chain")); !strings.Contains(chain, shown) {
		t.Errorf("the page has %q, want %q", chain, shown)
	}
}

// Through the snapshot, because the problem is of a cluster and its Envoys together.
func TestSheddingThatNoEnvoyFollowsIsAProblem(t *testing.T) {
	without := []api.Problem{failure("Shedding of llama has no effect: No connected Envoy subscribes to llama, and " +
		"llama/failsafe carries no drops.")}
	asks := func(resources ...string) api.Client {
		var c api.Client
		for _, r := range resources {
			cluster, _, _ := strings.Cut(r, "/")
			c.Subscriptions = append(c.Subscriptions, api.Subscription{Resource: r, Cluster: cluster})
		}
		return c
	}
	for name, tc := range map[string]struct {
		shedding bool
		clients  []api.Client
		want     []api.Problem
	}{
		"all in mode failsafe": {true,
			[]api.Client{asks("llama/fallback", "llama/failsafe"), asks("llama/failsafe", "llama/fallback")}, without},
		"one of another cluster sheds": {true, []api.Client{asks("llama/failsafe"), asks("mixtral")}, without},
		"one in mode shedding": {true, []api.Client{asks("llama/failsafe"), asks("llama")},
			[]api.Problem{}},
		"shedding is off":                          {false, []api.Client{asks("llama/failsafe")}, []api.Problem{}},
		"no Envoy asks for it":                     {true, []api.Client{asks("mixtral/failsafe")}, []api.Problem{}},
		"no Envoy, which has a problem of its own": {true, nil, []api.Problem{}},
	} {
		t.Run(name, func(t *testing.T) {
			llama := api.Cluster{Name: "llama", Ready: true, Shedding: tc.shedding,
				Endpoints: []api.Endpoint{{Address: "10.0.0.1:8000"}}, Decision: api.Decision{At: api.At(noon)}}
			s := current.Snapshot{Source: fixed{clusters: []api.Cluster{llama}},
				Seen: conditions.Observation{Now: noon, Clients: tc.clients}}
			c, _ := s.Cluster("llama")
			if diff := cmp.Diff(tc.want, c.Problems); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestThePageCountsTheEnvoysThatFollow as the frames do.
func TestThePageCountsTheEnvoysThatFollow(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*api.Client)
		want api.FleetEnvoys
	}{
		"follows": {func(*api.Client) {}, api.FleetEnvoys{Connected: 3, Here: 3, InSync: 3}},
		"behind": {func(c *api.Client) { c.Subscriptions[0].InSync, c.Subscriptions[0].VersionSent = false, "8" },
			api.FleetEnvoys{Connected: 3, Here: 3, InSync: 2, Behind: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := calm()
			c.set(&s.Clients[0])
			s.Clients[0].Subscriptions[0].LastSent = api.At(s.Now.Add(-time.Minute))
			s.pageAgrees(t, c.want)
		})
	}
}

// TestThePageCountsTheEnvoysOfAllReplicas, and those of a silent one as such.
func TestThePageCountsTheEnvoysOfAllReplicas(t *testing.T) {
	for name, c := range map[string]struct {
		states  []api.EnvoyState
		replica api.ReplicaState
		want    api.FleetEnvoys
	}{
		"they follow": {[]api.EnvoyState{api.EnvoyFollows, api.EnvoySilent}, api.ReplicaLive,
			api.FleetEnvoys{Connected: 15, Here: 3, InSync: 15}},
		"one refuses": {[]api.EnvoyState{api.EnvoyFollows, api.EnvoyRefuses}, api.ReplicaLive,
			api.FleetEnvoys{Connected: 15, Here: 3, InSync: 14, Refusing: 1}},
		"its replica is gone": {[]api.EnvoyState{api.EnvoyUnheard, api.EnvoyUnheard}, api.ReplicaGone,
			api.FleetEnvoys{Connected: 3, Here: 3, InSync: 3, Unheard: 2}},
		"this replica is cut off": {[]api.EnvoyState{api.EnvoyUnheard, api.EnvoyUnheard}, api.ReplicaUnreachable,
			api.FleetEnvoys{Connected: 3, Here: 3, InSync: 3, Unheard: 12}},
	} {
		t.Run(name, func(t *testing.T) {
			s := calm()
			s.Status.Replicas = api.Replicas{Enabled: true, Others: []api.Replica{{Name: "b", State: c.replica,
				Envoys: 12, LeftOut: 10}}}
			for _, state := range c.states {
				s.Elsewhere = append(s.Elsewhere, api.OtherEnvoy{Kind: api.FollowerEnvoy, Replica: "b", State: state})
			}
			s.Elsewhere = append(s.Elsewhere, api.OtherEnvoy{Kind: api.FollowerPicker, Replica: "b"})
			s.pageAgrees(t, c.want)
		})
	}
}

// TestEnvoysOfAnotherReplicaAreEnvoys: where all are there, this one does not say that there is none, nor that nobody
// follows.
func TestEnvoysOfAnotherReplicaAreEnvoys(t *testing.T) {
	s := calm()
	s.Clients = nil
	says := func(title string) bool {
		return slices.ContainsFunc(s.after(10*time.Second), func(i api.Incident) bool { return i.Title == title })
	}
	const none = "No Envoy is connected"
	if !says(none) {
		t.Errorf("without an Envoy anywhere it does not say %q", none)
	}
	s.Elsewhere = []api.OtherEnvoy{{Kind: api.FollowerEnvoy, NodeID: "edge-1", State: api.EnvoyFollows,
		Clusters: []string{"llama"}}}
	s.after(time.Minute)
	if says(none) {
		t.Errorf("with an Envoy at another replica it says %q", none)
	}
}

// A scene is an observation that a test changes from second to second.
type scene struct {
	conditions.Observation
	states []conditions.IncidentState
}

func calm() *scene {
	c, clients := apitest.Calm(noon)
	return &scene{Observation: conditions.Observation{Now: noon, Clusters: []api.Cluster{c}, Clients: clients,
		Status: api.Status{ConfigGeneration: 3, Now: api.At(noon)}}}
}

// after lets time pass, second by second, and returns the incidents of the last.
func (s *scene) after(d time.Duration) []api.Incident {
	for end := s.Now.Add(d); s.Now.Before(end); {
		s.Now = s.Now.Add(time.Second)
		s.look()
	}
	return conditions.Shown(s.states, s.Now)
}

func (s *scene) look() {
	s.Status.Now = api.At(s.Now)
	for i := range s.Clusters {
		if s.Clusters[i].Decision.At.Equal(s.Now.Add(-time.Second)) || s.Now.Equal(noon) {
			s.Clusters[i].Decision.At = api.At(s.Now)
		}
		s.Clusters[i].Counts = conditions.CountEndpoints(s.Clusters[i].Endpoints)
	}
	s.states = conditions.Evaluate(s.states, &s.Observation)
}

func (s *scene) pool() *api.Cluster { return &s.Clusters[0] }

func (s *scene) endpoint(i int) *api.Endpoint { return &s.Clusters[0].Endpoints[i] }
