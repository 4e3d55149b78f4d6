package api

// Routes are the learned routes of a cluster that a replica keeps for pickers that come: what the pickers of all
// replicas have learned. Each is the beginning of a prompt, and an endpoint that has answered it.
type Routes struct {
	Here      int    `json:"here"`      // learned by pickers of this replica
	Elsewhere int    `json:"elsewhere"` // learned by pickers of other replicas
	Evicted   uint64 `json:"evicted"`   // that made room for newer ones, since the start

	LastMinute     int `json:"last_minute"`      // confirmed within the last minute
	LastTenMinutes int `json:"last_ten_minutes"` // confirmed within the last ten minutes
	LastHour       int `json:"last_hour"`        // confirmed within the last hour
}
