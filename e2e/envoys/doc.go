// Package envoys runs end-to-end tests on each version of Envoy that is in use, and makes the table of
// docs/attach-envoy.md out of what they find. It takes minutes: `make test-envoys`.
package envoys
