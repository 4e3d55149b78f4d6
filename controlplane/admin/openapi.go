package admin

import (
	"cmp"
	"net/http"
	"reflect"
	"strings"

	"steelyard/internal/api"
)

// An apiRoute is a route of the JSON: what serves it, and what the OpenAPI document has of it.
type apiRoute struct {
	method, path, summary string // method is empty for GET
	serve                 http.HandlerFunc
	query                 []apiParameter
	answer                reflect.Type
	events                bool         // the answer is a stream of them
	body                  reflect.Type // nil: none
	// text is the type of a body that is not JSON, with which a route answers a question and changes nothing.
	text string
}

// An apiParameter is a parameter of a query.
type apiParameter struct {
	name, kind, meaning string
	repeated            bool
}

// reads is a route with the answer that f returns.
func reads[T any](path, summary string, f func(*http.Request) (T, error), query ...apiParameter) apiRoute {
	return apiRoute{path: path, summary: summary, serve: answering(f), answer: reflect.TypeFor[T](), query: query}
}

// changesBy is a route that changes something by a body.
func changesBy[B, T any](method, path, summary string, f func(*http.Request, B) (T, error)) apiRoute {
	return apiRoute{method: method, path: path, summary: summary, serve: answeringBody(f),
		answer: reflect.TypeFor[T](), body: reflect.TypeFor[B]()}
}

// apiRoutes are the routes that read.
func (h *handler) apiRoutes() []apiRoute {
	sorting := []apiParameter{{name: "sort", kind: "string", meaning: "name or worst"},
		{name: "limit", kind: "integer", meaning: "the first so many; 0 means all"}}
	cluster := apiParameter{name: "cluster", kind: "string", meaning: "name of a cluster"}
	return []apiRoute{
		reads("/api/v1/status", "State of the process", h.getStatus),
		reads("/api/v1/session", "Whose token the request has", h.getSession),
		reads("/api/v1/clusters", "Every cluster, without its endpoints", h.getClusters),
		reads("/api/v1/clusters/{name}", "One cluster with its endpoints", h.getCluster, sorting...),
		reads("/api/v1/clusters/{name}/history", "The past of a cluster", h.getHistory,
			apiParameter{name: "window", kind: "string", meaning: "how far back, such as 5m"},
			apiParameter{name: "points", kind: "integer", meaning: "at most so many moments; 0 means all"},
			apiParameter{name: "endpoint", kind: "string", meaning: "only these endpoints", repeated: true},
			apiParameter{name: "fields", kind: "string", meaning: "of endpoints: some of " +
				strings.Join(api.HistoryFields(), ",") + ", or none"}),
		reads("/api/v1/clusters/{name}/matrix", "Requests in flight by Envoy and endpoint", h.getMatrix),
		reads("/api/v1/clusters/{name}/shadow", "The busiest hour while nobody followed the weights", h.getShadow),
		reads("/api/v1/clusters/{name}/explain", "Why an endpoint has its share", h.getExplanation,
			apiParameter{name: "endpoint", kind: "string", meaning: "its address"},
			apiParameter{name: "at", kind: "string", meaning: "a past time, or how long ago"}),
		reads("/api/v1/clients", "Connected Envoys, and Envoys that left", h.getClients, sorting...),
		reads("/api/v1/incidents", "What is wrong", h.getIncidents, cluster),
		reads("/api/v1/events", "What changed in the last hour", h.getEvents,
			apiParameter{name: "since", kind: "integer", meaning: "only those after this id"}, cluster,
			apiParameter{name: "kind", kind: "string", meaning: "only these kinds", repeated: true},
			apiParameter{name: "limit", kind: "integer", meaning: "the latest so many; 0 means all"}),
		{path: "/api/v1/stream", summary: "A frame each second, as server-sent events", serve: h.getStream,
			answer: reflect.TypeFor[api.Frame](), events: true,
			query: []apiParameter{cluster, {name: "endpoint", kind: "string", meaning: "an endpoint of the cluster"},
				{name: "matrix", kind: "string", meaning: "1: with the matrix"},
				{name: "last_event_id", kind: "integer", meaning: "what was missed since this second comes first"}}},
	}
}

// operatorRoutes are those that need an Operator.
func (h *handler) operatorRoutes() []apiRoute {
	const override = "/api/v1/clusters/{name}/overrides/{address}"
	undo := reads(override, "Ends that", h.deleteOverride)
	undo.method = http.MethodDelete
	diff := reads("/api/v1/diff", "What another configuration would change", h.postDiff,
		apiParameter{name: "name", kind: "string", meaning: "of its file, in messages"})
	diff.method, diff.text = http.MethodPost, "application/yaml"
	return []apiRoute{
		reads("/api/v1/overrides", "Endpoints that are drained or pinned", h.getOverrides),
		changesBy(http.MethodPut, override, "Drains or pins an endpoint", h.putOverride), undo,
		reads("/api/v1/log-level", "The least level that is logged", h.getLogLevel),
		changesBy(http.MethodPost, "/api/v1/log-level", "Sets it until the restart", h.postLogLevel), diff,
	}
}

