// Package ledger counts the requests in flight from each Envoy to each endpoint.
package ledger
