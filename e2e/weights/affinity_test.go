package weights

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/testbed"
	"steelyard/weighting"
)

// ofConversation sends a request that names its conversation, and returns the server that answered.
func (f *fleet) ofConversation(t *testing.T, i int, name string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URLs[i], strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("x-conversation-id", name)
	req.Header.Set("X-Service-Seconds", "0.001")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("conversation %s: status %d", name, resp.StatusCode)
	}
	return resp.Header.Get("X-Server")
}

// placesOf returns the servers of some conversations, through one Envoy.
func (f *fleet) placesOf(t *testing.T, i int) map[string]string {
	t.Helper()
	places := map[string]string{}
	for n := range 40 {
		name := fmt.Sprint("c", n)
		places[name] = f.ofConversation(t, i, name)
	}
	return places
}

// TestConversationsKeepTheirServerWhateverIsPushed through every Envoy, while others follow the weights, and when
// Steelyard restarts.
func TestConversationsKeepTheirServerWhateverIsPushed(t *testing.T) {
	t.Parallel()
	pool := testbed.Servers(t, testbed.Same(4, modelsim.Options{Slots: 4})...)
	f := withoutEnvoys(t, testbed.Plan{Servers: pool, Cluster: "push: {heartbeat: 300ms, endpoint_stale_after: 1s}"})
	f.Plan.Bootstrap = []string{"--affinity", "header:X-Conversation-ID"}
	for i := range 2 {
		f.StartEnvoy(i)
	}
	first := f.placesOf(t, 0)
	used := map[string]bool{}
	for _, server := range first {
		used[server] = true
	}
	if len(used) != len(pool) {
		t.Errorf("%d of %d servers have conversations: %v", len(used), len(pool), first)
	}
	same := func(what string, i int) {
		t.Helper()
		for name, server := range f.placesOf(t, i) {
			if server != first[name] {
				t.Errorf("%s, conversation %s moved from %s to %s", what, name, first[name], server)
			}
		}
	}
	same("through another Envoy", 1)
	traffic := f.Send(load.Plan{Rate: 100, Seed: 3, Work: load.Work{Mean: 30 * time.Millisecond}})
	same("while weights are pushed", 0)
	if err := f.Control.Kill(); err != nil {
		t.Fatal(err)
	}
	f.Eventually("the weights are stale", func() error {
		if len(f.Hosts(0)) > 0 {
			return errors.New("the weighted cluster still has endpoints")
		}
		return nil
	})
	same("without Steelyard", 0)
	f.Control = f.StartControl("steelyard-2")
	f.Eventually("there are weights again", func() error {
		if len(f.Hosts(0)) == 0 {
			return errors.New("the weighted cluster has no endpoints")
		}
		return nil
	})
	same("after Steelyard restarted", 0)
	if sent, failed := traffic.Stop(t); failed != 0 {
		t.Errorf("%d of %d requests failed", failed, sent)
	}
}

// TestKnownAffinityIsNoFault: most requests follow a hash, and many of one conversation come in a row, so for the
// weights they look like late reports and unused endpoints. The others follow the weights, and these what happens now.
func TestKnownAffinityIsNoFault(t *testing.T) {
	t.Parallel()
	pool := testbed.Servers(t, testbed.Same(4, modelsim.Options{Slots: 8})...)
	f := withoutEnvoys(t, testbed.Plan{Servers: pool})
	f.Plan.Bootstrap = []string{"--affinity", "header:X-Conversation-ID"}
	for i := range 2 {
		f.StartEnvoy(i)
	}
	work := load.Work{Mean: 300 * time.Millisecond}
	others := f.Send(load.Plan{Rate: 25, Seed: 1, Work: work})
	shortest := math.Inf(1) // horizon: on a busy machine reports are late now and then, without affinity, too
	check := func() {
		t.Helper()
		v, err := f.View()
		if err != nil {
			t.Fatal(err)
		}
		shortest = min(shortest, v.Decision.HorizonSeconds.Or(math.Inf(1)))
		for _, e := range v.Endpoints {
			if e.Reason == string(weighting.ReasonUnused) {
				t.Errorf("%s is taken for unused", e.Address)
			}
		}
		if v.Served.VsDecided.Or(0) > 0.1+2*v.Served.Noise.Or(0) {
			t.Errorf("%v of the requests seem to go elsewhere", v.Served.VsDecided)
		}
	}
	for n := range 8 { // conversations, one after the other
		hot := f.Send(load.Plan{Rate: 40, Count: 80, Seed: uint64(n), Work: work,
			Header: http.Header{"X-Conversation-Id": {fmt.Sprint("c", n)}}})
		hot.Wait(t)
		if n > 0 {
			check()
		}
	}
	if shortest > 0.5 {
		t.Errorf("the law looks %.2f s ahead, all the time", shortest)
	}
	if sent, failed := others.Stop(t); failed != 0 {
		t.Errorf("%d of %d requests failed", failed, sent)
	}
	v, err := f.View()
	if err != nil {
		t.Fatal(err)
	}
	all, hashed := v.Served.Requests1m.Or(0), v.Served.Hashed1m.Or(0)
	if hashed < 0.9*8*80 || all-hashed < 0.5*hashed/80*40 || v.Served.VsDecided.Or(-1) < 0 {
		t.Errorf("%.0f of %.0f requests by a hash, want about 640 (%+v)", hashed, all, v.Served)
	}
}
