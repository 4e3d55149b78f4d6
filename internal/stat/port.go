package stat

// A Port is what all peers of the xDS port together use of its limits.
type Port struct {
	AdminPort
	Streams       Bound `json:"streams"`
	Subscriptions Bound `json:"subscriptions"`
	// UnreadBytes is about requests that are not complete, or that Steelyard has not handled yet. To keep the
	// limit, it displaces the connection that sent the most of them.
	UnreadBytes Bound `json:"unread_bytes"`

	// PacedRequests were handled later, because their client sends too many or subscribes to more clusters than others.
	PacedRequests uint64 `json:"paced_requests"` // since the start
	// SilentStreams were ended because their first message did not arrive in time.
	SilentStreams      uint64 `json:"silent_streams"` // since the start
	LastSilentStreamAt Time   `json:"last_silent_stream_at"`

	OpenFilesLimit    Number `json:"open_files_limit"` // of the process
	AcceptErrors      uint64 `json:"accept_errors"`
	LastAcceptError   string `json:"last_accept_error"` // empty when there never was one
	LastAcceptErrorAt Time   `json:"last_accept_error_at"`
}

// An AdminPort is what all peers of the admin listener together use of its limits.
type AdminPort struct {
	Connections           Bound `json:"connections"`
	ConnectionsPerAddress Bound `json:"connections_per_address"` // of the address with the most
}
