// Package override holds what operators decided about single endpoints: drained, or pinned to a share, until a time.
//
// A [Registry] has the overrides of one process. The loops of package controlplane apply them in each step, by the law.
// Where there is a [Store], [Registry.Sync] keeps them there, across a restart and for the other replicas: the Registry
// decides while the store cannot be reached, and takes over what others wrote once it can.
//
// An override always ends: at its time, or when an operator removes it. One of an endpoint that leaves and comes back
// within that time is in effect again. The Registry does not know which endpoints there are; its callers check that.
package override
