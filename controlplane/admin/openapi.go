package admin

import (
	"cmp"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"steelyard/controlplane/view"
)

// schemas are the objects of the answers, under the titles that they have in docs/admin-api.md and in the OpenAPI
// document.
func schemas() map[string]any {
	return map[string]any{
		"Status": Status{}, "Port": Port{}, "AdminPort": AdminPort{}, "Bound": Bound{}, "Reload": Reload{},
		"Problem": view.Problem{}, "ClusterList": ClusterList{}, "Cluster": view.Cluster{},
		"EndpointCounts": view.EndpointCounts{}, "Work": view.Work{}, "EndpointWork": view.EndpointWork{},
		"Dispute": view.Dispute{}, "Queue": view.Queue{}, "QueueClass": view.QueueClass{},
		"Push": view.Push{}, "SourceStatus": view.SourceStatus{},
		"Decision": view.Decision{}, "Endpoint": view.Endpoint{}, "Input": view.Input{}, "Scrape": view.Scrape{},
		"Window": Window{}, "EndpointTrace": EndpointTrace{}, "ClientList": ClientList{}, "Client": Client{},
		"Subscription": Subscription{}, "Nack": Nack{}, "Error": errorAnswer{}, "Signals": Signals{},
		"Entries": Entries{}, "Runtime": Runtime{}, "SignalTotals": SignalTotals{}, "SignalStreams": SignalStreams{},
		"LogStatus": LogStatus{}, "Reporting": view.Reporting{}, "Certificate": Certificate{},
		"RefusedHandshake": RefusedHandshake{}, "GoneEnvoy": GoneEnvoy{}, "RefusedRequests": RefusedRequests{},
		"AdminAccess": AdminAccess{}, "DeniedRequests": DeniedRequests{}, "Session": Session{},
		"XDSAccess": XDSAccess{}, "DeniedClients": DeniedClients{}, "Served": view.Served{}, "Use": view.Use{},
		"IfLost": view.IfLost{}, "IncidentList": IncidentList{}, "ClusterState": clusterState{},
		"Incident": view.Incident{}, "Subject": view.Subject{}, "EventList": EventList{}, "Event": view.Event{},
		"Matrix": view.Matrix{}, "MatrixRow": view.MatrixRow{}, "Explanation": Explanation{}, "LeftEnvoy": LeftEnvoy{},
		"PoolTrace": PoolTrace{}, "Frame": frame{}, "Fleet": fleet{}, "FleetEnvoys": fleetEnvoys{},
		"FleetCluster": fleetCluster{}, "ClusterFrame": clusterFrame{}, "Terminating": view.Terminating{},
		"Replicas": Replicas{}, "ReplicaMessages": ReplicaMessages{}, "Replica": Replica{}, "Override": view.Override{},
		"OverrideList": OverrideList{}, "OverrideRequest": OverrideRequest{}, "OverrideStatus": OverrideStatus{},
		"LogLevel": logLevel{}, "Tracing": Tracing{}, "Pickers": Pickers{}, "Picker": Picker{}, "Diff": view.Diff{},
		"ClusterDiff": view.ClusterDiff{}, "KeyDiff": view.KeyDiff{},
		"EndpointDiff": view.EndpointDiff{}, "Part": view.Part{},
	}
}

// An apiRoute is a route in the OpenAPI document. Its answer is an object by title; a stream of them where events is
// set. What changes something has another method than get, and may take an object by title, or text of another type.
type apiRoute struct {
	method, path, summary, answer string
	query                         []apiParameter
	events                        bool
	body, bodyType                string
}

// An apiParameter is a parameter of a query.
type apiParameter struct {
	name, kind, meaning string
	repeated            bool
}

