package api

// A Port is what all peers of the xDS port together use of its limits.
type Port struct {
	AdminPort
	Streams       Bound `json:"streams"`       // of all services
	Subscriptions Bound `json:"subscriptions"` // names that the streams subscribe to
	UnreadBytes   Bound `json:"unread_bytes"`  // sent by all peers, and not handled yet

	PacedRequests      uint64 `json:"paced_requests"` // handled later because their client sends too many
	SilentStreams      uint64 `json:"silent_streams"` // ended because their first message took ten seconds
	LastSilentStreamAt Time   `json:"last_silent_stream_at"`

	OpenFilesLimit    Number `json:"open_files_limit"` // of the process
	AcceptErrors      uint64 `json:"accept_errors"`    // connections that could not be accepted
	LastAcceptError   string `json:"last_accept_error"`
	LastAcceptErrorAt Time   `json:"last_accept_error_at"`
}

// An AdminPort is what all peers of the admin listener together use of its limits.
type AdminPort struct {
	Connections           Bound `json:"connections"`             // at most 128 on the admin listener
	ConnectionsPerAddress Bound `json:"connections_per_address"` // of the address or IPv6 /64 that has the most
}
