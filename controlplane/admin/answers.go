package admin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"steelyard/controlplane/admin/conditions"
	"steelyard/internal/api"
	"steelyard/internal/spelling"
)

func (h *handler) noCluster(name string) error {
	all := conditions.Names(h.Source.Clusters())
	return Missing(fmt.Errorf("no cluster %q is configured%s; there are: %s", name, spelling.DidYouMean(name, all),
		strings.Join(all, ", ")))
}

func notFound(w http.ResponseWriter, r *http.Request) {
	writeError(w, http.StatusNotFound, "nothing at %s; there are /healthz, /readyz, /metrics, /api/v1/status, "+
		"/api/v1/clusters, /api/v1/clients, /api/v1/incidents, /api/v1/events, /api/v1/stream and the page at /",
		r.URL.Path)
}

// A codedError is an error that is answered with a code of its own.
type codedError struct {
	error
	code int
}

// answering serves what a function returns, as JSON. An error without a code is a bad request.
func answering[T any](f func(*http.Request) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			var coded codedError
			errors.As(err, &coded)
			writeError(w, cmp.Or(coded.code, http.StatusBadRequest), "%v", err)
			return
		}
		writeJSON(w, http.StatusOK, v)
	}
}

// answeringBody is answering for a request whose body is the JSON of a B.
func answeringBody[B, T any](f func(*http.Request, B) (T, error)) http.HandlerFunc {
	return answering(func(r *http.Request) (v T, err error) {
		var body B
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&body); err != nil {
			return v, fmt.Errorf("the body is not the JSON that is needed here: %w", err)
		}
		return f(r, body)
	})
}

func writeError(w http.ResponseWriter, code int, format string, args ...any) {
	writeJSON(w, code, api.Error{Error: fmt.Sprintf(format, args...)})
}

// writeJSON encodes before it writes, so that an answer is whole or a 500.
func writeJSON(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		code, body = http.StatusInternalServerError, []byte(`{"error":"this answer could not be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // a client that has gone needs no response
}

// Missing marks the error of an Operator about a cluster or an endpoint that does not exist: the answer is a 404.
func Missing(err error) error { return codedError{err, http.StatusNotFound} }

func indexOf(endpoints []api.Endpoint, address string) int {
	for i := range endpoints {
		if endpoints[i].Address == address {
			return i
		}
	}
	return -1
}

// find is the endpoint that has this address, or whose Pod has this name, or the only one whose Pod's name begins so.
// An address that fits none may have been that of an endpoint, so it is no error.
func find(endpoints []api.Endpoint, name, cluster string) (api.Endpoint, error) {
	var whole, begin []*api.Endpoint
	for i := range endpoints {
		switch e := &endpoints[i]; {
		case e.Address == name:
			return *e, nil
		case name == "" || !strings.HasPrefix(e.Pod, name):
		case e.Pod == name:
			whole = append(whole, e)
		case !isDigit(name[len(name)-1]) || !isDigit(e.Pod[len(name)]): // vllm-1 is not the beginning of vllm-10
			begin = append(begin, e)
		}
	}
	if len(whole) > 0 {
		begin = whole
	}
	_, _, err := net.SplitHostPort(name)
	switch {
	case len(begin) == 1:
		return *begin[0], nil
	case len(begin) > 1:
		return api.Endpoint{}, fmt.Errorf("%q is at %d endpoints of %s, such as %s (%s): write more of the name, or "+
			"an address", name, len(begin), cluster, begin[0].Address, begin[0].Pod)
	case err == nil:
		return api.Endpoint{Address: name}, nil
	}
	return api.Endpoint{}, noEndpoint(name, cluster)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func noEndpoint(name, where string) error {
	return Missing(fmt.Errorf("no endpoint %q is in %s: write its HOST:PORT, or the beginning of its Pod's name", name,
		where))
}
