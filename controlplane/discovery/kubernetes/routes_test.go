package kubernetes

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const aRoute = `{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
	"metadata": {"namespace": "models", "name": "llama", "generation": 3}, "spec": {"rules": [{
		"filters": [{"type": "ExtensionRef", "extensionRef": {"group": "inference.networking.k8s.io",
			"kind": "InferencePool", "name": "filter"}}], "backendRefs": [
		{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "llama", "weight": 9,
			"filters": [{"type": "RequestHeaderModifier"}]},
		{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "next"},
		{"name": "llama", "port": 8000}]}]}}`

const policies = `{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicyList", "items": [
	{"metadata": {"name": "service"}, "spec": {"targetRefs": [{"group": "", "kind": "Service", "name": "llama"}]}},
	{"metadata": {"name": "pools"}, "spec": {"targetRefs": [
		{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "other"},
		{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "next"}]}}]}`

func TestABackendHasWhatItsGatewayMayNotPassOn(t *testing.T) {
	const pool = "inference.networking.k8s.io"
	plain := []BackendRef{
		{Group: pool, Kind: "InferencePool", Namespace: "models", Name: "filter", ByFilter: true},
		{Group: pool, Kind: "InferencePool", Namespace: "models", Name: "llama", Weight: 9, Filters: true},
		{Group: pool, Kind: "InferencePool", Namespace: "models", Name: "next", Weight: 1},
		{Kind: "Service", Namespace: "models", Name: "llama", Weight: 1}}
	for i := range plain {
		plain[i].Generation = 3
	}
	secured := slices.Clone(plain)
	secured[2].TLSPolicy = "pools"
	for name, c := range map[string]struct {
		code int
		body string
		want []BackendRef
		says string
	}{
		"a policy for a pool": {200, policies, secured, ""},
		"an API without policies": {404, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
			"reason": "NotFound"}`, plain, ""},
		"no right": {403, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
			"reason": "Forbidden"}`, nil, "may not list backendtlspolicies.gateway.networking.k8s.io"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if strings.Contains(r.URL.Path, "/namespaces/models/httproutes/llama") {
				_, _ = io.WriteString(w, aRoute)
				return
			}
			w.WriteHeader(c.code)
			_, _ = io.WriteString(w, c.body)
		}))
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
		text := fmt.Appendf(nil, "current-context: a\ncontexts: [{name: a, context: {cluster: a}}]\n"+
			"clusters: [{name: a, cluster: {server: %q}}]\n", server.URL)
		if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
			t.Fatal(err)
		}
		client, err := New(Options{Kubeconfig: kubeconfig, Requested: func(string, string, string) {},
			Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := client.Backends(t.Context(), "httproute", "models", "llama", 0)
		if !slices.Equal(got, c.want) || c.says == "" && err != nil ||
			c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %+v, %v; want %+v %s", name, got, err, c.want, c.says)
		}
		client.dialer.CloseAll()
		server.Close()
	}
}
