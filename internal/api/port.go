package api

// A Port is what all peers of the xDS port together use of its limits.
type Port struct {
	AdminPort
	Streams       Bound `json:"streams"`       // open streams of all services
	Subscriptions Bound `json:"subscriptions"` // names that the streams subscribe to
	UnreadBytes   Bound `json:"unread_bytes"`  // bytes sent by all peers that Steelyard has not handled yet

	PacedRequests uint64 `json:"paced_requests"` // handled later because their client sends too many
	// ended because their first message did not arrive within ten seconds
	SilentStreams      uint64 `json:"silent_streams"`
	LastSilentStreamAt Time   `json:"last_silent_stream_at"` // when the latest was

	OpenFilesLimit    Number `json:"open_files_limit"`     // of the process
	AcceptErrors      uint64 `json:"accept_errors"`        // failed attempts to accept a connection
	LastAcceptError   string `json:"last_accept_error"`    // why the latest failed
	LastAcceptErrorAt Time   `json:"last_accept_error_at"` // when
}

// An AdminPort is what all peers of the admin listener together use of its limits.
type AdminPort struct {
	Connections           Bound `json:"connections"`             // open connections, at most 128
	ConnectionsPerAddress Bound `json:"connections_per_address"` // of the address or IPv6 /64 that has the most
}
