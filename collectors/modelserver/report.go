package modelserver

import (
	"encoding/json"
	"math"
)

// A Number is one figure of a Report. The zero Number is unknown, and unknown
// is not zero: a server whose queue cannot be read is not an idle one.
type Number struct {
	Value float64
	Known bool
}

// MarshalJSON writes the value, or null where it is unknown.
func (n Number) MarshalJSON() ([]byte, error) {
	if !n.Known {
		return []byte("null"), nil
	}
	return json.Marshal(n.Value)
}

// known makes a Number of a measured value. What no server can truthfully report
// (negative, infinite, not a number) stays unknown.
func known(v float64) Number {
	if !plausible(v) {
		return Number{}
	}
	return Number{Value: v + 0, Known: true} // + 0 turns -0 into 0
}

// plausible reports whether a count, a share or a time can have this value.
func plausible(v float64) bool { return v >= 0 && !math.IsInf(v, 1) }

// A Report is the load of a server by one metrics body.
type Report struct {
	Queue       Number `json:"queue"`       // requests waiting to execute
	Running     Number `json:"running"`     // requests executing
	Utilization Number `json:"utilization"` // share of the KV cache in use, 0..1

	BlockTokens Number `json:"block_tokens"` // size of a block of the prefix cache
	Awake       Number `json:"awake"`        // 0 while the engine sleeps and takes no requests, else 1

	// Counters as they are in the body: they restart when the server (or, with Triton, one of its models) does.
	// Counters makes sums of them.
	Completions  Number `json:"completions"`   // requests completed
	QueueSeconds Number `json:"queue_seconds"` // request-seconds spent waiting
	BusySeconds  Number `json:"busy_seconds"`  // request-seconds spent executing

	// Counters of tokens, of engines that generate text.
	PromptTokens    Number `json:"prompt_tokens"`    // of requests with a first token, cached ones included
	CachedTokens    Number `json:"cached_tokens"`    // of those, the ones that a prefix cache answered
	GeneratedTokens Number `json:"generated_tokens"` // tokens
	FirstTokens     Number `json:"first_tokens"`     // requests whose first token is generated
	Iterations      Number `json:"iterations"`       // of the scheduler

	// Doubt is why a number of the load is unknown although its series are there; empty for none.
	Doubt string `json:"doubt,omitempty"`

	// series holds every counter sample behind the sums above. A sum does not show that one of its parts has restarted,
	// so Counters works on the parts.
	series []counterSample
}

// A counterSample is one sample of a counter series.
type counterSample struct {
	field Field
	key   string  // the series' name and labels: the same from body to body
	value float64 // in the unit of the field
	unit  int     // the number, in this report, of the part of the server that it is of
}

// number returns where the report keeps a field.
func (r *Report) number(f Field) *Number {
	switch f {
	case FieldQueue:
		return &r.Queue
	case FieldRunning:
		return &r.Running
	case FieldUtilization:
		return &r.Utilization
	case FieldBlockTokens:
		return &r.BlockTokens
	case FieldAwake:
		return &r.Awake
	case FieldCompletions:
		return &r.Completions
	case FieldQueueSeconds:
		return &r.QueueSeconds
	case FieldBusySeconds:
		return &r.BusySeconds
	case FieldPromptTokens:
		return &r.PromptTokens
	case FieldCachedTokens:
		return &r.CachedTokens
	case FieldGeneratedTokens:
		return &r.GeneratedTokens
	case FieldFirstTokens:
		return &r.FirstTokens
	default:
		return &r.Iterations
	}
}

// Field is the name of a field of a Report, as in its JSON.
type Field string

// The fields of a Report.
const (
	FieldQueue           Field = "queue"
	FieldRunning         Field = "running"
	FieldUtilization     Field = "utilization"
	FieldBlockTokens     Field = "block_tokens"
	FieldAwake           Field = "awake"
	FieldCompletions     Field = "completions"
	FieldQueueSeconds    Field = "queue_seconds"
	FieldBusySeconds     Field = "busy_seconds"
	FieldPromptTokens    Field = "prompt_tokens"
	FieldCachedTokens    Field = "cached_tokens"
	FieldGeneratedTokens Field = "generated_tokens"
	FieldFirstTokens     Field = "first_tokens"
	FieldIterations      Field = "iterations"
)

// fields lists them, in the order in which they are explained.
var fields = []Field{FieldQueue, FieldRunning, FieldUtilization, FieldBlockTokens, FieldAwake, FieldCompletions,
	FieldQueueSeconds, FieldBusySeconds, FieldPromptTokens, FieldCachedTokens, FieldGeneratedTokens,
	FieldFirstTokens, FieldIterations}

// counter reports whether the field is cumulative.
func (f Field) counter() bool {
	return f != FieldQueue && f != FieldRunning && f != FieldUtilization && f.load()
}

// load reports whether the field says something of the load.
func (f Field) load() bool { return f != FieldBlockTokens && f != FieldAwake }

// atMost is the largest value that the field can have.
func (f Field) atMost() float64 {
	if f == FieldUtilization || f == FieldAwake {
		return 1
	}
	return math.MaxFloat64
}

// expected is what a value of the field must be, in words.
func (f Field) expected() string {
	if f.atMost() == 1 {
		return "a share, 0 to 1"
	}
	return "a number, 0 or more"
}
