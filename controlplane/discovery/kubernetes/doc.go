// Package kubernetes finds the endpoints of a cluster in the Kubernetes API: in
// the EndpointSlices of Services (Client.Service), or among the Pods that an
// InferencePool of the Gateway API Inference Extension selects (Client.Pool).
// Both return a discovery.Discoverer. This is the only package of the product
// that uses client-go.
//
// # What is watched
//
// Shared informers, each for one namespace, so that a Role is enough: list and
// watch on endpointslices (discovery.k8s.io) and pods, or on inferencepools
// (inference.networking.k8s.io) and pods. Of EndpointSlices only those of the
// Service are watched; of the Pods of the namespace only the metadata, of which
// little is kept. Clusters that need the same informer share it.
//
// # What an endpoint is
//
//   - An address in the slices, with the Pod's UID (targetRef) as its identity:
//     a Pod that gets the IP of another one is a new endpoint. An address that
//     several slices name is one endpoint.
//   - Ready, by the condition (a Pod's, of a pool). One that is not ready is no
//     endpoint. One that is terminating gets no new requests and stays known
//     until the API removes it; where no other is left, those that terminate and
//     still serve are used, as kube-proxy does.
//   - Of one address family. A Pod with both has one endpoint, of the family
//     that ip_family says, IPv4 unless it does. Without ip_family, a Pod that has
//     only the other family is an endpoint there. An address without a Pod is a
//     server of its own.
//   - With a port. A slice without ports has none while another slice of its
//     Service has some: the Service's port has a name that these Pods lack.
//   - Capacity and engine by the Pod's annotations, or else labels,
//     steelyard.dev/capacity and steelyard.dev/engine; else the engine by the
//     labels of llm-d and AIBrix; the cluster's where there are none. Their labels
//     of role and model are passed on.
//
// # When the API server is away
//
// The last endpoints stay. Requests that fail are repeated every second to every
// five; those that the API server refuses too, with a token that is read again,
// so that a Role that is corrected takes effect at once. A hanging API server is
// noticed by a question every five seconds; then all connections are replaced.
// Each fault is reported, and a set that the API says is empty is sent as such,
// with the fault that nothing was found. Where the API has endpoints of which
// none can be used, such as with another name of their port, those known stay.
//
// # What it is not
//
// It knows no controller, and does not ask whether a Pod is loaded. What it cannot
// use is left out, and named in the *discovery.Omissions that it reports.
//
// # What it writes
//
// Nothing by itself. Its callers have it write the parents in the status of a pool
// (parents.go), certificates into Secrets (secret.go), and what was decided about
// Pods (act.go). It asks who has a token with that token (review.go). Of a pool's
// parents, those of its own controller's name are its own; an installation has one.
package kubernetes