// getOpenAPI answers with the document, made of the routes and the types that are served.
func (h *handler) getOpenAPI(*http.Request) (map[string]any, error) {
	components, paths := schemas{}, map[string]map[string]any{}
	for _, r := range append(h.apiRoutes(), h.operatorRoutes()...) {
		if paths[r.path] == nil {
			paths[r.path] = map[string]any{}
		}
		paths[r.path][strings.ToLower(cmp.Or(r.method, http.MethodGet))] = r.operation(components)
	}
	return map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{"title": "Steelyard admin API", "version": "v1",
			"description": "What each key means is in docs/admin-api.md. Keys may be added; ignore keys that " +
				"you do not know."},
		"paths": paths, "components": map[string]any{"schemas": components},
	}, nil
}

func (r *apiRoute) operation(components schemas) map[string]any {
	kind := "application/json"
	if r.events {
		kind = "text/event-stream"
	}
	content := func(kind string, schema any) map[string]any {
		return map[string]any{kind: map[string]any{"schema": schema}}
	}
	parameters := []any{}
	for _, p := range [][2]string{{"name", "name of the cluster"}, {"address", "of the endpoint, host:port"}} {
		if strings.Contains(r.path, "{"+p[0]+"}") {
			parameters = append(parameters, map[string]any{"name": p[0], "in": "path", "required": true,
				"description": p[1], "schema": map[string]any{"type": "string"}})
		}
	}
	for _, p := range r.query {
		schema := map[string]any{"type": p.kind}
		if p.repeated {
			schema = map[string]any{"type": "array", "items": schema}
		}
		parameters = append(parameters, map[string]any{"name": p.name, "in": "query", "description": p.meaning,
			"schema": schema})
	}
	out := map[string]any{"summary": r.summary, "parameters": parameters, "responses": map[string]any{
		"200": map[string]any{"description": "success",
			"content": content(kind, components.of(r.answer))},
		"default": map[string]any{"description": "failure",
			"content": content("application/json", components.of(reflect.TypeFor[api.Error]()))},
	}}
	switch {
	case r.body != nil:
		out["requestBody"] = map[string]any{"required": true,
			"content": content("application/json", components.ofRequest(r.body))}
	case r.text != "":
		out["requestBody"] = map[string]any{"required": true,
			"content": content(r.text, map[string]any{"type": "string"})}
	}
	return out
}

// schemas has the objects of the answers, under the titles that they have in docs/admin-api.md: the names of their
// types.
type schemas map[string]map[string]any

// ofRequest returns the schema of an object in a request. Unlike in an answer, a key that is left out is null, and none
// is accepted that is not known.
func (s schemas) ofRequest(t reflect.Type) map[string]any {
	s.of(t)
	request := s.object(t)
	delete(request, "required")
	request["additionalProperties"] = false
	return request
}

// object is the schema of a struct: all keys are always there, but the endpoints in the list of clusters.
func (s schemas) object(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, key := range keysOf(t) {
		properties[key.name] = s.of(key.field.Type)
		if key.options == "" {
			required = append(required, key.name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

// A structKey is a key of a struct as JSON, with the struct that declares its field and the options of its tag.
type structKey struct {
	of            reflect.Type
	field         reflect.StructField
	name, options string
}

// keysOf returns the keys of a struct. Those of an embedded one are in its place.
func keysOf(t reflect.Type) (keys []structKey) {
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous:
			keys = append(keys, keysOf(field.Type)...)
		case field.IsExported() && name != "-":
			keys = append(keys, structKey{t, field, name, options})
		}
	}
	return keys
}

// of returns the schema of a type, for an object a reference to it.
func (s schemas) of(t reflect.Type) map[string]any {
	switch t {
	case reflect.TypeFor[api.Number]():
		return map[string]any{"type": []string{"number", "null"}}
	case reflect.TypeFor[api.Time]():
		return map[string]any{"type": []string{"string", "null"}, "format": "date-time"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Slice:
		kind := any("array")
		if t == reflect.TypeFor[[]string]() {
			kind = []string{"array", "null"} // the addresses of a frame that has those of the one before
		}
		return map[string]any{"type": kind, "items": s.of(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Pointer:
		return map[string]any{"anyOf": []any{s.of(t.Elem()), map[string]any{"type": "null"}}}
	case reflect.Struct:
		title := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
		if s[title] == nil {
			s[title] = s.object(t)
		}
		return map[string]any{"$ref": "#/components/schemas/" + title}
	}
	return map[string]any{"type": "integer"}
}
