package stat

// A Bound is the use of a limit, and what was refused because of it.
type Bound struct {
	Used          int    `json:"used"`
	Limit         int    `json:"limit"`
	Refused       uint64 `json:"refused"` // because the limit was reached, since the start
	LastRefused   Time   `json:"last_refused"`
	Displaced     uint64 `json:"displaced"` // open ones that were closed to make room for new ones, since the start
	LastDisplaced Time   `json:"last_displaced"`
}

// A RefusedHandshake sums up the TLS handshakes on the xDS port that failed for one reason.
type RefusedHandshake struct {
	Reason    string `json:"reason"`
	Count     uint64 `json:"count"` // since the start
	LastAt    Time   `json:"last_at"`
	LastPeer  string `json:"last_peer"`
	LastError string `json:"last_error"`
}

// DeniedClients counts what the rules on clients denied of one kind.
type DeniedClients struct {
	Kind        string `json:"kind"`
	Count       uint64 `json:"count"` // since the start
	LastAt      Time   `json:"last_at"`
	LastClient  string `json:"last_client"` // the names in its certificate
	LastPeer    string `json:"last_peer"`
	LastCluster string `json:"last_cluster"` // empty of kind stream
}

// A Picker is a program that follows the loads, by a stream of its own.
type Picker struct {
	Name     string   `json:"name"` // as it names itself, clipped
	Address  string   `json:"address"`
	Clusters []string `json:"clusters"` // that it asks for; empty: all
	Since    Time     `json:"since"`
}
