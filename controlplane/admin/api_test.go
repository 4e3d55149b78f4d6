package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"steelyard/internal/api"
)

// TestAnswersHaveWhatClientsRelyOn: moments are RFC 3339, durations seconds, a list is never null, and what is unknown
// is null and not zero. That each answer has all its keys, each of its type, is checked by the OpenAPI document.
func TestAnswersHaveWhatClientsRelyOn(t *testing.T) {
	h := handlerOf(typical(noon))
	for route, want := range map[string]map[string]any{
		"/api/v1/status": {"version": "1.2.3", "config_generation": 4.0, "last_reload.ok": true, "draining": false,
			"last_reload.at": "2026-03-14T11:20:00.25Z", "signals.entries.received": 183204.0,
			"xds_port.connections.limit": 765.0, "xds_port.connections.last_refused": nil},
		"/api/v1/clusters": {"clusters.0.name": "llama", "clusters.0.ready": true, "clusters.0.pushes": 1842.0,
			"clusters.0.decision.age_seconds": 0.03, "clusters.1.name": "mixtral", "clusters.1.ready": false},
		"/api/v1/clusters/llama": {"state": "error", "endpoint_counts.total": 8.0, "last_push.version": "a81f-1842",
			"sources.0.state": "ok", "sources.1.state": "down", "sources.1.envoys.expected": nil,
			"sources.1.last_error": "reading inflight:llama: dial tcp 127.0.0.1:6379: connection refused",
			"queue.classes.1.name": "batch", "queue.classes.1.waiting": 41.0, "first_token_p99_seconds": 3.0,
			"first_token_p99_high_seconds": nil, "served.hashed_1m": nil, "problems.0.severity": "error"},
		"/api/v1/clusters/llama/explain?endpoint=10.0.0.2:8000": {"endpoint.weight": 12000.0, "endpoint.share": 0.012,
			"endpoint.reason": "floor", "endpoint.overloaded": true, "endpoint.override": nil,
			"endpoint.inputs.0.field": "queue", "endpoint.inputs.0.age_seconds": 0.17, "decision.unit": "work"},
		"/api/v1/clusters/llama/history?window=10s&points=5&endpoint=10.0.0.2:8000": {"step_seconds": 3.0,
			"at.0": "2026-03-14T11:59:54.25Z", "fields": []any{"shares"}, "pool.arrival_rate.0": 40.0,
			"endpoints.0.address": "10.0.0.2:8000", "endpoints.0.shares.0": 0.01247, "endpoints.0.served": []any{}},
		"/api/v1/clusters/llama/shadow": {"cluster": "llama", "requests": 90.0, "arrivals.1": 50.0,
			"endpoints.1.requests": 30.0, "endpoints.1.address": "10.0.0.2:8000", "envoys.0.node_id": "edge-1"},
		"/api/v1/clusters/mixtral/matrix": {"endpoints.1": "10.0.1.2:8000", "envoys.0.node_id": "edge-1",
			"envoys.0.in_flight.1": 1.0, "total": 1.0},
		"/api/v1/clients": {"total": 3.0, "clients.0.state": "follows", "clients.0.problems": []any{},
			"clients.0.subscriptions.0.nack.at": nil, "clients.1.subscriptions.0.version_acked": "a81f-1790",
			"clients.1.subscriptions.0.nack.current": true, "clients.1.signals.mode": "reports"},
		"/api/v1/incidents": {"state": "error", "clusters.1.state": "error", "incidents.0.kind": "envoy_refuses",
			"incidents.0.subject.name": "edge-2", "incidents.0.since": "2026-03-14T12:00:00.18Z"},
		"/api/v1/events": {"events.0.kind": "source_lost", "latest_id": 2.0},
		"/api/v1/clusters/lama": {
			"error": `no cluster "lama" is configured: did you mean llama?; there are: llama, mixtral`},
	} {
		a := ask(t, h, http.MethodGet, route)
		if got := a.header.Get("Content-Type"); got != "application/json" {
			t.Errorf("%s: content type %q", route, got)
		}
		var answer any
		if err := json.Unmarshal([]byte(a.body), &answer); err != nil {
			t.Fatalf("%s: no JSON: %v\n%s", route, err, a.body)
		}
		for path, value := range want {
			if got, err := within(answer, path); err != nil || !cmp.Equal(got, value) {
				t.Errorf("%s: %s is %v (%v), want %v", route, path, got, err, value)
			}
		}
	}
}

// within returns what is at a path of keys and positions.
func within(v any, path string) (any, error) {
	for _, step := range strings.Split(path, ".") {
		i, err := strconv.Atoi(step)
		list, isList := v.([]any)
		object, _ := v.(map[string]any)
		next, found := object[step]
		switch {
		case isList && err == nil && i < len(list):
			next = list[i]
		case !found:
			return nil, fmt.Errorf("there is no %s", step)
		}
		v = next
	}
	return v, nil
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
