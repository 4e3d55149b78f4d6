package history

import "steelyard/internal/api"

// A Source is the current state of the process. Its methods are called from many goroutines, on every request and every
// scrape of /metrics; they must not block on the network. What they return may be shared: this package never writes to
// it.
type Source interface {
	// Clusters returns all configured clusters, sorted by name.
	Clusters() []api.Cluster
	// Cluster returns one of them.
	Cluster(name string) (api.Cluster, bool)
	// Clients returns the connected Envoys, sorted by node id.
	Clients() []api.Client
	// Elsewhere returns the Envoys and pickers of the other replicas, by replica.
	Elsewhere() []api.OtherEnvoy
	// Matrix returns the requests in flight of a cluster by Envoy and endpoint, in any order.
	Matrix(cluster string) (api.Matrix, bool)
	// Shadow returns what was recorded of a cluster that nobody follows; without Began if that is nothing.
	Shadow(cluster string) (api.Shadow, bool)
	// Status returns the state of the process.
	Status() api.Status
}
