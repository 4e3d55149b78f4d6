package customrouter

import (
	"strings"

	"steelyard/picking"
)

// FilterName is the name of the filter in the module.
const FilterName = "router"

// Settings are the configuration of that filter, JSON.
type Settings struct {
	Socket  string // path of the Unix socket where Envoy finds the API
	Options Options
}

// OutcomeOf is how a request ended at its backend, by the status of its answer, 0 without one, and Envoy's details of
// the response code.
func OutcomeOf(status int, details string) picking.Outcome {
	const tooMany, serverError = 429, 500
	switch {
	case strings.HasPrefix(details, "downstream_"), strings.HasPrefix(details, "http2."):
		return picking.Abandoned // the client's connection or stream ended first
	case status == 0, status == tooMany, status >= serverError, strings.HasPrefix(details, "upstream_"):
		return picking.Failed
	}
	return picking.Answered
}
