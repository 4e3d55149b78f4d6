package customrouter

import (
	"strings"

	"steelyard/internal/customrouter/leastlatency"
)

// FilterName is the name of the filter in the module.
const FilterName = "router"

// Settings are the configuration of that filter, JSON.
type Settings struct {
	Socket  string // path of the Unix socket where Envoy finds the API
	JSON    bool   `json:",omitempty"` // the form of the log
	Options Options
	// Again has requests wait once more in the router of the same socket, which no connection could be made for.
	Again bool `json:",omitempty"`
}

// OutcomeOf returns how a request ended at its backend, by the status of its answer, 0 without one, and Envoy's details
// of the response code.
func OutcomeOf(status int, details string) leastlatency.Outcome {
	const clientError, tooMany, serverError = 400, 429, 500
	switch {
	case strings.HasPrefix(details, "upstream_"), details == "no_healthy_upstream",
		details == "request_payload_exceeded_retry_buffer_limit": // which came after there was no connection
		return leastlatency.Failed
	case details != "via_upstream":
		return leastlatency.Abandoned // the client left, or Envoy itself ended it, such as for a broken body
	case status == 0, status == tooMany, status >= serverError:
		return leastlatency.Failed
	case status >= clientError:
		return leastlatency.Rejected
	}
	return leastlatency.Answered
}
