package view

// An IncidentKind is what an incident is about. Scripts may rely on it.
type IncidentKind string

// A Blame is whether Steelyard is the cause of an incident.
type Blame string

// The answers. Each comes with the fact that it stands on.
const (
	BlameNo      Blame = "no"
	BlameInPart  Blame = "in_part"
	BlameYes     Blame = "yes"
	BlameUnknown Blame = "unknown"
)

// A SubjectKind is what kind of thing an incident or an event is about.
type SubjectKind string

// The kinds of subjects.
const (
	SubjectProcess  SubjectKind = "process"
	SubjectCluster  SubjectKind = "cluster"
	SubjectEndpoint SubjectKind = "endpoint"
	SubjectEnvoy    SubjectKind = "envoy"
)

// A Subject is what an incident is about.
type Subject struct {
	Kind    SubjectKind `json:"kind"`
	Cluster string      `json:"cluster"` // empty for the process, and for an Envoy as a whole
	Name    string      `json:"name"`    // address of the endpoint, node id of the Envoy; empty otherwise
}

// An Incident is trouble that needs a person, in four parts: who and since when, why, whether Steelyard is the cause,
// and what to do. While it lasts, ID does not change, Title only when it gets worse, and Since only to an earlier
// time then.
type Incident struct {
	ID       string       `json:"id"`
	Kind     IncidentKind `json:"kind"`
	Severity Severity     `json:"severity"`
	Subject  Subject      `json:"subject"`
	Since    Time         `json:"since"`
	Title    string       `json:"title"`
	Why      string       `json:"why"`
	// Steelyard is whether it is the cause, and Because the fact behind the answer.
	Steelyard Blame  `json:"steelyard"`
	Because   string `json:"because"`
	Next      string `json:"next"`
	Command   string `json:"command"` // to copy; empty where there is none
}

// An EventKind is what happened.
type EventKind string

// The kinds of events.
const (
	EventStarted         EventKind = "started"          // of the process
	EventConfig          EventKind = "config"           // a configuration was applied
	EventConfigRefused   EventKind = "config_refused"   // the one before runs on
	EventEndpointsJoined EventKind = "endpoints_joined" // discovery found them
	EventEndpointsLeft   EventKind = "endpoints_left"
	EventFlagged         EventKind = "flagged" // Envoys are asked to prefer other endpoints
	EventUnflagged       EventKind = "unflagged"
	EventRetried         EventKind = "retried"     // an outlier was tried again, and is flagged again
	EventSourceLost      EventKind = "source_lost" // a source of a cluster, or the metrics of endpoints
	EventSourceBack      EventKind = "source_back"
	EventNack            EventKind = "nack"        // an Envoy refused an assignment
	EventDropsBegan      EventKind = "drops_began" // a saturated pool refuses requests
	EventDropsEnded      EventKind = "drops_ended"
	EventEnvoyJoined     EventKind = "envoys_joined"
	EventEnvoyLeft       EventKind = "envoys_left"
	EventOverride        EventKind = "override" // an operator changed a share by hand
)

// EventKinds are all of them.
func EventKinds() []EventKind {
	return []EventKind{EventStarted, EventConfig, EventConfigRefused, EventEndpointsJoined, EventEndpointsLeft,
		EventFlagged, EventUnflagged, EventRetried, EventSourceLost, EventSourceBack, EventNack, EventDropsBegan,
		EventDropsEnded, EventEnvoyJoined, EventEnvoyLeft, EventOverride}
}

// An Event is a change that was seen. Those of one kind and cluster within five seconds are one.
type Event struct {
	ID       uint64    `json:"id"` // rises by one with each
	At       Time      `json:"at"` // of the first
	LastAt   Time      `json:"last_at"`
	Kind     EventKind `json:"kind"`
	Cluster  string    `json:"cluster"`  // empty: of the process, or of an Envoy as a whole
	Subjects []string  `json:"subjects"` // endpoints, Envoys or sources that it is about; at most ten
	Count    int       `json:"count"`    // of subjects, or of times
	Text     string    `json:"text"`     // a sentence without the time
}

// MaxSubjects is how many subjects of an event are named.
const MaxSubjects = 10

// A Matrix has the requests in flight, by Envoy and endpoint.
type Matrix struct {
	Cluster        string      `json:"cluster"`
	At             Time        `json:"at"`
	Endpoints      []string    `json:"endpoints"`       // sorted by address
	EndpointTotals []int       `json:"endpoint_totals"` // over all Envoys, in that order
	Envoys         []MatrixRow `json:"envoys"`          // those with the most requests first
	EnvoysLeftOut  int         `json:"envoys_left_out"` // whose rows do not fit
	Total          int         `json:"total"`
}

// A MatrixRow is one Envoy's requests in flight.
type MatrixRow struct {
	NodeID   string `json:"node_id"`
	Host     string `json:"host"`      // its remote IP address
	Source   string `json:"source"`    // what counts them: "access_log" or "load_reports"
	InFlight []int  `json:"in_flight"` // at each of the endpoints
	Total    int    `json:"total"`
}
