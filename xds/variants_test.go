package xds

import (
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/internal/api"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"steelyard/weighting"
	"steelyard/weighting/push"
)

func decisionOf(drop float64, overloaded bool) weighting.Decision {
	return weighting.Decision{DropFraction: drop, Endpoints: []weighting.EndpointDecision{
		{Address: "10.0.0.1:80", Share: 0.9},
		{Address: "10.0.0.2:80", Share: 0.1, Overloaded: overloaded},
	}}
}

// subscribeFor opens a stream that subscribes to names.
func (s *Server) subscribeFor(t *testing.T, names ...string) {
	t.Helper()
	key := streamKey{delta: true, id: int64(len(s.tracker.streams))}
	if err := s.tracker.opened(t.Context(), key, TransportEDSDelta, "10.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	if err := s.tracker.requested(key, request{node: api.Node{NodeID: "envoy-1"}, typeURL: resource.EndpointType,
		subscribe: names}); err != nil {
		t.Fatal(err)
	}
}

// newVariants returns a server with a subscriber to each name of llama.
func newVariants(t *testing.T, o Options) *Server {
	t.Helper()
	s := NewServer(o)
	t.Cleanup(s.Close)
	s.subscribeFor(t, "llama", "llama/failsafe", "llama/fallback", "llama/members")
	return s
}

// messageOf returns the latest assignment pushed under a name.
func (s *Server) messageOf(t *testing.T, name string) *endpointv3.ClusterLoadAssignment {
	t.Helper()
	c := s.clusters[name]
	if c == nil || c.last == nil {
		t.Fatalf("%s was not pushed", name)
	}
	return c.last.message
}

func TestEachVariantCarriesItsOwnPolicy(t *testing.T) {
	s := newVariants(t, Options{Seed: 1})
	if version, err := s.Push("llama", decisionOf(0.25, true), 10*time.Second); version == "" || err != nil {
		t.Fatalf("version %q, error %v", version, err)
	}
	tests := []struct {
		name       string
		drops      int
		staleAfter time.Duration
		health     []corev3.HealthStatus // of the two endpoints
		equal      bool                  // the weights, but for the dither
	}{
		{"llama", 1, 0, []corev3.HealthStatus{corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_DEGRADED}, false},
		{"llama/failsafe", 0, 10 * time.Second,
			[]corev3.HealthStatus{corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_DEGRADED}, false},
		{"llama/fallback", 0, 0, []corev3.HealthStatus{corev3.HealthStatus_DEGRADED, corev3.HealthStatus_DEGRADED},
			true},
	}
	for _, tt := range tests {
		m := s.messageOf(t, tt.name)
		if m.GetClusterName() != tt.name {
			t.Errorf("%s calls itself %s", tt.name, m.GetClusterName())
		}
		if got := len(m.GetPolicy().GetDropOverloads()); got != tt.drops {
			t.Errorf("%s has %d drop categories, want %d", tt.name, got, tt.drops)
		}
		if got := m.GetPolicy().GetEndpointStaleAfter().AsDuration(); got != tt.staleAfter {
			t.Errorf("%s goes stale after %v, want %v", tt.name, got, tt.staleAfter)
		}
		endpoints := m.GetEndpoints()[0].GetLbEndpoints()
		for i, e := range endpoints {
			if e.GetHealthStatus() != tt.health[i] {
				t.Errorf("%s: endpoint %d is %v, want %v", tt.name, i, e.GetHealthStatus(), tt.health[i])
			}
		}
		weight := func(i int) float64 { return float64(endpoints[i].GetLoadBalancingWeight().GetValue()) }
		ratio := weight(0) / weight(1)
		if equal := ratio < 2; equal != tt.equal {
			t.Errorf("%s: ratio of the weights %.2f, want them equal: %v", tt.name, ratio, tt.equal)
		}
	}
}

