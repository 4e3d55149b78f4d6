package gateway

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"steelyard/internal/extension"
)

// fails has a question about the rule of llama fail.
func (f fake) fails(t *testing.T, s *Server) {
	t.Helper()
	before := f[ruleOfLlama]
	delete(f, ruleOfLlama)
	defer func() { f[ruleOfLlama] = before }()
	if _, err := s.PostClusterModify(t.Context(), &extension.PostClusterModifyRequest{
		Cluster: ofEnvoyGateway(ruleOfLlama), PostClusterContext: &extension.PostClusterExtensionContext{
			BackendExtensionResources: []*extension.ExtensionResource{resource("models", "llama", "")}}}); err == nil {
		t.Fatal("the API answers")
	}
}

// other is a translation of another Gateway.
func other(t *testing.T) *extension.PostTranslateModifyRequest {
	in := request(t, nil)
	in.Listeners[0].Name, in.Routes[0].Name = "models/two/http", "models/two/http"
	of(t, in.Routes[0].VirtualHosts[0], "models/two")
	return in
}

// Envoy Gateway 1.9 leaves a cluster out whose question failed, and goes on to PostTranslateModify.
func TestAnErrorStaysUntilItsClusterIsAnsweredOrGone(t *testing.T) {
	route := []*routev3.Route{single(ruleOfLlama)}
	for name, ends := range map[string]func(f fake, s *Server){
		"it is answered": func(_ fake, s *Server) {
			translated(t, s, request(t, route, asked(t, s, ruleOfLlama, resource("models", "llama", ""))))
		},
		"the route is gone": func(_ fake, s *Server) { translated(t, s, request(t, nil)) },
		"the route moved back to a Service": func(_ fake, s *Server) {
			translated(t, s, request(t, route, ofEnvoyGateway(ruleOfLlama)))
		},
		"the Gateway is gone": func(_ fake, s *Server) { s.Forget("models/eg") },
	} {
		f := fake{ruleOfLlama: {ofPool("llama", 1)}}
		s := f.server()
		translated(t, s, request(t, []*routev3.Route{single(ruleOfLlama)},
			asked(t, s, ruleOfLlama, resource("models", "llama", ""))))
		reported := s.named()
		f.fails(t, s)
		translated(t, s, request(t, []*routev3.Route{single(ruleOfLlama)})) // without the cluster
		translated(t, s, other(t))
		if state := s.State(); !strings.Contains(state.LastError, "the API does not answer") {
			t.Errorf("%s: before, the state is %+v", name, state)
		}
		if pools := s.State().Pools; len(pools) != 1 || !slices.Equal(*reported, []string{"models/two:"}) {
			t.Errorf("%s: before, the pools are %v, and %q are reported", name, pools, *reported)
		}
		ends(f, s)
		if got := s.State().LastError; got != "" {
			t.Errorf("%s: the error is still %q", name, got)
		}
	}
}

func TestAnErrorAboutAClusterOfNoMessageEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake{}
		s := f.server()
		f.fails(t, s)
		translated(t, s, other(t))
		if s.State().LastError == "" {
			t.Error("the message of another Gateway ends it")
		}
		time.Sleep(unseenFor + time.Second)
		translated(t, s, other(t))
		if got := s.State().LastError; got != "" {
			t.Errorf("the error is still %q", got)
		}
	})
}
