package kubernetes

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	source "steelyard/controlplane/discovery/kubernetes"
	"steelyard/e2e/rig/link"
)

// TestRightsThatAreMissingAreNamedAndTakeEffectWhenTheyAreGiven, without a restart.
func TestRightsThatAreMissingAreNamedAndTakeEffectWhenTheyAreGiven(t *testing.T) {
	r := newRoom(t, client(t, apiServer(t)))
	r.account()
	uid := r.pod(pod{name: "a", labels: map[string]string{"steelyard.dev/capacity": "4"}})
	r.slice("llama", "llama", httpPort, entry{address: "10.0.0.1", pod: "a", uid: uid})
	c := connect(t, apiServer(t), "", r.tokenFile(apiServer(t)))
	v := service(t, c, source.ServiceConfig{Namespace: r.name, Service: "llama"})
	v.faulty("Steelyard may not watch endpointslices.discovery.k8s.io in namespace "+r.name,
		"the verbs list and watch on endpointslices.discovery.k8s.io")
	if set, _ := v.now(); set != nil {
		t.Errorf("there is a set, %s, before the API server has answered", shown(set))
	}

	r.grant(r.name, readSlices)
	v.faulty("capacity and engine of Pods are not known", "Steelyard may not watch pods in namespace "+r.name)
	v.has("10.0.0.1:8000")
	r.grant(r.name, readSlices, readPods)
	v.becomes("10.0.0.1:8000")
	eventually(t, "the capacity is that of the Pod's label", func() error {
		if e := v.one("10.0.0.1:8000"); e.Capacity != 4 {
			return fmt.Errorf("it is %+v", e)
		}
		return nil
	})
	if c.requests.of("endpointslices watch forbidden") == 0 || c.requests.of("pods watch forbidden") == 0 {
		t.Errorf("the refusals are not counted: %v", c.requests.count)
	}
}

// TestARefusedTokenIsReadAgain: nothing but the file changes.
func TestARefusedTokenIsReadAgain(t *testing.T) {
	r := newRoom(t, client(t, apiServer(t)))
	r.account()
	r.grant(r.name, readSlices, readPods)
	r.slice("llama", "llama", httpPort, entry{address: "10.0.0.1"})
	path := r.tokenFile(apiServer(t))
	good, err := os.ReadFile(path)
	r.must(err)
	r.must(os.WriteFile(path, []byte("expired"), 0o600))
	v := service(t, connect(t, apiServer(t), "", path), source.ServiceConfig{Namespace: r.name, Service: "llama"})
	v.faulty("refuses the credentials", "endpointslices")
	r.must(os.WriteFile(path, good, 0o600))
	began := time.Now()
	v.becomes("10.0.0.1:8000")
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the token was read again after %v; the default of client-go is a minute", took)
	}
}

// TestEndpointsStayWhileTheAPIServerIsDeadOrHangs, and follow it when it is back.
func TestEndpointsStayWhileTheAPIServerIsDeadOrHangs(t *testing.T) {
	s := ownAPI(t)
	r := newRoom(t, client(t, s))
	r.slice("llama", "llama", httpPort, entries(0, 3)...)
	c := connect(t, s, "", "")
	v := service(t, c, source.ServiceConfig{Namespace: r.name, Service: "llama"})
	three := []string{"10.1.0.1:8000", "10.1.0.2:8000", "10.1.0.3:8000"}
	v.becomes(three...)
	// Each reason of a fault has a line: a connection ends, and then none is accepted.
	logged := func(text string, least, most int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%q is logged once for each fault and reason", text), func() error {
			if got := strings.Count(c.log.String(), text); got < least || got > most {
				return fmt.Errorf("%d times, want %d to %d:\n%s", got, least, most, &c.log)
			}
			return nil
		})
	}

	r.must(s.KillAPI())
	v.faulty("connection refused")
	logged("could not be refreshed", 1, 3) // that of Pods is no more than an omission
	r.must(s.StartAPI(t.Context()))
	r.slice("llama", "llama", httpPort, entries(0, 4)...)
	four := slices.Concat(three, []string{"10.1.0.4:8000"})
	v.becomes(four...)
	logged("can be refreshed again", 1, 1)

	r.must(s.PauseAPI())
	paused := time.Now()
	v.faulty(s.URL(), "does not answer")
	if took := time.Since(paused); took > 20*time.Second {
		t.Errorf("it hung for %v before that was noticed, want less than 20 s", took)
	}
	r.must(s.ResumeAPI())
	r.slice("llama", "llama", httpPort, entries(0, 2)...)
	v.becomes(three[:2]...)
	if v.fewer != 2 {
		t.Errorf("at some time there were %d endpoints, want never less than the API said: 2", v.fewer)
	}
	logged("could not be refreshed", 2, 6)
	logged("can be refreshed again", 2, 2)
	refused := c.requests.of("endpointslices watch connection") + c.requests.of("pods watch connection")
	if refused == 0 || c.requests.of("readyz get timeout") == 0 {
		t.Errorf("the failures are not counted: %v", c.requests.count)
	}
}

// TestAWatchThatIsTooOldIsFollowedByAList: what changed while nobody could watch is not lost.
func TestAWatchThatIsTooOldIsFollowedByAList(t *testing.T) {
	s := ownAPI(t)
	r := newRoom(t, client(t, s))
	r.slice("llama", "llama", httpPort, entries(0, 3)...)
	way, err := link.Open("127.0.0.1:0", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(way.Close)
	c := connect(t, s, "https://"+way.Address(), "")
	v := service(t, c, source.ServiceConfig{Namespace: r.name, Service: "llama"})
	v.becomes("10.1.0.1:8000", "10.1.0.2:8000", "10.1.0.3:8000")
	// A watch that ends without an event within a second is followed by a list anyway.
	r.slice("llama", "llama", httpPort, entries(0, 2)...)
	v.becomes("10.1.0.1:8000", "10.1.0.2:8000")

	way.Refuse(true)
	v.faulty("") // of the watch, or of the question whether the API server is there
	r.slice("llama", "llama", httpPort, entries(1, 1)...)
	// An API server has in memory what happened since its start; older watches expire.
	r.must(s.KillAPI())
	r.must(s.StartAPI(t.Context()))
	r.slice("llama", "llama", httpPort, entries(2, 1)...)
	way.Refuse(false)
	v.becomes("10.1.0.3:8000")
	if c.requests.of("endpointslices watch expired") == 0 {
		t.Errorf("no watch had expired, so this shows nothing: %v", c.requests.count)
	}
}
