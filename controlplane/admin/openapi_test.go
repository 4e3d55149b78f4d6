package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// answers are requests, by the route of the OpenAPI document that describes their answer.
func answers() map[string][]string {
	return map[string][]string{
		"/api/v1/status": {"/api/v1/status"}, "/api/v1/session": {"/api/v1/session"},
		"/api/v1/clusters":        {"/api/v1/clusters"},
		"/api/v1/clusters/{name}": {"/api/v1/clusters/llama?sort=worst&limit=3", "/api/v1/clusters/mixtral"},
		"/api/v1/clusters/{name}/history": {"/api/v1/clusters/llama/history?window=1m&points=5&endpoint=10.0.0.2:8000",
			"/api/v1/clusters/llama/history?fields=shares,served,loads,in_flight,latency,states"},
		"/api/v1/clusters/{name}/matrix":  {"/api/v1/clusters/llama/matrix"},
		"/api/v1/clusters/{name}/explain": {"/api/v1/clusters/llama/explain?endpoint=10.0.0.1:8000"},
		"/api/v1/clients":                 {"/api/v1/clients?sort=worst&limit=1"},
		"/api/v1/incidents":               {"/api/v1/incidents?cluster=llama"},
		"/api/v1/events":                  {"/api/v1/events?since=0&cluster=llama&kind=nack&limit=5"},
		"/api/v1/overrides":               {"/api/v1/overrides"},
		"/api/v1/log-level":               {"/api/v1/log-level"},
		"/api/v1/stream":                  nil, // its frame is checked by itself
	}
}

// TestTheOpenAPIDocumentDescribesTheAnswers validates an answer of each route by the schema of that route, with a
// validator that is not ours, and checks that each key of each answer is described.
func TestTheOpenAPIDocumentDescribesTheAnswers(t *testing.T) {
	h := handlerOf(typical(noon))
	doc := decode[map[string]any](t, ask(t, h, http.MethodGet, "/api/v1/openapi.json"))
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("file:///openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	paths := doc["paths"].(map[string]any)
	for path := range paths {
		requests, ok := answers()[path]
		if !ok {
			t.Errorf("%s is described, and no answer of it is checked", path)
		}
		pointer := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(path)
		for _, request := range requests {
			schema, err := compiler.Compile("file:///openapi.json#/paths/" + pointer +
				"/get/responses/200/content/application~1json/schema")
			if err != nil {
				t.Fatal(err)
			}
			a := ask(t, h, http.MethodGet, request)
			if a.code != http.StatusOK {
				t.Fatalf("%s: %d %s", request, a.code, a.body)
			}
			body, err := jsonschema.UnmarshalJSON(strings.NewReader(a.body))
			if err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(body); err != nil {
				t.Errorf("%s: %v", request, err)
			}
		}
	}
	for path := range answers() {
		if paths[path] == nil {
			t.Errorf("%s is not described", path)
		}
	}
}

func TestTheOpenAPIDocumentRefusesAnAnswerOfAnotherKind(t *testing.T) {
	doc := decode[map[string]any](t, ask(t, handlerOf(typical(noon)), http.MethodGet, "/api/v1/openapi.json"))
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("file:///openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("file:///openapi.json#/components/schemas/Push")
	if err != nil {
		t.Fatal(err)
	}
	for body, good := range map[string]bool{
		`{"at":null,"version":"1","reason":"changed"}`: true,
		`{"at":null,"version":1,"reason":"changed"}`:   false,
		`{"at":null,"version":"1"}`:                    false,
	} {
		var v any
		if err := json.Unmarshal([]byte(body), &v); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); (err == nil) != good {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestEveryRouteOfTheDocumentIsInTheOpenAPIDocument(t *testing.T) {
	doc := document(t)
	for _, r := range apiRoutes() {
		if !strings.Contains(doc, fmt.Sprintf("| `%s` |", r.path)) {
			t.Errorf("docs/admin-api.md has no row for %s", r.path)
		}
	}
	for line := range strings.Lines(doc) {
		path, _, _ := strings.Cut(strings.TrimPrefix(line, "| `"), "`")
		if strings.HasPrefix(line, "| `/api/") && path != "/api/v1/openapi.json" && !strings.Contains(path, "POST") {
			if _, ok := answers()[path]; !ok {
				t.Errorf("%s is in docs/admin-api.md, and not in the OpenAPI document", path)
			}
		}
	}
}
