package envoybootstrap

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"sync"
	"testing"
	"time"
)

const conversation = "x-conversation-id"

func asMember(int) endpoint { return endpoint{health: healthy} }

// by sends a request of a conversation, and returns the status of the answer; 0 for none.
func (f *front) by(t *testing.T, path, name string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(conversation, name)
	resp, err := f.client.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// places are the backends of so many conversations, by number: each is asked one request.
func (f *front) places(t *testing.T, backends []*backend, n int) []int {
	t.Helper()
	at := make([]int, n)
	before := make([]int64, len(backends))
	for c := range n {
		for i, b := range backends {
			before[i] = b.hits.Load()
		}
		if code := f.by(t, "", fmt.Sprint("conversation ", c)); code != http.StatusOK {
			t.Fatalf("conversation %d: status %d", c, code)
		}
		at[c] = -1
		for i, b := range backends {
			if b.hits.Load() > before[i] {
				at[c] = i
			}
		}
	}
	return at
}

// moved is how many conversations have another place.
func moved(a, b []int) (n int) {
	for c := range a {
		if a[c] != b[c] {
			n++
		}
	}
	return n
}

// TestAConversationStaysAtItsEndpoint while weights are pushed, while an endpoint leaves, and without a control plane.
func TestAConversationStaysAtItsEndpoint(t *testing.T) {
	const conversations = 80
	backends := startBackends(t, four()...)
	cp := startControlPlane(t)
	cp.publish(expiring(assignment("llama/failsafe", endpoints(backends, weighted)...), 2*time.Second))
	cp.publish(assignment("llama/fallback", endpoints(backends, asFallback)...))
	cp.publish(assignment("llama/members", endpoints(backends, asMember)...))
	o := Options{Cluster: "llama", XDS: cp.address, Affinity: conversation}
	envoy := startFront(t, o)
	first := envoy.places(t, backends, conversations)
	counts := make([]int, len(backends))
	for _, i := range first {
		counts[i]++
	}
	for i, n := range counts {
		if n < conversations/16 {
			t.Errorf("backend %d has %d of %d conversations", i, n, conversations)
		}
	}
	if err := near(envoy.shares(t, backends, 400), weightedShares); err != nil {
		t.Errorf("requests that name no conversation: %v", err)
	}
	another := startFront(t, o)
	if n := moved(first, another.places(t, backends, conversations)); n > 0 {
		t.Errorf("%d conversations are elsewhere through another Envoy", n)
	}

	equal := func(i int) endpoint { return endpoint{weight: 250_000 + uint32(i%2), health: healthy} }
	cp.publish(expiring(assignment("llama/failsafe", endpoints(backends, equal)...), 2*time.Second))
	eventually(t, func() error {
		return near(envoy.shares(t, backends, 200), []float64{0.25, 0.25, 0.25, 0.25})
	})
	if n := moved(first, envoy.places(t, backends, conversations)); n > 0 {
		t.Errorf("%d conversations moved after a push of weights", n)
	}

	cp.publish(assignment("llama/members", endpoints(backends[:3], asMember)...))
	eventually(t, func() error {
		if n := len(envoy.hosts(t, "llama_affinity")); n != 3 {
			return fmt.Errorf("%d endpoints", n)
		}
		return nil
	})
	three := envoy.places(t, backends, conversations)
	if n := moved(first, three) - counts[3]; n > conversations/10 {
		t.Errorf("%d conversations moved besides the %d of the endpoint that left", n, counts[3])
	}

	cp.stop()
	eventually(t, func() error {
		if n := len(envoy.hosts(t, "llama")); n > 0 {
			return fmt.Errorf("%d endpoints with weights have not expired", n)
		}
		return nil
	})
	if n := moved(three, envoy.places(t, backends, conversations)); n > 0 {
		t.Errorf("%d conversations moved without a control plane", n)
	}
	cp.start(t) // for the end of the test, which stops it
}

// hashing is the bootstrap with another policy, and another bound; 0 for none.
func hashing(t *testing.T, cp *controlPlane, policy string, bound int) []byte {
	t.Helper()
	text, err := Render(Options{Cluster: "llama", XDS: cp.address, Affinity: conversation, Listen: "127.0.0.1:0",
		Admin: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	for old, with := range map[string]string{
		"lb_policy: MAGLEV": "lb_policy: " + policy,
		fmt.Sprintf("consistent_hashing_lb_config: {hash_balance_factor: %d}", hashBalanceFactor): fmt.Sprintf(
			"consistent_hashing_lb_config: {hash_balance_factor: %d}", bound),
	} {
		if bound == 0 && old != "lb_policy: MAGLEV" {
			with = "consistent_hashing_lb_config: {}"
		}
		if !bytes.Contains(text, []byte(old)) {
			t.Fatalf("%q is not in the bootstrap", old)
		}
		text = bytes.ReplaceAll(text, []byte(old), []byte(with))
	}
	return text
}

// TestAHotConversationTakesNoMoreThanItsBound: with either policy that hashes, requests above the bound go elsewhere;
// without a bound all stay.
func TestAHotConversationTakesNoMoreThanItsBound(t *testing.T) {
	const requests = 24
	for _, policy := range []string{"MAGLEV", "RING_HASH"} {
		for _, bound := range []int{0, hashBalanceFactor} {
			t.Run(fmt.Sprintf("%s bound %d", policy, bound), func(t *testing.T) {
				backends := startBackends(t, four()...)
				cp := startControlPlane(t)
				cp.publish(assignment("llama/failsafe", endpoints(backends, weighted)...))
				cp.publish(assignment("llama/fallback", endpoints(backends, asFallback)...))
				cp.publish(assignment("llama/members", endpoints(backends, asMember)...))
				envoy := startText(t, hashing(t, cp, policy, bound))
				var open sync.WaitGroup
				var most int64
				for n := range int64(requests) { // one after the other, so that each counts for the next
					open.Go(func() { envoy.by(t, "held", "the hot one") })
					eventually(t, func() error {
						var held int64
						for _, b := range backends {
							held += b.hits.Load()
						}
						if held <= n {
							return fmt.Errorf("%d of %d requests have come", held, n+1)
						}
						return nil
					})
				}
				for _, b := range backends {
					most = max(most, b.hits.Load())
					close(b.release)
				}
				open.Wait()
				want := int64(requests)
				if bound > 0 {
					// Envoy 1.40 compares before it adds the request: one more than the bound.
					want = int64(math.Ceil(requests/4.*float64(bound)/100)) + 1
				}
				if most != want {
					t.Errorf("one endpoint has %d of %d requests at once, want %d", most, requests, want)
				}
			})
		}
	}
}

// TestWeightsMoveConversations is why the members come without: shares of conversations follow the weights, so each
// push of other weights would move some.
func TestWeightsMoveConversations(t *testing.T) {
	const conversations = 400
	for _, policy := range []string{"MAGLEV", "RING_HASH"} {
		t.Run(policy, func(t *testing.T) {
			backends := startBackends(t, four()...)
			cp := startControlPlane(t)
			cp.publish(assignment("llama/failsafe", endpoints(backends, weighted)...))
			cp.publish(assignment("llama/fallback", endpoints(backends, asFallback)...))
			cp.publish(assignment("llama/members", endpoints(backends, weighted)...))
			envoy := startText(t, hashing(t, cp, policy, 0))
			before := envoy.places(t, backends, conversations)
			got := make([]float64, len(backends))
			for _, i := range before {
				got[i] += 1. / conversations
			}
			for i, want := range weightedShares {
				if math.Abs(got[i]-want) > 0.1 {
					t.Errorf("shares of the conversations %.2f, want %.2f", got, weightedShares)
				}
			}
			reversed := func(i int) endpoint { return weighted(len(backends) - 1 - i) }
			cp.publish(assignment("llama/members", endpoints(backends, reversed)...))
			eventually(t, func() error {
				if n := moved(before, envoy.places(t, backends, conversations)); n < conversations/4 {
					return fmt.Errorf("%d of %d conversations moved", n, conversations)
				}
				return nil
			})
		})
	}
}

func TestEnvoyAcceptsAffinityInEveryForm(t *testing.T) {
	o := llama(ModeFailsafe)
	o.Affinity = conversation
	text, err := Render(o)
	if err != nil {
		t.Fatal(err)
	}
	accepted(t, text)
	for _, form := range []Form{FormStatic, FormCDS, FormADS} {
		o.Form = form
		bootstrap, found := attached(t, o, "llama_failsafe")
		if c := found["llama_affinity"]; c.GetEdsClusterConfig().GetServiceName() != "llama/members" {
			t.Errorf("%s: %v", form, c)
		}
		accepted(t, bootstrap)
	}
}
