package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"steelyard/e2e/rig/golden"
	"steelyard/internal/api"
)

// goldenRoutes are those whose answers are kept, byte for byte.
var goldenRoutes = map[string]string{
	"status":   "/api/v1/status",
	"clusters": "/api/v1/clusters",
	"cluster":  "/api/v1/clusters/llama",
	"history":  "/api/v1/clusters/llama/history?window=10s&points=5&endpoint=10.0.0.2:8000&endpoint=10.0.0.7:8000",
	"clients":  "/api/v1/clients",
	"error":    "/api/v1/clusters/lama",

	"incidents": "/api/v1/incidents", "events": "/api/v1/events", "matrix": "/api/v1/clusters/mixtral/matrix",
	"explain": "/api/v1/clusters/llama/explain?endpoint=10.0.0.2:8000",
	"past": "/api/v1/clusters/llama/history?window=3s&points=3&fields=shares,served,loads,in_flight,latency,states&" +
		"endpoint=10.0.0.7:8000",
}

func TestAnswersAreAsRecorded(t *testing.T) {
	h := handlerOf(typical(noon))
	for name, route := range goldenRoutes {
		t.Run(name, func(t *testing.T) {
			a := ask(t, h, http.MethodGet, route)
			if got := a.header.Get("Content-Type"); got != "application/json" {
				t.Errorf("content type %q", got)
			}
			var got bytes.Buffer
			if err := json.Indent(&got, []byte(a.body), "", "  "); err != nil {
				t.Fatalf("no JSON: %v\n%s", err, a.body)
			}
			golden.Check(t, filepath.Join("testdata", name+".json"), got.String())
		})
	}
}

func TestNoListIsNull(t *testing.T) {
	bare := fixed{
		clusters: []api.Cluster{{Name: "bare", Endpoints: []api.Endpoint{{Address: "a"}},
			Sources: []api.SourceStatus{{Name: "scrape"}}}, {Name: "empty"}},
		clients: []api.Client{{Connection: api.Connection{Node: api.Node{NodeID: "n"}}}},
	}
	h := handlerOf(bare)
	for _, route := range []string{"/api/v1/status", "/api/v1/clusters", "/api/v1/clusters/bare",
		"/api/v1/clusters/empty", "/api/v1/clients", "/api/v1/clusters/empty/history"} {
		body := ask(t, h, http.MethodGet, route).body
		for _, key := range []string{"problems", "sources", "endpoints", "inputs", "subscriptions", "clients",
			"missing", "envoys", "at"} {
			if key == "at" && !strings.HasSuffix(route, "history") {
				continue // elsewhere a moment
			}
			if strings.Contains(body, fmt.Sprintf("%q:null", key)) {
				t.Errorf("%s: %s is null: %s", route, key, body)
			}
		}
	}
}

func TestEndpointsComeByAddressOrWorstFirstAndUpToALimit(t *testing.T) {
	h := handlerOf(typical(noon))
	for query, want := range map[string][]string{
		"?limit=2":            {"10.0.0.1:8000", "10.0.0.2:8000"},
		"?sort=name&limit=1":  {"10.0.0.1:8000"},
		"?sort=worst&limit=2": {"10.0.0.3:8000", "10.0.0.2:8000"},
	} {
		c := decode[api.Cluster](t, ask(t, h, http.MethodGet, "/api/v1/clusters/llama"+query))
		var got []string
		for _, e := range c.Endpoints {
			got = append(got, e.Address)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
		if c.Counts.Total != 8 {
			t.Errorf("%s: the limit changed the total to %d", query, c.Counts.Total)
		}
	}
	if c := decode[api.Cluster](t, ask(t, h, http.MethodGet,
		"/api/v1/clusters/llama?limit=0")); len(c.Endpoints) != 8 {
		t.Errorf("limit=0 gives %d endpoints, want all", len(c.Endpoints))
	}
}

func TestClientsComeWorstFirstAndUpToALimit(t *testing.T) {
	list := decode[api.ClientList](t, ask(t, handlerOf(typical(noon)), http.MethodGet,
		"/api/v1/clients?sort=worst&limit=2"))
	if list.Total != 3 || len(list.Clients) != 2 || list.Clients[0].NodeID != "edge-2" ||
		list.Clients[1].NodeID != "edge-3" {
		t.Fatalf("got %+v", list)
	}
}

func TestCounts(t *testing.T) {
	c := decode[api.Cluster](t, ask(t, handlerOf(typical(noon)), http.MethodGet, "/api/v1/clusters/llama"))
	if want := (api.EndpointCounts{Total: 8, Overloaded: 1, Stale: 2, New: 2, Failing: 1}); c.Counts != want {
		t.Fatalf("got %+v, want %+v", c.Counts, want)
	}
}
