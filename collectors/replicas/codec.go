package replicas

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fxamacker/cbor/v2"

	"steelyard/collectors/replicas/merge"
	"steelyard/internal/api"
	"steelyard/weighting/flight"
)

// The header of a message; CBOR follows. A change of what a message has raises the version.
const (
	magic   = "SYRP"
	version = 6
	header  = len(magic) + 1 // bytes
)

// Bounds on what a message holds.
const (
	maxMessage = 256 << 10 // bytes
	maxText    = 1024      // bytes of a name or an address
	maxCount   = 1 << 30   // requests in flight, or Envoys
	maxAge     = 24 * time.Hour
	maxRun     = 100 * 365 * 24 * time.Hour // of a connection
)

// errVersion reports a message of another version.
var errVersion = errors.New("a message of another version")

// A message in the form in which it is sent: each field has a number, and one that is zero is left out. The compiler
// wants all fields of the types that are converted.
type (
	message struct {
		From     merge.ID  `cbor:"1,keyasint"`
		Name     string    `cbor:"2,keyasint,omitempty"`
		Seq      uint64    `cbor:"3,keyasint"`
		Leaving  bool      `cbor:"4,keyasint,omitempty"`
		Clusters []cluster `cbor:"5,keyasint,omitempty"`
		Envoys   *envoys   `cbor:"6,keyasint,omitempty"`
		Routes   []route   `cbor:"7,keyasint,omitempty"`
		Wants    merge.ID  `cbor:"8,keyasint,omitempty"`
		Gave     merge.ID  `cbor:"9,keyasint,omitempty"`
	}
	route struct {
		Cluster  string        `cbor:"1,keyasint"`
		Endpoint string        `cbor:"2,keyasint"`
		Hashes   []byte        `cbor:"3,keyasint,omitempty"` // 8 bytes each, big endian
		Kept     bool          `cbor:"4,keyasint,omitempty"`
		Age      time.Duration `cbor:"5,keyasint,omitempty"`
	}
	envoys struct { // merge.Envoys
		List    []envoy `cbor:"1,keyasint,omitempty"`
		LeftOut int     `cbor:"2,keyasint,omitempty"`
	}
	envoy struct { // merge.Envoy
		Kind      api.FollowerKind `cbor:"1,keyasint"`
		Name      string           `cbor:"2,keyasint,omitempty"`
		Address   string           `cbor:"3,keyasint,omitempty"`
		State     api.EnvoyState   `cbor:"4,keyasint,omitempty"`
		Clusters  []string         `cbor:"5,keyasint,omitempty"`
		Connected time.Duration    `cbor:"6,keyasint,omitempty"`
		Acked     time.Duration    `cbor:"7,keyasint,omitempty"`
	}
	cluster struct {
		Name  string   `cbor:"1,keyasint"`
		Head  watchers `cbor:"2,keyasint"`
		Parts []part   `cbor:"3,keyasint,omitempty"`
	}
	watchers struct { // flight.Watchers
		Watching   int           `cbor:"1,keyasint,omitempty"`
		Events     int           `cbor:"2,keyasint,omitempty"`
		Reports    int           `cbor:"3,keyasint,omitempty"`
		Reconciled int           `cbor:"4,keyasint,omitempty"`
		Rate       float64       `cbor:"5,keyasint,omitempty"`
		Age        time.Duration `cbor:"6,keyasint,omitempty"`
		Interval   time.Duration `cbor:"7,keyasint,omitempty"`
	}
	part struct {
		Address  string `cbor:"1,keyasint"`
		InFlight int64  `cbor:"2,keyasint,omitempty"`
		Sums     sums   `cbor:"3,keyasint"`
	}
	sums struct { // flight.Sums
		Issued       uint64  `cbor:"1,keyasint,omitempty"`
		Hashed       uint64  `cbor:"2,keyasint,omitempty"`
		Ended        uint64  `cbor:"3,keyasint,omitempty"`
		Failed       uint64  `cbor:"4,keyasint,omitempty"`
		Errors       uint64  `cbor:"5,keyasint,omitempty"`
		Succeeded    uint64  `cbor:"6,keyasint,omitempty"`
		Answered     uint64  `cbor:"7,keyasint,omitempty"`
		Latency      float64 `cbor:"8,keyasint,omitempty"`
		Sized        uint64  `cbor:"9,keyasint,omitempty"`
		Bytes        float64 `cbor:"10,keyasint,omitempty"`
		Refused      uint64  `cbor:"11,keyasint,omitempty"`
		RefusedBytes float64 `cbor:"12,keyasint,omitempty"`
	}
)

