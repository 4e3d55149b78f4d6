// Package api has the objects of the admin API: what the JSON has of the process, clusters, endpoints, Envoys,
// incidents and the past, with numbers and times that may be unknown.
//
// A part that counts something of itself, such as a port or a queue, returns the struct of this package, and the admin
// API shows it without a copy field by field in between. A decision of the law becomes the objects of a cluster here,
// too. What is joined or measured over time is done in controlplane/admin, and the text for people in its conditions.
//
// The comment of a field is its meaning: docs/admin-api.md is made of it. Keys are added, and none is renamed, removed
// or changed in meaning.
package api
