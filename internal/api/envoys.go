package api

import "slices"

// An EnvoyState shows whether an Envoy follows the weights. The page, the commands and the counts all use it.
type EnvoyState string

// The states of an Envoy. Where several hold, the first one counts.
const (
	EnvoyRefuses EnvoyState = "refuses" // it refused the latest assignment
	EnvoyBehind  EnvoyState = "behind"  // no answer for five seconds; after ten minutes it is gone
	EnvoyUnknown EnvoyState = "unknown" // its cluster is not configured, or has nothing to send yet
	EnvoySilent  EnvoyState = "silent"  // it follows, and reports no requests
	EnvoyIdle    EnvoyState = "idle"    // it subscribes to nothing
	EnvoyShadow  EnvoyState = "shadow"  // it reports, and follows no weights
	EnvoyFollows EnvoyState = "follows" // it accepted all assignments
	EnvoyGone    EnvoyState = "gone"    // its connection ended while its streams were open
	EnvoyLeft    EnvoyState = "left"    // it closed its streams
	EnvoyUnheard EnvoyState = "unheard" // nothing is known of it: its replica of Steelyard is silent, or cut off
)

// byNeed are the states, those first that need a look.
var byNeed = []EnvoyState{EnvoyRefuses, EnvoyBehind, EnvoyGone, EnvoyUnheard, EnvoyUnknown, EnvoySilent, EnvoyIdle,
	EnvoyShadow, EnvoyFollows, EnvoyLeft}

// Rank orders states: low for those that need a look.
func (s EnvoyState) Rank() int { return slices.Index(byNeed, s) }

// A LeftEnvoy is one that was connected and is not any more.
type LeftEnvoy struct {
	Node
	Address     string   `json:"address"`
	ConnectedAt Time     `json:"connected_at"`
	Clusters    []string `json:"clusters"`    // that it asked for
	LeftAt      Time     `json:"left_at"`     // when its last stream ended
	LeftReason  string   `json:"left_reason"` // how its connection ended
	Vanished    bool     `json:"vanished"`    // it did not close its streams: a crash, a kill or the network
	Silent      bool     `json:"silent"`      // it did not answer pings, so Steelyard closed the connection

	// Filled in by the handler.

	State EnvoyState `json:"state"` // `behind` (perhaps still running, for ten minutes), `gone` or `left`
}

// A Client is one connected Envoy.
type Client struct {
	Connection
	Signals Signals `json:"signals"`

	// Filled in by the handler.

	State    EnvoyState `json:"state"` // the first that holds
	Problems []Problem  `json:"problems"`
}
