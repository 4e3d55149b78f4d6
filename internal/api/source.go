package api

// A SourceState is the health of a source.
type SourceState string

// The states of a source.
const (
	SourceOK      SourceState = "ok"      // it works
	SourcePartial SourceState = "partial" // some Envoys that watch the cluster do not report
	SourcePartly  SourceState = "partly"  // something that it found is not used
	SourceStale   SourceState = "stale"   // it fails; its last values are still in use
	SourceIdle    SourceState = "idle"    // there is nothing to report
	SourceOff     SourceState = "off"     // no Envoy is configured for it
	SourceDown    SourceState = "down"    // it never worked, or all values are too old
)

// A SourceStatus is the health of one source of a cluster.
type SourceStatus struct {
	// `scrape`, `redis`, `discovery`, `access_log`, `load_reports` or `replicas`
	Name           string      `json:"name"`
	State          SourceState `json:"state"`
	LastSuccess    Time        `json:"last_success"` // null: never
	LastError      string      `json:"last_error"`
	IgnoredMembers int         `json:"ignored_members"` // entries that are no endpoints of this cluster
	Envoys         Reporting   `json:"envoys"`
	Omitted        Omissions   `json:"omitted"`
}

// Omissions are what a source has found and does not use.
type Omissions struct {
	Count int        `json:"count"`
	First []Omission `json:"first"` // twenty
}

// Reporting is which of the Envoys that watch a cluster report over a source. It is filled for the sources
// SourceAccessLog and SourceLoadReports. A source with a Missing Envoy is SourcePartial; one without any that report is
// SourceDown, SourceOff if none ever did, and SourceIdle if there is nothing to report.
type Reporting struct {
	Expected  Number   `json:"expected"`  // that subscribe to the cluster
	Reporting Number   `json:"reporting"` // whose counts are used
	Idle      Number   `json:"idle"`      // without a known request
	Missing   []string `json:"missing"`   // node ids of the others; the first ten
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
	Kind      DisputeKind `json:"kind"`
	NodeID    string      `json:"node_id"`
	Host      string      `json:"host"`      // remote IP address of the Envoy
	Endpoints []string    `json:"endpoints"` // sorted
	Requests  Number      `json:"requests"`  // in progress or issued, by the report
	Since     Time        `json:"since"`
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
