// Package view has the values that a control plane shows of its clusters: the JSON of /api/v1/clusters, and the
// [Number] and [Time] that all of the admin API is made of.
//
// # What it is for
//
// Package controlplane and the daemon fill these values, package admin serves them. They are in a package of their own
// so that neither needs the other. [FromDecision] turns a weighting decision into what is shown of it.
//
// # What it is not
//
// It has no state and no HTTP. Fields marked "filled in by the handler" are worked
// out by package admin from the others, so that the page, a script and a person
// with curl get the same verdict. The keys are described in docs/admin-api.md.
package view