func apiRoutes() []apiRoute {
	sorting := []apiParameter{{name: "sort", kind: "string", meaning: "name or worst"},
		{name: "limit", kind: "integer", meaning: "the first so many; 0 means all"}}
	cluster := apiParameter{name: "cluster", kind: "string", meaning: "name of a cluster"}
	return []apiRoute{
		{path: "/api/v1/status", summary: "State of the process", answer: "Status"},
		{path: "/api/v1/session", summary: "Whose token the request has", answer: "Session"},
		{path: "/api/v1/clusters", summary: "Every cluster, without its endpoints", answer: "ClusterList"},
		{path: "/api/v1/clusters/{name}", summary: "One cluster with its endpoints", answer: "Cluster", query: sorting},
		{path: "/api/v1/clusters/{name}/history", summary: "The past of a cluster", answer: "Window",
			query: []apiParameter{{name: "window", kind: "string", meaning: "how far back, such as 5m"},
				{name: "points", kind: "integer", meaning: "at most so many moments; 0 means all"},
				{name: "endpoint", kind: "string", meaning: "only these endpoints", repeated: true},
				{name: "fields", kind: "string", meaning: "of endpoints: some of " +
					strings.Join(historyFields(), ",") + ", or none"}}},
		{path: "/api/v1/clusters/{name}/matrix", summary: "Requests in flight by Envoy and endpoint", answer: "Matrix"},
		{path: "/api/v1/clusters/{name}/explain", summary: "Why an endpoint has its share", answer: "Explanation",
			query: []apiParameter{{name: "endpoint", kind: "string", meaning: "its address"},
				{name: "at", kind: "string", meaning: "a past time, or how long ago"}}},
		{path: "/api/v1/clients", summary: "Connected Envoys, and those that left", answer: "ClientList",
			query: sorting},
		{path: "/api/v1/incidents", summary: "What is wrong", answer: "IncidentList", query: []apiParameter{cluster}},
		{path: "/api/v1/events", summary: "What changed in the last hour", answer: "EventList",
			query: []apiParameter{{name: "since", kind: "integer", meaning: "only those after this id"}, cluster,
				{name: "kind", kind: "string", meaning: "only these kinds", repeated: true},
				{name: "limit", kind: "integer", meaning: "the latest so many; 0 means all"}}},
		{path: "/api/v1/overrides", summary: "Endpoints that are drained or pinned", answer: "OverrideList"},
		{path: "/api/v1/log-level", summary: "The least level that is logged", answer: "LogLevel"},
		{method: "post", path: "/api/v1/log-level", summary: "Sets it until the restart", answer: "LogLevel",
			body: "LogLevel"},
		{method: "post", path: "/api/v1/diff", summary: "What another configuration would change", answer: "Diff",
			bodyType: "application/yaml",
			query:    []apiParameter{{name: "name", kind: "string", meaning: "of its file, in messages"}}},
		{method: "put", path: "/api/v1/clusters/{name}/overrides/{address}", summary: "Drains or pins an endpoint",
			answer: "Override", body: "OverrideRequest"},
		{method: "delete", path: "/api/v1/clusters/{name}/overrides/{address}", summary: "Ends that",
			answer: "Override"},
		{path: "/api/v1/stream", summary: "A frame each second, as server-sent events", answer: "Frame", events: true,
			query: []apiParameter{cluster, {name: "endpoint", kind: "string", meaning: "an endpoint of the cluster"},
				{name: "matrix", kind: "string", meaning: "1: with the matrix"},
				{name: "last_event_id", kind: "integer", meaning: "what was missed since this second comes first"}}},
	}
}

// openAPI is the document, made of the types that are served.
var openAPI = sync.OnceValue(func() []byte {
	components, titles := map[string]any{}, map[reflect.Type]string{}
	for title, v := range schemas() {
		titles[reflect.TypeOf(v)] = title
	}
	for t, title := range titles {
		components[title] = objectSchema(t, titles)
	}
	paths := map[string]any{}
	for _, r := range apiRoutes() {
		operations, ok := paths[r.path].(map[string]any)
		if !ok {
			operations = map[string]any{}
			paths[r.path] = operations
		}
		operations[cmp.Or(r.method, "get")] = r.operation()
	}
	body, err := json.Marshal(map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{"title": "Steelyard admin API", "version": "v1",
			"description": "What each key means is in docs/admin-api.md. Keys may be added; ignore those that " +
				"you do not know."},
		"paths": paths, "components": map[string]any{"schemas": components},
	})
	if err != nil {
		panic("admin: " + err.Error()) // maps and strings only
	}
	return body
})

func (r *apiRoute) operation() map[string]any {
	kind := "application/json"
	if r.events {
		kind = "text/event-stream"
	}
	content := func(title string) map[string]any {
		return map[string]any{"schema": reference(title)}
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
		"200": map[string]any{"description": "success", "content": map[string]any{kind: content(r.answer)}},
		"default": map[string]any{"description": "failure",
			"content": map[string]any{"application/json": content("Error")}},
	}}
	switch {
	case r.body != "":
		out["requestBody"] = map[string]any{"required": true,
			"content": map[string]any{"application/json": map[string]any{"schema": requestSchema(r.body)}}}
	case r.bodyType != "":
		out["requestBody"] = map[string]any{"required": true,
			"content": map[string]any{r.bodyType: map[string]any{"schema": map[string]any{"type": "string"}}}}
	}
	return out
}

// requestSchema returns the schema of an object in a request. Unlike in an answer, a key that is left out is null, and
// none is accepted that is not known.
func requestSchema(title string) map[string]any {
	titles := map[reflect.Type]string{}
	s := objectSchema(reflect.TypeOf(schemas()[title]), titles)
	delete(s, "required")
	s["additionalProperties"] = false
	return s
}

func reference(title string) map[string]any {
	return map[string]any{"$ref": "#/components/schemas/" + title}
}

// objectSchema is the schema of a struct: all keys are always there, but the endpoints in the list of clusters.
func objectSchema(t reflect.Type, titles map[reflect.Type]string) map[string]any {
	properties, required := map[string]any{}, []string{}
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		for field := range t.Fields() {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case field.Anonymous:
				add(field.Type)
				continue
			case !field.IsExported() || name == "-":
				continue
			}
			properties[name] = schemaOf(field.Type, titles)
			if options == "" {
				required = append(required, name)
			}
		}
	}
	add(t)
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

func schemaOf(t reflect.Type, titles map[reflect.Type]string) map[string]any {
	switch t {
	case reflect.TypeFor[view.Number]():
		return map[string]any{"type": []string{"number", "null"}}
	case reflect.TypeFor[view.Time]():
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
		return map[string]any{"type": kind, "items": schemaOf(t.Elem(), titles)}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem(), titles)}
	case reflect.Pointer:
		return map[string]any{"anyOf": []any{schemaOf(t.Elem(), titles), map[string]any{"type": "null"}}}
	case reflect.Struct:
		if title := titles[t]; title != "" {
			return reference(title)
		}
		return objectSchema(t, titles)
	}
	return map[string]any{"type": "integer"}
}

func (h *handler) getOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI()) // a client that has gone needs no response
}
