package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"steelyard/internal/extension"
)

// another is an extension that marks all clusters, and adds one.
type another struct {
	extension.UnimplementedEnvoyGatewayExtensionServer
}

func (another) PostClusterModify(_ context.Context, in *extension.PostClusterModifyRequest) (
	*extension.PostClusterModifyResponse, error) {
	if in.Cluster.Metadata == nil {
		in.Cluster.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{}}
	}
	in.Cluster.Metadata.FilterMetadata["another"] = &structpb.Struct{}
	return &extension.PostClusterModifyResponse{Cluster: in.Cluster}, nil
}

func (another) PostTranslateModify(_ context.Context, in *extension.PostTranslateModifyRequest) (
	*extension.PostTranslateModifyResponse, error) {
	return &extension.PostTranslateModifyResponse{Clusters: append(in.Clusters, &clusterv3.Cluster{Name: "another"}),
		Listeners: in.Listeners, Routes: in.Routes}, nil
}

// A chain does what extensionManagers of Envoy Gateway 1.9.1 do: the answer of each extension, whatever it is, is the
// question to the next one.
type chain []extension.EnvoyGatewayExtensionServer

func (all chain) cluster(t *testing.T, name string, resources ...*extension.ExtensionResource) *clusterv3.Cluster {
	t.Helper()
	c := ofEnvoyGateway(name)
	for _, e := range all {
		out, err := e.PostClusterModify(t.Context(), &extension.PostClusterModifyRequest{Cluster: c,
			PostClusterContext: &extension.PostClusterExtensionContext{BackendExtensionResources: resources}})
		if err != nil {
			t.Fatal(err)
		}
		c = out.Cluster
	}
	return c
}

func (all chain) translated(t *testing.T, in *extension.PostTranslateModifyRequest,
) *extension.PostTranslateModifyRequest {
	t.Helper()
	for _, e := range all {
		out, err := e.PostTranslateModify(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		in = &extension.PostTranslateModifyRequest{Clusters: out.Clusters, Listeners: out.Listeners, Routes: out.Routes}
	}
	return in
}

func TestOtherExtensionsComeBeforeOrAfter(t *testing.T) {
	s := fake{ruleOfLlama: {ofPool("llama", 1)}, "httproute/models/picked/rule/0": {ofPool("picked", 1)}}.server()
	for name, all := range map[string]chain{"before": {another{}, s}, "after": {s, another{}}} {
		theirs := &extension.ExtensionResource{UnstructuredBytes: []byte(`{"kind": "Other", "apiVersion": "a.b/v1"}`)}
		clusters := []*clusterv3.Cluster{
			all.cluster(t, ruleOfLlama, resource("models", "llama", ""), theirs),
			all.cluster(t, "httproute/models/picked/rule/0", resource("models", "picked", `"endpointPickerRef": {}`)),
			all.cluster(t, "httproute/models/function/rule/0", theirs),
			all.cluster(t, "function"),
		}
		out := all.translated(t, request(t, []*routev3.Route{single(ruleOfLlama)}, clusters...))
		for _, c := range out.Clusters[:len(clusters)] {
			if c.GetMetadata().GetFilterMetadata()["another"] == nil || len(c.Metadata.FilterMetadata) != 1 {
				t.Errorf("%s: %s has %v", name, c.Name, c.Metadata)
			}
		}
		if got := sent(out.Routes[0].VirtualHosts[0].Routes[0]); got != "models.llama_failsafe" {
			t.Errorf("%s: the route goes to %s", name, got)
		}
		got := names(out.Clusters)
		if !strings.Contains(got, " another") || !strings.Contains(got, " models.llama_known") {
			t.Errorf("%s: the clusters are %s", name, got)
		}
	}
}

// Envoy Gateway 1.9.1 asks the next extension about no cluster, if one answers with none.
func TestAnExtensionThatAnswersWithoutTheClusterIsNamed(t *testing.T) {
	s := fake{ruleOfLlama: {ofPool("llama", 1)}}.server()
	_, err := s.PostClusterModify(t.Context(), &extension.PostClusterModifyRequest{
		PostClusterContext: &extension.PostClusterExtensionContext{
			BackendExtensionResources: []*extension.ExtensionResource{resource("models", "llama", "")}}})
	if err == nil || !strings.Contains(s.State().LastError, "an extension before Steelyard") {
		t.Errorf("%v: the state is %+v", err, s.State())
	}
	out, err := s.PostClusterModify(t.Context(), &extension.PostClusterModifyRequest{})
	if err != nil || out.Cluster != nil {
		t.Errorf("about others: %v, %v", out, err)
	}
}

// The second one sees what the first has noted.
func TestOfTwoInstallationsTheOneThatServesAPoolDoes(t *testing.T) {
	serves, other := fake{ruleOfLlama: {ofPool("llama", 1)}}.server(), fake{ruleOfLlama: {ofPool("llama", 1)}}.server()
	other.options.Cluster = func(string, string) (string, error) { return "", errors.New("not its namespace") }
	for name, all := range map[string]chain{"first": {serves, other}, "second": {other, serves}} {
		out := all.translated(t, request(t, []*routev3.Route{single(ruleOfLlama)},
			all.cluster(t, ruleOfLlama, resource("models", "llama", ""))))
		if got := sent(out.Routes[0].VirtualHosts[0].Routes[0]); got != "models.llama_failsafe" {
			t.Errorf("%s: the route goes to %s", name, got)
		}
	}
}
