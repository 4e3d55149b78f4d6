package view

import "steelyard/internal/stat"

// A SourceState is the health of a source.
type SourceState string

// The states of a source.
const (
	SourceOK      SourceState = "ok"
	SourcePartial SourceState = "partial" // some of the Envoys that watch the cluster do not report: see Reporting
	SourcePartly  SourceState = "partly"  // it works, and something that it has found is not used: see Omitted
	SourceStale   SourceState = "stale"   // it fails, in part or for a short time: its last values are still in use
	// there is nothing to report: no Envoy that watches the cluster has requests, or no endpoint is there to be scraped
	SourceIdle SourceState = "idle"
	// there are requests, but no Envoy ever reported any: none is configured for it
	SourceOff  SourceState = "off"
	SourceDown SourceState = "down" // it never worked; or all its values are too old to be used
)

// A SourceStatus is the health of one source of a cluster.
type SourceStatus struct {
	Name           string      `json:"name"` // "scrape", "redis", "discovery", "access_log", "load_reports", ...
	State          SourceState `json:"state"`
	LastSuccess    Time        `json:"last_success"`
	LastError      string      `json:"last_error"` // empty when the latest attempt went well
	IgnoredMembers int         `json:"ignored_members"`
	Envoys         Reporting   `json:"envoys"`  // of the sources that are Envoys
	Omitted        Omissions   `json:"omitted"` // by discovery
}

// Omissions are what a source has found and does not use.
type Omissions struct {
	Count int             `json:"count"`
	First []stat.Omission `json:"first"` // sorted, at most discovery.MaxOmissions
}

// Reporting is which of the Envoys that watch a cluster report over a source. It is filled for the sources
// SourceAccessLog and SourceLoadReports. A source with a Missing Envoy is SourcePartial; one without any that report is
// SourceDown, SourceOff if none ever did, and SourceIdle if there is nothing to report.
type Reporting struct {
	Expected  Number   `json:"expected"`  // Envoys that watch the cluster; null for a source that is not an Envoy
	Reporting Number   `json:"reporting"` // of them, those whose counts are used
	Idle      Number   `json:"idle"`      // of them, those that have nothing to report: they have no known request
	Missing   []string `json:"missing"`   // node ids of the others, sorted, at most MaxMissing
}

// NotReporting is how many Envoys do not report, though they should.
func (r Reporting) NotReporting() Number {
	expected, known := r.Expected.Value()
	if !known {
		return Number{}
	}
	return Num(expected - r.Reporting.Or(0) - r.Idle.Or(0))
}

// A Dispute is a report of one Envoy about endpoints that conflicts with those of all others. It does not count.
type Dispute struct {
	Kind      stat.DisputeKind `json:"kind"`
	NodeID    string           `json:"node_id"`
	Host      string           `json:"host"`      // its remote IP address
	Endpoints []string         `json:"endpoints"` // that it is about, sorted
	Requests  Number           `json:"requests"`  // in progress there, according to the report; unknown for failures
	Since     Time             `json:"since"`
}

// MaxMissing is how many Envoys that do not report are named.
const MaxMissing = 10

// SourceReplicas is the name of the source "other replicas".
const SourceReplicas = "replicas"

// Names of the sources that are Envoys.
const (
	SourceAccessLog   = "access_log"
	SourceLoadReports = "load_reports"
)
