package kubernetes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"steelyard/controlplane/discovery"
)

// These are the cases in which entries of the API contradict each other; e2e/kubernetes has the others, on a real
// API server.
func TestEntriesOfOneAddressAreOneEndpoint(t *testing.T) {
	entry := func(id string, ready, serving, terminating bool) candidate {
		return candidate{Endpoint: discovery.Endpoint{ID: id}, address: "10.0.0.1", family: IPv4, port: 80,
			ready: ready, serving: serving, terminating: terminating}
	}
	ready, going := func(id string) candidate { return entry(id, true, true, false) },
		func(id string) candidate { return entry(id, false, true, true) }
	other := ready("other")
	other.address = "10.0.0.2"
	for name, c := range map[string]struct {
		entries     []candidate
		id          string // of 10.0.0.1; empty: none
		terminating bool
	}{
		"the same twice":                     {[]candidate{ready("a"), ready("a")}, "a", false},
		"one slice is older":                 {[]candidate{other, ready("a"), going("a")}, "a", true},
		"the IP has a new owner":             {[]candidate{other, going("a"), ready("b")}, "b", false},
		"the IP has a new owner, reversed":   {[]candidate{other, ready("b"), going("a")}, "b", false},
		"not ready":                          {[]candidate{other, entry("a", false, false, false)}, "", false},
		"the last one, which still serves":   {[]candidate{going("a")}, "a", false},
		"the last one, which serves no more": {[]candidate{entry("a", false, false, true)}, "a", true},
	} {
		m := merger{what: "Service x"}
		for _, e := range c.entries {
			m.add(e)
		}
		set, err := m.result()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got discovery.Endpoint
		for _, e := range set {
			if e.Address == "10.0.0.1:80" {
				got = e
			}
		}
		if got.ID != c.id || got.Terminating != c.terminating {
			t.Errorf("%s: %+v, want %q, terminating: %v", name, got, c.id, c.terminating)
		}
	}
}

func TestAddressesThatEnvoyCannotUseAreNamedAndLeftOut(t *testing.T) {
	m := merger{what: "Service x"}
	for _, address := range []string{"10.0.0.1", "example.com", "0.0.0.0"} {
		m.add(candidate{address: address, family: IPv4, port: 80, ready: true, serving: true})
	}
	set, err := m.result()
	if len(set) != 1 || err == nil || !strings.Contains(err.Error(), "example.com") ||
		!strings.Contains(err.Error(), "0.0.0.0") {
		t.Errorf("endpoints %+v, fault %v", set, err)
	}
}

// TestWhatIsLeftOutIsBounded: the first are named, and all are counted.
func TestWhatIsLeftOutIsBounded(t *testing.T) {
	m := merger{what: "Service x"}
	for i := range discovery.MaxEndpoints + 100 {
		m.add(candidate{address: fmt.Sprintf("10.0.%d.%d", i/256, i%256), family: IPv4, port: 80, ready: true,
			owner: fmt.Sprint(i), object: strings.Repeat("long", 50)})
	}
	set, err := m.result()
	omitted, _ := err.(*discovery.Omissions) //nolint:errorlint // it is this one, which is no failure
	if len(set) != discovery.MaxEndpoints || omitted == nil || omitted.Count != 100 ||
		len(omitted.First) != discovery.MaxOmissions {
		t.Fatalf("%d endpoints, %v", len(set), err)
	}
	if text := err.Error(); len(text) > 20_000 || !strings.HasSuffix(text, "and 80 more") {
		t.Errorf("%d bytes: %s", len(text), text[len(text)-50:])
	}
}

func TestAKubeconfigThatCannotBeUsedIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := CheckKubeconfig(t.Context(), path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("of a file that is missing it says %v", err)
	}
	if err := os.WriteFile(path, []byte("clusters: {"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckKubeconfig(t.Context(), path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("of a file that is no kubeconfig it says %v", err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := New(Options{}); !errors.Is(err, ErrNoConfiguration) {
		t.Errorf("outside Kubernetes it says %v", err)
	}
}

func TestResultsOfRequestsAreAFixedSet(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for want, err := range map[string]error{
		"ok":                nil,
		"expired":           apierrors.NewResourceExpired("too old"),
		"unauthorized":      apierrors.NewUnauthorized("no"),
		"forbidden":         apierrors.NewForbidden(pods, "", nil),
		"not_found":         apierrors.NewNotFound(pods, "a"),
		"too_many_requests": apierrors.NewTooManyRequests("slow down", 1),
		"timeout":           apierrors.NewTimeoutError("late", 1),
		"unavailable":       apierrors.NewServiceUnavailable("no"),
		"connection":        errCutOff,
		"other":             errors.New("anything"),
	} {
		if got := resultOf(err); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
}
