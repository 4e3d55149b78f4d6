package api

// An EnvoyState shows whether an Envoy follows the weights. The page, the commands and the counts all use it.
type EnvoyState string

// The states of an Envoy. Where several hold, the first one counts.
const (
	EnvoyRefuses EnvoyState = "refuses" // it refused the latest assignment
	EnvoyBehind  EnvoyState = "behind"  // it has not answered for five seconds; after ten minutes it is gone
	EnvoyUnknown EnvoyState = "unknown" // it subscribes to a cluster that is not configured or has nothing to send yet
	EnvoySilent  EnvoyState = "silent"  // it follows, and does not report its requests
	EnvoyIdle    EnvoyState = "idle"    // it subscribes to nothing
	EnvoyShadow  EnvoyState = "shadow"  // it reports its requests, and follows no weights
	EnvoyFollows EnvoyState = "follows" // it accepted all of its assignments
	EnvoyGone    EnvoyState = "gone"    // its connection ended while its streams were open
	EnvoyLeft    EnvoyState = "left"    // it closed its streams
)

// A LeftEnvoy is one that was connected and is not any more.
type LeftEnvoy struct {
	Node
	Address     string   `json:"address"`      // remote address of its connection
	ConnectedAt Time     `json:"connected_at"` // when it connected
	Clusters    []string `json:"clusters"`     // the clusters that it asked for
	LeftAt      Time     `json:"left_at"`      // when its last stream ended, to a second
	LeftReason  string   `json:"left_reason"`  // how its connection ended
	Vanished    bool     `json:"vanished"`     // it did not close its streams: a crash, a kill or the network
	Silent      bool     `json:"silent"`       // it did not answer pings, so Steelyard closed the connection

	// Filled in by the handler.

	// `behind` (`silent` and perhaps still running, for ten minutes), `gone` (`vanished`) or `left`
	State EnvoyState `json:"state"`
}

// A Client is one connected Envoy.
type Client struct {
	Connection
	Signals Signals `json:"signals"` // its reports of its own requests

	// Filled in by the handler.

	// first that holds: `refuses`, `behind` (no answer for 5 s), `unknown` (no such cluster), `silent`, `idle`,
	// `shadow`, `follows`
	State    EnvoyState `json:"state"`
	Problems []Problem  `json:"problems"` // of this Envoy
}