func TestNamesOfMembersArePushedOnlyWhenTheyAreDue(t *testing.T) {
	s := newVariants(t, Options{Seed: 1})
	versions := func() (out [3]string) {
		for i, name := range []string{"llama", "llama/fallback", "llama/members"} {
			out[i] = s.clusters[name].version()
		}
		return out
	}
	publish := func(members bool) (changed [3]bool) {
		t.Helper()
		before := versions()
		if _, err := s.Publish("llama", push.Verdict{Decision: decisionOf(0, false), Members: members}); err != nil {
			t.Fatal(err)
		}
		for i, version := range versions() {
			changed[i] = version != before[i]
		}
		return changed
	}
	for i, c := range []struct {
		members bool
		want    [3]bool
	}{
		{false, [3]bool{true, true, true}}, // the first push
		{false, [3]bool{true, false, false}},
		{true, [3]bool{true, true, true}},
	} {
		if got := publish(c.members); got != c.want {
			t.Errorf("push %d, members due %t: pushed %v, want %v", i, c.members, got, c.want)
		}
	}
}

// TestAnEnvoyThatUsesUpItsAllowanceWaits: it may use two seconds ahead, and each push here is one.
func TestAnEnvoyThatUsesUpItsAllowanceWaits(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	s := NewServer(Options{Seed: 1, Now: func() time.Time { return now }})
	defer s.Close()
	s.subscribeFor(t, "llama", "qwen")
	key := streamKey{delta: true} // of the first stream
	waits := func() time.Duration { return s.tracker.streams[key].pace.Wait(now).Round(10 * time.Millisecond) }
	for i, want := range []time.Duration{0, 0, time.Second, 2 * time.Second} {
		s.Publish("llama", push.Verdict{Decision: decisionOf(0, false), ProxyTime: time.Second})
		s.tracker.sent(key, "nonce", s.clusters["llama"].version(), []part{{cluster: "llama"}})
		if got := waits(); got != want {
			t.Errorf("after push %d it waits %v, want %v", i, got, want)
		}
	}
	if now = now.Add(2 * time.Second); waits() != 0 {
		t.Errorf("two seconds later it waits %v", waits())
	}
}

func TestAckDelayIsThatOfTheSlowerOfTheWeightedNames(t *testing.T) {
	for _, c := range []struct{ plain, failsafe, fallback, want time.Duration }{
		{0, 0, 0, 0},
		{2 * time.Second, 0, 0, 2 * time.Second},
		{0, 3 * time.Second, 0, 3 * time.Second}, // an Envoy with a fallback subscribes to no other name
		{2 * time.Second, 3 * time.Second, 0, 3 * time.Second},
		{3 * time.Second, 2 * time.Second, 0, 3 * time.Second},
		{time.Second, 0, time.Hour, time.Second}, // no weights in it
	} {
		s := newVariants(t, Options{Seed: 1})
		s.Push("llama", decisionOf(0, false), 0)
		s.tracker.clusters["llama"].acked(c.plain, 1)
		s.tracker.clusters["llama/failsafe"].acked(c.failsafe, 1)
		s.tracker.clusters["llama/fallback"].acked(c.fallback, 1)
		if got := s.AckDelay("llama"); got != c.want {
			t.Errorf("%+v: delay %v", c, got)
		}
	}
}

func TestAnErrorOfAnyVariantIsReturned(t *testing.T) {
	s := newVariants(t, Options{Seed: 1})
	d := decisionOf(0, false)
	d.Endpoints[0].Address = "no address"
	if version, err := s.Push("llama", d, 0); err == nil || version != "" {
		t.Errorf("version %q, error %v; want an error", version, err)
	}
}

func TestRemovingAClusterRemovesAllItsNames(t *testing.T) {
	s := newVariants(t, Options{Seed: 1})
	s.Push("llama", decisionOf(0, false), 0)
	s.Remove("llama")
	if len(s.clusters) != 0 || s.Weights("llama") != nil {
		t.Errorf("%d names are left", len(s.clusters))
	}
}

