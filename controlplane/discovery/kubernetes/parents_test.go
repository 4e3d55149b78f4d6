package kubernetes

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"
)

const ourName = "steelyard.dev/steelyard/steelyard-xds"

func gatewayNamed(name string) ParentRef { return ParentRef{GatewayKind, "models", name} }

func TestParentsOfOthersStayAsTheyAre(t *testing.T) {
	others := []any{
		"of a shape that nobody knows",
		map[string]any{"parentRef": map[string]any{"name": "gw"}}, // a controller may leave its name out
		map[string]any{"controllerName": "steelyard.dev/another", "parentRef": map[string]any{"name": "eg"}},
	}
	p := &FoundPool{Namespace: "models", Name: "llama", parents: slices.Clone(others)}
	if got := p.Parents(ourName); len(got) != 0 {
		t.Errorf("ours are %+v", got)
	}
	now := time.Now()
	p.parents = p.withParents(ourName, []Parent{{gatewayNamed("eg"), ""}, {gatewayNamed("old"), "a reason"}}, now)
	if want := []Parent{{gatewayNamed("eg"), ""}, {gatewayNamed("old"), "a reason"}}; !reflect.DeepEqual(
		p.Parents(ourName), want) {
		t.Errorf("ours are %+v, want %+v", p.Parents(ourName), want)
	}
	if p.parents = p.withParents(ourName, nil, now); !reflect.DeepEqual(p.parents, others) {
		t.Errorf("without ours, they are %v", p.parents)
	}
}

func TestAConditionKeepsItsTimeWhileItSaysTheSame(t *testing.T) {
	p := &FoundPool{Namespace: "models", Name: "llama", generation: 1}
	times := func(refused string, now time.Time) string {
		p.parents = p.withParents(ourName, []Parent{{gatewayNamed("eg"), refused}}, now)
		var all []string
		for _, c := range read(p.parents[0]).Conditions {
			all = append(all, fmt.Sprintf("%s=%s since %d, generation %d", c.Type, c.Status,
				c.LastTransitionTime.Unix(), c.ObservedGeneration))
		}
		return fmt.Sprint(all)
	}
	for _, c := range []struct {
		refused string
		at      int64
		want    string
	}{
		{"", 100, "[Accepted=True since 100, generation 1 ResolvedRefs=True since 100, generation 1]"},
		{"", 200, "[Accepted=True since 100, generation 2 ResolvedRefs=True since 100, generation 2]"},
		{"why", 300, "[Accepted=False since 300, generation 3 ResolvedRefs=True since 100, generation 3]"},
		{"another why", 400, "[Accepted=False since 300, generation 4 ResolvedRefs=True since 100, generation 4]"},
	} {
		if got := times(c.refused, time.Unix(c.at, 0)); got != c.want {
			t.Errorf("at %d: %s, want %s", c.at, got, c.want)
		}
		p.generation++
	}
}

// asking is a client of an API server.
func asking(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Appendf(nil, "current-context: a\ncontexts: [{name: a, context: {cluster: a}}]\n"+
		"clusters: [{name: a, cluster: {server: %q}}]\n", server.URL)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{Kubeconfig: path, Log: slog.New(slog.DiscardHandler), Requested: func(_, _, _ string) {}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAGatewayIsGoneByTheAPIsOwnWordOnly(t *testing.T) {
	const gateway = `{"kind": "Gateway", "apiVersion": "gateway.networking.k8s.io/v1", "status": %s}`
	const failure = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": %q, "code": %d, ` +
		`"details": %s}`
	for name, c := range map[string]struct {
		code     int
		body     string
		attached bool
		fails    bool
	}{
		"it has routes": {200, fmt.Sprintf(gateway, `{"listeners": [{"attachedRoutes": 0}, {"attachedRoutes": 1}]}`),
			true, false},
		"it has none":         {200, fmt.Sprintf(gateway, `{"listeners": [{"attachedRoutes": 0}]}`), false, false},
		"it was just made":    {200, fmt.Sprintf(gateway, `{}`), true, false},
		"it has ListenerSets": {200, fmt.Sprintf(gateway, `{"attachedListenerSets": 1, "listeners": []}`), true, false},
		"it is gone":          {404, fmt.Sprintf(failure, "NotFound", 404, `{"name": "eg"}`), false, false},
		"there is no such kind, for example while the API server starts": {404,
			fmt.Sprintf(failure, "NotFound", 404, `{}`), false, true},
		"forbidden":       {403, fmt.Sprintf(failure, "Forbidden", 403, `{"name": "eg"}`), false, true},
		"a proxy answers": {404, "404 page not found", false, true},
	} {
		client := asking(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(c.code)
			_, _ = w.Write([]byte(c.body))
		})
		attached, err := client.Attached(t.Context(), "models", "eg")
		if attached != c.attached || (err != nil) != c.fails {
			t.Errorf("%s: %v, %v", name, attached, err)
		}
	}
}
