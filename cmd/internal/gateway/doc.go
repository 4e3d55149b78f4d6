// Package gateway is the extension server for Envoy Gateway: it has the InferencePools that routes name as backends
// served by Steelyard's clusters.
//
// Envoy Gateway knows an InferencePool as a backend whose cluster it leaves empty, and asks in three steps, each time
// that it translates the objects of a Gateway (extensionManager in its configuration; docs/gateways.md):
//
//	PostClusterModify    once for each cluster of a rule that names a pool. The answer is the same cluster with a note
//	                     in its metadata: which backends the rule has, and their weights. Weights are in no message of
//	                     the protocol, so the route is read from the Kubernetes API at that moment. And the cluster
//	                     has the members of the pools, for the moment in which a route moves to them.
//	PostTranslateModify  all that the Envoys of the Gateway will get. The routes of each noted cluster go to the
//	                     pool's aggregate instead, by the weights of the rule, and the parts of package envoybootstrap
//	                     are added: clusters, timeout and retries of these routes, and the log of their requests.
//
// Routes with an annotation have the module in Envoy name their endpoints (Annotation): its filter, off for all other
// routes, a second route for the requests that got an endpoint, and their cluster.
//
// Everything that the last step needs is in its message, so any replica can answer any step, and Translate is a
// function of values.
//
// A pool with an endpointPickerRef is left to whatever serves it. What cannot be served is named in State, and left as
// it is; an error is for what may work with the next try, and makes Envoy Gateway keep the configuration that its
// Envoys have.
//
// What it is not: a controller. It watches no route and writes nothing. It gets the clusters of pools and their members
// from its caller (Options).
package gateway
