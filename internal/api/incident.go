package api

// An IncidentKind is what an incident is about. Scripts may rely on it.
type IncidentKind string

// A Blame is whether Steelyard is the cause of an incident.
type Blame string

// The answers. Each comes with the fact that it stands on.
const (
	BlameNo      Blame = "no"      // something else is
	BlameInPart  Blame = "in_part" // Steelyard and something else
	BlameYes     Blame = "yes"     // Steelyard is
	BlameUnknown Blame = "unknown" // nothing that Steelyard sees shows it
)

// A SubjectKind is what kind of thing an incident or an event is about.
type SubjectKind string

// The kinds of subjects.
const (
	SubjectProcess  SubjectKind = "process"  // Steelyard itself
	SubjectCluster  SubjectKind = "cluster"  // a whole pool
	SubjectEndpoint SubjectKind = "endpoint" // one endpoint
	SubjectEnvoy    SubjectKind = "envoy"    // one Envoy
)

// A Subject is what an incident is about.
type Subject struct {
	Kind    SubjectKind `json:"kind"`
	Cluster string      `json:"cluster"` // empty for the process, and for an Envoy as a whole
	Name    string      `json:"name"`    // address of the endpoint, or node id of the Envoy
}

// An Incident is trouble that needs a person, in four parts: who and since when, why, whether Steelyard is the cause,
// and what to do. While it lasts, ID does not change, Title only when it gets worse, and Since only to an earlier
// time then.
type Incident struct {
	ID        string       `json:"id"`   // made of kind and subject
	Kind      IncidentKind `json:"kind"` // see [symptoms](symptoms.md)
	Severity  Severity     `json:"severity"`
	Subject   Subject      `json:"subject"`
	Since     Time         `json:"since"`
	Title     string       `json:"title"`     // who and what, for people
	Why       string       `json:"why"`       // the facts
	Steelyard Blame        `json:"steelyard"` // whether it is the cause
	Because   string       `json:"because"`   // the fact behind that answer
	Next      string       `json:"next"`      // what to do
	Command   string       `json:"command"`   // to copy
}

// An EventKind is what happened.
type EventKind string

// The kinds of events.
const (
	EventStarted         EventKind = "started"          // of the process
	EventConfig          EventKind = "config"           // applied
	EventConfigRefused   EventKind = "config_refused"   // the old one stays
	EventPoolsJoined     EventKind = "pools_joined"     // InferencePools became clusters
	EventPoolsLeft       EventKind = "pools_left"       // they went, or have a picker now
	EventEndpointsJoined EventKind = "endpoints_joined" // discovery found them
	EventEndpointsLeft   EventKind = "endpoints_left"   // they are not found any more
	EventFlagged         EventKind = "flagged"          // Envoys are asked to prefer other endpoints
	EventUnflagged       EventKind = "unflagged"        // not any more
	EventRetried         EventKind = "retried"          // an outlier was tried, and is flagged again
	EventSourceLost      EventKind = "source_lost"      // or the metrics of endpoints
	EventSourceBack      EventKind = "source_back"      // it works again
	EventNack            EventKind = "nack"             // an Envoy refused an assignment
	EventDropsBegan      EventKind = "drops_began"      // a saturated pool refuses requests
	EventDropsEnded      EventKind = "drops_ended"      // it refuses none any more
	EventEnvoyJoined     EventKind = "envoys_joined"    // they connected
	EventEnvoyLeft       EventKind = "envoys_left"      // they disconnected
	EventOverride        EventKind = "override"         // drained, pinned, or the end of it
)

// EventKinds are all of them.
func EventKinds() []EventKind {
	return []EventKind{EventStarted, EventConfig, EventConfigRefused, EventPoolsJoined, EventPoolsLeft,
		EventEndpointsJoined, EventEndpointsLeft, EventFlagged, EventUnflagged, EventRetried, EventSourceLost,
		EventSourceBack, EventNack, EventDropsBegan,
		EventDropsEnded, EventEnvoyJoined, EventEnvoyLeft, EventOverride}
}

// An Event is a change that was seen. Those of one kind and cluster within five seconds are one.
type Event struct {
	ID       uint64    `json:"id"` // rises by one; begins again with a restart
	At       Time      `json:"at"`
	LastAt   Time      `json:"last_at"` // several within five seconds are one event
	Kind     EventKind `json:"kind"`
	Cluster  string    `json:"cluster"`  // empty: of the process, or of an Envoy as a whole
	Subjects []string  `json:"subjects"` // endpoints, Envoys or sources; the first ten
	Count    int       `json:"count"`    // of subjects
	Text     string    `json:"text"`
}

// MaxSubjects is how many subjects of an event are named.
const MaxSubjects = 10

// A Matrix has the requests in flight, by Envoy and endpoint.
type Matrix struct {
	Cluster        string      `json:"cluster"`
	At             Time        `json:"at"`
	Endpoints      []string    `json:"endpoints"`       // addresses, sorted
	EndpointTotals []int       `json:"endpoint_totals"` // requests in flight at each
	Envoys         []MatrixRow `json:"envoys"`          // the busiest first
	EnvoysLeftOut  int         `json:"envoys_left_out"` // an answer has at most 250,000 numbers
	Total          int         `json:"total"`
}

// A MatrixRow is one Envoy's requests in flight.
type MatrixRow struct {
	NodeID   string `json:"node_id"`
	Host     string `json:"host"`
	Source   string `json:"source"`    // `access_log` or `load_reports`
	InFlight []int  `json:"in_flight"` // at each of `endpoints`
	Total    int    `json:"total"`
}