func TestWeightsAreThoseLastPushed(t *testing.T) {
	s := NewServer(Options{Seed: 1})
	defer s.Close()
	if w := s.Weights("llama"); w != nil {
		t.Errorf("weights %v before the first push, want none", w)
	}
	d := decisionOf(0, false)
	d.Endpoints = append(d.Endpoints, weighting.EndpointDecision{Address: "[fd00::1]:80", Share: 0.5})
	s.Push("llama", d, 0)
	got := s.Weights("llama")
	if len(got) != 3 {
		t.Fatalf("weights %v, want three", got)
	}
	for _, e := range d.Endpoints {
		if want := e.Share / 0.9 * maxWeightPushed; float64(got[e.Address]) < 0.9*want ||
			float64(got[e.Address]) > 1.1*want {
			t.Errorf("%s weighs %d, want about %.0f", e.Address, got[e.Address], want)
		}
	}
}

// maxWeightPushed is approximately the weight of the largest share.
const maxWeightPushed = 9_800_000

// built returns the names that were pushed.
func (s *Server) built() []string {
	var names []string
	for name, c := range s.clusters {
		if c.last != nil {
			names = append(names, strings.TrimPrefix(name, "llama"))
		}
	}
	slices.Sort(names)
	return names
}

func TestANameWithoutSubscribersIsNotBuilt(t *testing.T) {
	for name, c := range map[string]struct{ subscribed, built []string }{
		"none":               {nil, []string{""}}, // so that there are weights to show
		"sheds":              {[]string{""}, []string{""}},
		"can fall back":      {[]string{"/failsafe", "/fallback"}, []string{"/failsafe", "/fallback"}},
		"falls back to DNS":  {[]string{"/failsafe"}, []string{"/failsafe"}},
		"both":               {[]string{"", "/failsafe", "/fallback"}, []string{"", "/failsafe", "/fallback"}},
		"fallback by itself": {[]string{"/fallback"}, []string{"", "/fallback"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewServer(Options{Seed: 1})
			defer s.Close()
			for _, suffix := range c.subscribed {
				s.subscribeFor(t, "llama"+suffix)
			}
			version, err := s.Push("llama", decisionOf(0.5, true), 0)
			if got := s.built(); !slices.Equal(got, c.built) {
				t.Errorf("built %q, want %q", got, c.built)
			}
			if err != nil || version == "" || len(s.Weights("llama")) != 2 {
				t.Errorf("version %q, error %v, weights %v", version, err, s.Weights("llama"))
			}
		})
	}
}

func TestALateSubscriberGetsTheNewestDecision(t *testing.T) {
	s := NewServer(Options{Seed: 1})
	defer s.Close()
	s.Push("llama", decisionOf(0, false), 0)
	s.Push("llama", decisionOf(0.5, true), time.Minute)
	s.subscribeFor(t, "llama/failsafe", "llama/fallback")
	endpoints := s.messageOf(t, "llama/failsafe").GetEndpoints()[0].GetLbEndpoints()
	if endpoints[1].GetHealthStatus() != corev3.HealthStatus_DEGRADED ||
		s.messageOf(t, "llama/failsafe").GetPolicy().GetEndpointStaleAfter().AsDuration() != time.Minute {
		t.Errorf("failsafe %v", s.messageOf(t, "llama/failsafe"))
	}
	if n := len(s.messageOf(t, "llama/fallback").GetEndpoints()[0].GetLbEndpoints()); n != 2 {
		t.Errorf("%d members", n)
	}
	// The name that was not built meanwhile gets the newest decision too.
	s.Push("llama", decisionOf(0.25, false), 0)
	before := s.clusters["llama"].version()
	s.subscribeFor(t, "llama")
	if s.clusters["llama"].version() == before ||
		s.messageOf(t, "llama").GetPolicy().GetDropOverloads()[0].GetDropPercentage().GetNumerator() != 250_000 {
		t.Errorf("plain %v", s.messageOf(t, "llama").GetPolicy())
	}
	// Another subscriber of a name that is built changes nothing.
	version := s.clusters["llama"].version()
	s.subscribeFor(t, "llama")
	if got := s.clusters["llama"].version(); got != version {
		t.Errorf("version %s after a second subscriber, want still %s", got, version)
	}
	s.Remove("llama")
	s.subscribeFor(t, "llama/other", "llama")
	if len(s.built()) != 0 {
		t.Errorf("%q are built of a cluster that was removed", s.built())
	}
}

