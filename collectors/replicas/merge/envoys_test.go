package merge

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"steelyard/internal/api"
)

// lists is a message of another replica that lists an Envoy that follows a cluster, and a picker.
func lists(id ID, seq uint64, envoy string) *Message {
	return &Message{From: id, Name: "name of " + string(id), Seq: seq, Envoys: &Envoys{LeftOut: 3, List: []Envoy{
		{Kind: api.FollowerEnvoy, Name: envoy, Address: "10.1.0.1:4000", State: api.EnvoyBehind,
			Clusters: []string{llama}, Connected: time.Hour, Acked: time.Second},
		{Kind: api.FollowerPicker, Name: "gateway", State: api.EnvoyFollows, Connected: time.Minute}}}}
}

// states are the names and states of what is listed.
func (f *fixture) states() (out []string) {
	for _, e := range f.Envoys() {
		out = append(out, fmt.Sprint(e.Replica, " ", e.NodeID, " ", e.State))
	}
	return out
}

func wantStates(t *testing.T, what string, f *fixture, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, f.states()); diff != "" {
		t.Errorf("%s: (-want +got):\n%s", what, diff)
	}
}

func TestTheEnvoysOfOtherReplicasAreShownAsTheseListThem(t *testing.T) {
	f := fixtureOf(x)
	b := lists("b", 1, "edge-1")
	f.Take(f.now, b)
	f.Take(f.now, lists("a", 1, "edge-2"))
	heard := api.At(f.now)
	want := api.OtherEnvoy{Kind: api.FollowerEnvoy, NodeID: "edge-1", Address: "10.1.0.1:4000", Replica: "name of b",
		ReplicaID: "b", State: api.EnvoyBehind, Clusters: []string{llama}, ConnectedAt: api.At(f.now.Add(-time.Hour)),
		LastAck: api.At(f.now.Add(-time.Second)), HeardAt: heard}
	all := f.Envoys()
	if len(all) != 4 {
		t.Fatalf("%d are listed: %+v", len(all), all)
	}
	if diff := cmp.Diff(want, all[2]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !all[3].LastAck.IsZero() {
		t.Errorf("a picker has accepted an assignment at %v", all[3].LastAck)
	}
	others := f.Status()
	if o := others[1]; o.Envoys != 4 || o.LeftOut != 3 {
		t.Errorf("%+v, want 4 Envoys, of which 3 are not listed", o)
	}

	b.Seq, b.Envoys = 2, nil
	f.Take(f.now, b)
	wantStates(t, "a message without a list changes nothing", f, "name of a edge-2 behind", "name of a gateway follows",
		"name of b edge-1 behind", "name of b gateway follows")
	f.Take(f.now, &Message{From: "b", Name: "name of b", Seq: 3, Envoys: &Envoys{}})
	wantStates(t, "they have left", f, "name of a edge-2 behind", "name of a gateway follows")
}

func TestTheEnvoysOfASilentReplicaAreUnheardAndNotNone(t *testing.T) {
	f := fixtureOf(x)
	f.Take(f.now, lists("b", 1, "edge-1"))
	heard := api.At(f.now)
	f.pass(time.Second)
	wantStates(t, "silent for a second", f, "name of b edge-1 unheard", "name of b gateway unheard")
	if got := f.Envoys()[0].HeardAt; got != heard {
		t.Errorf("heard of at %v, want %v", got, heard)
	}
	back := lists("b", 2, "edge-1")
	back.Envoys = nil
	f.Take(f.now, back)
	wantStates(t, "heard of again", f, "name of b edge-1 behind", "name of b gateway follows")
	f.pass(shown + 2*time.Second)
	wantStates(t, "silent for a minute", f, "name of b edge-1 unheard", "name of b gateway unheard")
	f.Gone(f.now, "b")
	f.pass(shown + time.Second)
	wantStates(t, "gone for a minute", f)
}

func TestWhileThisReplicaIsCutOffTheEnvoysOfOthersStayListed(t *testing.T) {
	f := fixtureOf(x)
	m := lists("b", 1, "edge-1")
	f.pass(time.Second, m)
	for range 3 * 60 * 20 { // three minutes without an own message that comes back
		f.now = f.now.Add(50 * time.Millisecond)
		f.Tick(f.now)
	}
	wantStates(t, "cut off", f, "name of b edge-1 unheard", "name of b gateway unheard")
	f.pass(time.Second, m)
	wantStates(t, "together again", f, "name of b edge-1 behind", "name of b gateway follows")
}