// encode returns the bytes of a message.
func encode(m *merge.Message) []byte {
	out := message{From: m.From, Name: m.Name[:min(len(m.Name), maxText)], Seq: m.Seq, Leaving: m.Leaving,
		Clusters: make([]cluster, len(m.Clusters)), Routes: routesOf(m.Routes), Wants: m.Wants, Gave: m.Gave}
	for i := range m.Clusters {
		c := &m.Clusters[i]
		parts := make([]part, len(c.Parts))
		for j, p := range c.Parts {
			parts[j] = part{p.Address, max(0, p.InFlight), sums(p.Sums)}
		}
		out.Clusters[i] = cluster{c.Name, watchers(c.Head), parts}
	}
	if m.Envoys != nil {
		out.Envoys = &envoys{LeftOut: m.Envoys.LeftOut}
		for _, e := range m.Envoys.List {
			out.Envoys.List = append(out.Envoys.List, envoy(e))
		}
	}
	b, err := cbor.Marshal(out)
	if err != nil {
		panic(err) // no value of these types is refused
	}
	return append(append([]byte(magic), version), b...)
}

// reader takes names as they are, as they are only compared and shown.
var reader = func() cbor.DecMode {
	o := cbor.DecOptions{UTF8: cbor.UTF8DecodeInvalid, ExtraReturnErrors: cbor.ExtraDecErrorUnknownField}
	mode, err := o.DecMode()
	if err != nil {
		panic(err) // the options are constants
	}
	return mode
}()

// decode reads a message of at most `most` bytes.
func decode(b []byte, most int) (*merge.Message, error) {
	if len(b) > most || len(b) < header || string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("%d bytes are not a replica's message", len(b))
	}
	if b[len(magic)] != version {
		return nil, fmt.Errorf("%w: %d", errVersion, b[len(magic)])
	}
	var in message
	if err := reader.Unmarshal(b[header:], &in); err != nil {
		return nil, fmt.Errorf("a replica's message is malformed: %w", err)
	}
	if in.From == "" || in.Seq == 0 || max(len(in.From), len(in.Name), len(in.Wants), len(in.Gave)) > maxText {
		return nil, errors.New("a replica's message has no valid sender")
	}
	m := &merge.Message{From: in.From, Name: in.Name, Seq: in.Seq, Leaving: in.Leaving, Wants: in.Wants, Gave: in.Gave,
		Clusters: make([]merge.Cluster, len(in.Clusters))}
	for i, c := range in.Clusters {
		if !c.valid() {
			return nil, errors.New("a replica's message has a number or a name out of bounds")
		}
		parts := make([]flight.Part, len(c.Parts))
		for j, p := range c.Parts {
			parts[j] = flight.Part{Address: p.Address, InFlight: p.InFlight, Sums: flight.Sums(p.Sums)}
		}
		m.Clusters[i] = merge.Cluster{Name: c.Name, Head: flight.Watchers(c.Head), Parts: parts}
	}
	if err := in.more(m); err != nil {
		return nil, err
	}
	return m, nil
}

// more reads what a message has besides counts.
func (in *message) more(m *merge.Message) error {
	for i := range in.Routes {
		if !in.Routes[i].valid() {
			return errors.New("a replica's message has a route that is out of bounds")
		}
		m.Routes = append(m.Routes, in.Routes[i].route())
	}
	if in.Envoys != nil {
		if !in.Envoys.valid() {
			return errors.New("a replica's message has a list of Envoys that is out of bounds")
		}
		m.Envoys = &merge.Envoys{LeftOut: in.Envoys.LeftOut}
		for _, e := range in.Envoys.List {
			e.Clusters = append([]string(nil), e.Clusters...) // nil for none
			m.Envoys.List = append(m.Envoys.List, merge.Envoy(e))
		}
	}
	return nil
}

func (e *envoys) valid() bool {
	ok := len(e.List) <= merge.MaxEnvoys && e.LeftOut >= 0 && e.LeftOut <= maxCount
	for i := range e.List {
		v := &e.List[i]
		ok = ok && (v.Kind == api.FollowerEnvoy || v.Kind == api.FollowerPicker) && len(v.Clusters) <= maxFollowed
		for _, text := range append([]string{v.Name, v.Address, string(v.State)}, v.Clusters...) {
			ok = ok && len(text) <= maxText
		}
		for _, d := range []time.Duration{v.Connected, v.Acked} {
			ok = ok && d >= 0 && d <= maxRun
		}
	}
	return ok
}

func (c *cluster) valid() bool {
	ok := len(c.Name) <= maxText && number(c.Head.Rate)
	for _, n := range []int{c.Head.Watching, c.Head.Events, c.Head.Reports, c.Head.Reconciled} {
		ok = ok && n >= 0 && n <= maxCount
	}
	for _, d := range []time.Duration{c.Head.Age, c.Head.Interval} {
		ok = ok && d >= 0 && d <= maxAge
	}
	for i := range c.Parts {
		p, s := &c.Parts[i], (*flight.Sums)(&c.Parts[i].Sums)
		ok = ok && len(p.Address) <= maxText && p.InFlight >= 0 && p.InFlight <= maxCount &&
			number(s.Latency) && number(s.Bytes) && number(s.RefusedBytes)
		for _, n := range merge.Counts(s) {
			ok = ok && *n <= math.MaxInt64
		}
	}
	return ok
}

// number reports whether v can be a sum or a rate.
func number(v float64) bool { return v >= 0 && !math.IsInf(v, 1) }