func TestWeightsAreThoseOfTheNameThatIsBuilt(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	s := NewServer(Options{Seed: 1, Now: func() time.Time { return now }})
	defer s.Close()
	s.Push("llama", decisionOf(0, false), 0)
	s.subscribeFor(t, "llama/failsafe")
	now = now.Add(time.Second)
	turned := decisionOf(0, false)
	turned.Endpoints[0].Share, turned.Endpoints[1].Share = turned.Endpoints[1].Share, turned.Endpoints[0].Share
	if version, err := s.Push("llama", turned, 0); err != nil || version != s.clusters["llama/failsafe"].version() {
		t.Errorf("version %q, error %v; want that of the name with a subscriber", version, err)
	}
	if w := s.Weights("llama"); w["10.0.0.1:80"] > w["10.0.0.2:80"] {
		t.Errorf("weights %v are not the newest", w)
	}
}

func TestBaseNameIsTheClusterOfAName(t *testing.T) {
	for name, want := range map[string]string{
		"llama": "llama", "llama/failsafe": "llama", "llama/fallback": "llama", "": "", "/failsafe": "", "a/b": "a/b",
	} {
		if got := BaseName(name); got != want {
			t.Errorf("BaseName(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestMembersHaveNoWeightsAndFlagsOnlyOfFailures: a policy that hashes would move conversations with each other weight,
// and takes nothing to a flagged endpoint.
func TestMembersHaveNoWeightsAndFlagsOnlyOfFailures(t *testing.T) {
	s := newVariants(t, Options{Seed: 1})
	health := func() (out []corev3.HealthStatus) {
		for _, e := range s.messageOf(t, "llama/members").GetEndpoints()[0].GetLbEndpoints() {
			if w := e.GetLoadBalancingWeight(); w != nil {
				t.Errorf("a weight of %d", w.GetValue())
			}
			out = append(out, e.GetHealthStatus())
		}
		return out
	}
	want := func(what string, want ...corev3.HealthStatus) {
		t.Helper()
		if got := health(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	const fine, flagged, draining = corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_DEGRADED,
		corev3.HealthStatus_DRAINING
	d := decisionOf(0.5, true)
	s.Push("llama", d, time.Second)
	want("overloaded", fine, fine)
	first := s.messageOf(t, "llama/members")
	if first.GetPolicy().GetEndpointStaleAfter() != nil || len(first.GetPolicy().GetDropOverloads()) > 0 {
		t.Errorf("policy %v", first.GetPolicy())
	}
	d.Endpoints = slices.Clone(d.Endpoints)
	d.Endpoints[0].Failing = true
	s.Push("llama", d, time.Second)
	want("one fails", flagged, fine)
	d.Endpoints = slices.Clone(d.Endpoints)
	d.Endpoints[1].Failing = true
	s.Push("llama", d, time.Second)
	want("all fail", fine, fine)
	d.Endpoints = slices.Clone(d.Endpoints)
	d.Endpoints[1].Failing, d.Endpoints[1].Override.Drained = false, true
	s.Push("llama", d, time.Second)
	want("one fails, the other is drained", flagged, draining)
	d.Endpoints = slices.Clone(d.Endpoints)
	d.Endpoints[1].Override.Drained = false
	d.Endpoints[0].Failing, d.Endpoints[0].Reason, d.Endpoints[1].Reason = false, weighting.ReasonAsleep,
		weighting.ReasonAsleep
	s.Push("llama", d, time.Second)
	want("all sleep", flagged, flagged)
	if got := BaseName("llama/members"); got != "llama" {
		t.Errorf("the cluster of its name is %q", got)
	}
}
