package admin

import (
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// An exchange is a request of which the answer is checked.
type exchange struct{ target, body string }

// answers are requests, by the method and route of the OpenAPI document that describes their answer. Those of a route
// are sent in turn.
func answers() map[string][]exchange {
	const override = "/api/v1/clusters/llama/overrides/10.0.0.2:8000"
	return map[string][]exchange{
		"get /api/v1/status": {{"/api/v1/status", ""}}, "get /api/v1/session": {{"/api/v1/session", ""}},
		"get /api/v1/clusters": {{"/api/v1/clusters", ""}},
		"get /api/v1/clusters/{name}": {{"/api/v1/clusters/llama?sort=worst&limit=3", ""},
			{"/api/v1/clusters/mixtral", ""}},
		"get /api/v1/clusters/{name}/history": {
			{"/api/v1/clusters/llama/history?window=1m&points=5&endpoint=10.0.0.2:8000", ""},
			{"/api/v1/clusters/llama/history?fields=shares,served,loads,in_flight,latency,states", ""}},
		"get /api/v1/clusters/{name}/matrix":  {{"/api/v1/clusters/llama/matrix", ""}},
		"get /api/v1/clusters/{name}/shadow":  {{"/api/v1/clusters/llama/shadow", ""}},
		"get /api/v1/clusters/{name}/explain": {{"/api/v1/clusters/llama/explain?endpoint=10.0.0.1:8000", ""}},
		"get /api/v1/clients":                 {{"/api/v1/clients?sort=worst&limit=1", ""}},
		"get /api/v1/incidents":               {{"/api/v1/incidents?cluster=llama", ""}},
		"get /api/v1/events":                  {{"/api/v1/events?since=0&cluster=llama&kind=nack&limit=5", ""}},
		"get /api/v1/overrides":               {{"/api/v1/overrides", ""}},
		"get /api/v1/log-level":               {{"/api/v1/log-level", ""}},
		"get /api/v1/stream":                  nil, // its frame is checked by itself
		"post /api/v1/log-level":              {{"/api/v1/log-level", `{"level":"debug"}`}},
		"post /api/v1/diff":                   {{"/api/v1/diff?name=new.yaml", "clusters: []"}},
		"put /api/v1/clusters/{name}/overrides/{address}": {{override, `{"kind":"drain"}`},
			{override, `{"kind":"pin","share":0.2,"for_seconds":60,"reason":"a test"}`}},
		"delete /api/v1/clusters/{name}/overrides/{address}": {{override, ""}},
	}
}

// operated is a handler for requests of someone who may operate.
func operated(t *testing.T) http.Handler {
	t.Helper()
	const token = "0123456789abcdef"
	tokens, err := ParseTokens([]byte("operate anna " + token + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	o := optionsOf(typical(noon))
	o.Access = NewAccess(AccessOptions{Loopback: true, TokensFile: "tokens"})
	o.Access.SetTokens(tokens, nil)
	h := New(o)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+token)
		h.ServeHTTP(w, r)
	})
}

// asked sends one request with a body.
func asked(h http.Handler, method, target, body string) answer {
	w, r := httptest.NewRecorder(), request(method, target)
	r.Body = io.NopCloser(strings.NewReader(body))
	h.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

// pointer is the JSON pointer of an operation of the document.
func pointer(method, path string) string {
	escaped := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(path)
	return "file:///openapi.json#/paths/" + escaped + "/" + method
}

// validate checks a body by the schema at a pointer.
func validate(t *testing.T, compiler *jsonschema.Compiler, at, body string) {
	t.Helper()
	schema, err := compiler.Compile(at)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	if err := schema.Validate(v); err != nil {
		t.Errorf("%s: %v", at, err)
	}
}

// TestTheOpenAPIDocumentDescribesTheAnswers validates an answer of each operation by its schema, and what it takes,
// with a validator that is not ours, and checks that each key of each answer is described.
func TestTheOpenAPIDocumentDescribesTheAnswers(t *testing.T) {
	h := operated(t)
	doc := decode[map[string]any](t, ask(t, h, http.MethodGet, "/api/v1/openapi.json"))
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("file:///openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for path, operations := range doc["paths"].(map[string]any) {
		for method := range operations.(map[string]any) {
			described[method+" "+path] = true
		}
	}
	for _, operation := range slices.SortedFunc(maps.Keys(described), func(a, b string) int {
		return cmp.Compare(b, a) // put before get and delete
	}) {
		exchanges, ok := answers()[operation]
		if !ok {
			t.Errorf("%s is described, and no answer of it is checked", operation)
		}
		method, path, _ := strings.Cut(operation, " ")
		for _, e := range exchanges {
			if strings.HasPrefix(e.body, "{") {
				validate(t, compiler, pointer(method, path)+"/requestBody/content/application~1json/schema", e.body)
			}
			a := asked(h, strings.ToUpper(method), e.target, e.body)
			if a.code != http.StatusOK {
				t.Fatalf("%s %s: %d %s", method, e.target, a.code, a.body)
			}
			validate(t, compiler, pointer(method, path)+"/responses/200/content/application~1json/schema", a.body)
		}
	}
	for operation := range answers() {
		if !described[operation] {
			t.Errorf("%s is not described", operation)
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
