package page

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"steelyard/controlplane/admin"
	"steelyard/controlplane/admin/history"
	"steelyard/internal/api"
)

// replicated is the cluster of thousand, followed by an Envoy here, one at another replica, and one at a silent one.
type replicated struct{ thousand }

func (replicated) Clients() []api.Client {
	now := api.At(time.Now())
	return []api.Client{{Connection: api.Connection{Node: api.Node{NodeID: "edge-0"}, Address: "10.0.0.1:4000",
		ConnectedAt: now, Subscriptions: []api.Subscription{{Resource: "wide", Cluster: "wide", Known: true,
			InSync: true, VersionSent: "7", VersionAcked: "7", LastSent: now, LastAck: now}}}}}
}

func (replicated) Elsewhere() []api.OtherEnvoy {
	at := func(replica, name string, kind api.FollowerKind, state api.EnvoyState) api.OtherEnvoy {
		return api.OtherEnvoy{Kind: kind, NodeID: name, Address: "10.0.0.2:4000", Replica: replica, ReplicaID: replica,
			State: state, Clusters: []string{"wide"}, ConnectedAt: api.At(time.Now().Add(-time.Hour)),
			HeardAt: api.At(time.Now().Add(-12 * time.Second))}
	}
	return []api.OtherEnvoy{at("steelyard-1", "edge-1", api.FollowerEnvoy, api.EnvoyFollows),
		at("steelyard-1", "gateway", api.FollowerPicker, api.EnvoyFollows),
		at("steelyard-2", "edge-2", api.FollowerEnvoy, api.EnvoyUnheard)}
}

func (s replicated) Status() api.Status {
	status, since := s.thousand.Status(), api.At(s.started)
	status.Replicas = api.Replicas{Enabled: true, Name: "steelyard-0", Connected: true, Since: since,
		Others: []api.Replica{
			{ID: "1", Name: "steelyard-1", State: api.ReplicaLive, Since: since, LastMessage: since, Envoys: 1},
			{ID: "2", Name: "steelyard-2", State: api.ReplicaGone, Since: since, LastMessage: since, Envoys: 1}}}
	return status
}

func (s replicated) Cluster(name string) (api.Cluster, bool) {
	c, ok := s.thousand.Cluster(name)
	c.Routes = &api.Routes{Here: 700, Elsewhere: 300, LastMinute: 40, LastTenMinutes: 250, LastHour: 1000}
	return c, ok
}

func (s replicated) Clusters() []api.Cluster {
	c, _ := s.Cluster("wide")
	return []api.Cluster{c}
}

// TestThePageShowsTheEnvoysOfAllReplicas, and those of a silent one as not heard of.
func TestThePageShowsTheEnvoysOfAllReplicas(t *testing.T) {
	t.Parallel()
	source := replicated{thousand{time.Now()}}
	recorder := history.NewRecorder(history.RecorderOptions{Source: source})
	done := make(chan error, 1)
	go func() { done <- recorder.Run(t.Context()) }()
	server := httptest.NewServer(admin.New(admin.Options{Source: source, Recorder: recorder, Operator: untouched{}}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close(); <-done })
	p := newBrowser(t).tab(t, 1280, 900)
	p.open(server.URL + "/#/envoys")
	p.until("the strip counts all", `document.getElementById('chain').textContent.includes('2 of 3')`)
	for envoy, want := range map[string][2]string{"edge-0": {"follows", "this one"},
		"edge-1": {"follows", "steelyard-1"}, "edge-2": {"not heard of for", "steelyard-2"}} {
		p.until(envoy+" is shown with its replica", fmt.Sprintf(`(() => {
			const text = document.querySelector('tr[data-envoy=%q]')?.textContent || '';
			return text.includes(%q) && text.includes(%q);
		})()`, envoy, want[0], want[1]))
	}
	p.until("the picker of another replica is shown",
		`document.querySelector('tr[data-picker=gateway]')?.textContent.includes('steelyard-1')`)
	p.shot("replicas-1280")
	p.open(server.URL + "/#/c/wide")
	p.until("routes are counted by age", `document.body.textContent.includes('10 minutes 250')`)
	p.noErrors()
}
