package xds

import (
	"bytes"
	"log/slog"

	"steelyard/internal/api"

	mathrand "math/rand/v2"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"steelyard/weighting"
)

func TestClusterNameIsReadFromTheWire(t *testing.T) {
	marshal := func(m proto.Message) []byte {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	full := marshal(&endpointv3.ClusterLoadAssignment{ClusterName: "llama",
		Endpoints: []*endpointv3.LocalityLbEndpoints{{Priority: 1}}})
	policy := &endpointv3.ClusterLoadAssignment_Policy{WeightedPriorityHealth: true}
	policyFirst := marshal(&endpointv3.ClusterLoadAssignment{Policy: policy})
	for _, c := range []struct {
		name    string
		message []byte
		want    string
	}{
		{"as marshalled", full, "llama"},
		{"name at the end", append(policyFirst, marshal(&endpointv3.ClusterLoadAssignment{ClusterName: "llama"})...),
			"llama"},
		{"no name", policyFirst, ""},
		{"empty", nil, ""},
		{"cut in the name", full[:4], ""},
		{"no protobuf", []byte{0xff, 0xff, 0xff}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := clusterName(c.message); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestVersionOfAClusterWithinAnUpdate(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	p := &publication{}
	for _, seq := range []uint64{3, 5, 9} {
		p.pushes[p.count%recentPushes] = publishedAt{seq, at(int64(seq))}
		p.count++
	}
	full := &publication{}
	for seq := uint64(1); seq <= 3*recentPushes; seq++ {
		full.pushes[full.count%recentPushes] = publishedAt{seq, at(int64(seq))}
		full.count++
	}
	for _, c := range []struct {
		name    string
		p       *publication
		seq     uint64
		version string
		when    time.Time
	}{
		{"the push itself", p, 5, "p.5", at(5)},
		{"between two pushes", p, 8, "p.5", at(5)},
		{"after the last", p, 100, "p.9", at(9)},
		{"before the first", p, 2, "p.2", time.Time{}},
		{"no longer served", nil, 7, "p.7", time.Time{}},
		{"the oldest remembered", full, 2*recentPushes + 1, "p.65", at(65)},
		{"forgotten", full, 2 * recentPushes, "p.64", time.Time{}},
		{"the newest", full, 3 * recentPushes, "p.96", at(96)},
	} {
		t.Run(c.name, func(t *testing.T) {
			version, when := c.p.versionAt("p.", c.seq)
			if version != c.version || !when.Equal(c.when) {
				t.Errorf("%q at %v, want %q at %v", version, when, c.version, c.when)
			}
		})
	}
}

func TestLibraryLinesAreDebug(t *testing.T) {
	for _, c := range []struct {
		level slog.Level
		want  []string
	}{
		{slog.LevelInfo, []string{"level=WARN msg=w1", "level=ERROR msg=e1"}},
		{slog.LevelDebug, []string{"level=DEBUG msg=d1", "level=DEBUG msg=i1", "level=WARN msg=w1",
			"level=ERROR msg=e1"}},
	} {
		var out bytes.Buffer
		log := quietLog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: c.level})))
		log.Debugf("d%d", 1)
		log.Infof("i%d", 1)
		log.Warnf("w%d", 1)
		log.Errorf("e%d", 1)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != len(c.want) {
			t.Fatalf("at %v: %q, want %d lines", c.level, lines, len(c.want))
		}
		for i, want := range c.want {
			if !strings.Contains(lines[i], want) {
				t.Errorf("at %v: %q, want %q in it", c.level, lines[i], want)
			}
		}
	}
}

func TestIdentityIsTakenAndTheNodeEmptied(t *testing.T) {
	n := &corev3.Node{
		Id: "envoy-1", Cluster: "edge", UserAgentName: "envoy",
		UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: "1.40.0-dev"},
		Locality:             &corev3.Locality{Zone: "z"},
		Extensions:           []*corev3.Extension{{Name: "x"}},
	}
	want := api.Node{NodeID: "envoy-1", NodeCluster: "edge", Version: "1.40.0-dev", Locality: "/z"}
	if got := takeNode(n); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if !proto.Equal(n, &corev3.Node{Id: "envoy-1"}) {
		t.Errorf("what is kept is %v, want only the id", n)
	}
	if got := takeNode(nil); got != (api.Node{}) {
		t.Errorf("no node gives %+v", got)
	}
}

// unlucky is a random source that always draws the same.
type unlucky struct{}

func (unlucky) Uint64() uint64 { return 1 << 62 }

func TestEveryPushMovesAWeightWhateverTheDitherDraws(t *testing.T) {
	s := NewServer(Options{Log: slog.New(slog.DiscardHandler)})
	s.dither = mathrand.New(unlucky{})
	d := weighting.Decision{Endpoints: []weighting.EndpointDecision{{Address: "10.0.0.1:80", Share: 1}}}
	weight := func() uint32 {
		endpoints := s.clusters["llama"].last.message.GetEndpoints()[0].GetLbEndpoints()
		return endpoints[0].GetLoadBalancingWeight().GetValue()
	}
	s.Push("llama", d, 0)
	for _, drop := range []float64{0.1, 0.2, 0} {
		before := weight()
		d.DropFraction = drop
		if _, err := s.Push("llama", d, 0); err != nil {
			t.Fatal(err)
		}
		if weight() == before {
			t.Errorf("the drop changed to %v and the weight stayed %d: Envoy would ignore it", drop, before)
		}
	}
}

// The message is Envoy 1.40's.
func TestReasonOfARefusalIsNotHiddenByWhatIsRefused(t *testing.T) {
	why := "Proto constraint validation failed (ClusterLoadAssignmentValidationError.Endpoints[0]: embedded message " +
		"failed validation | caused by LbEndpointValidationError.LoadBalancingWeight: value must be greater than or " +
		"equal to 1)"
	endpoint := "  lb_endpoints {\n    endpoint {\n      address {\n        socket_address {\n" +
		"          address: \"127.0.0.1\"\n          port_value: 28001\n        }\n      }\n    }\n" +
		"    load_balancing_weight {\n      value: 5046257\n    }\n  }\n"
	dump := "goo.gle/debugstr   \ncluster_name: \"llama\"\nendpoints {\n" + strings.Repeat(endpoint, 20) + "}\n"
	for _, c := range []struct{ name, message, want string }{
		{"after a dump", dump + ": " + why, why},
		{"alone", why, why},
		{"a dump alone", dump, dump[:maxMessage]},
		{"none", "", ""},
	} {
		if got := refusal(c.message); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
