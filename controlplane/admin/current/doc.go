// Package current completes the present state of the process with what was measured and found: the objects of the API,
// as the JSON, the page and /metrics show them.
package current
