package replicas

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"steelyard/collectors/replicas/merge"
	"steelyard/weighting"
	"steelyard/weighting/flight"
)

// The header of a message.
const (
	magic   = "SYRP"
	version = 4
)

// Bounds on what a message holds.
const (
	maxMessage = 256 << 10 // bytes of one that is published
	maxState   = 16 << 20  // bytes of a whole state
	maxText    = 1024      // bytes of a name or an address
	maxError   = 200       // bytes of the error of a scrape, or of its doubt
	maxCount   = 1 << 30   // requests in flight
	maxAge     = 24 * time.Hour
)

// errVersion reports a message of another version.
var errVersion = errors.New("a message of another version")

// encode returns the bytes of a message. Ages are relative to now.
func encode(m *merge.Message, now time.Time) []byte {
	c := &coder{b: append([]byte(magic), version), now: now}
	c.message(m)
	return c.b
}

// decode reads a message of at most `most` bytes that arrived at now.
func decode(b []byte, now time.Time, most int) (*merge.Message, error) {
	if len(b) > most || len(b) < len(magic)+1 || string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("%d bytes are not a replica's message", len(b))
	}
	if b[len(magic)] != version {
		return nil, fmt.Errorf("%w: %d", errVersion, b[len(magic)])
	}
	c, m := &coder{b: b[len(magic)+1:], reads: true, now: now}, &merge.Message{}
	c.message(m)
	if c.failed || len(c.b) > 0 || m.From == "" || m.Seq == 0 {
		return nil, errors.New("a replica's message is incomplete or malformed")
	}
	return m, nil
}

// A coder writes or reads values in order, so that both directions have the same fields. After the first value that is
// missing it reads zeros.
type coder struct {
	b      []byte // what is written, or what is left to read
	reads  bool
	failed bool
	now    time.Time
}

// The least encoded size of an item, in bytes: a list allocates no more items than the message can hold.
const (
	leastCluster = 16
	leastPart    = 35
	leastScrape  = 8
)

func (c *coder) message(m *merge.Message) {
	c.text((*string)(&m.From), maxText)
	c.text(&m.Name, maxText)
	whole(c, &m.Seq, math.MaxUint64)
	c.bool(&m.Leaving)
	list(c, &m.Clusters, leastCluster, c.cluster)
	if c.reads && len(c.b) > maxMessage { // scrapes are published only
		c.fail()
	}
	list(c, &m.Scrapes, leastScrape, c.scrape)
}

func (c *coder) cluster(m *merge.Cluster) {
	h := &m.Head
	c.text(&m.Name, maxText)
	for _, n := range []*int{&h.Watching, &h.Events, &h.Reports, &h.Reconciled} {
		whole(c, n, maxCount)
	}
	c.float(&h.Rate)
	c.duration(&h.Age)
	c.duration(&h.Interval)
	list(c, &m.Parts, leastPart, c.part)
}

func (c *coder) part(p *flight.Part) {
	c.text(&p.Address, maxText)
	whole(c, &p.InFlight, maxCount)
	for _, n := range merge.Counts(&p.Sums) {
		whole(c, n, math.MaxInt64)
	}
	c.float(&p.Sums.Latency)
	c.float(&p.Sums.Bytes)
	c.float(&p.Sums.RefusedBytes)
}

func (c *coder) scrape(s *merge.Scrape) {
	c.text(&s.Cluster, maxText)
	c.text(&s.Address, maxText)
	age := c.now.Sub(s.At)
	c.duration(&age)
	c.date(&s.At, c.now.Add(-age))
	c.duration(&s.Took)
	c.bool(&s.Refused)
	c.text(&s.Error, maxError)
	if s.Error == "" {
		c.text(&s.Doubt, maxError)
		c.report(&s.Report, s.At)
		c.text(&s.WrongCounters, maxError)
	}
}

// report codes a number with a bit for each reading that is known and one for the tokens, and then those. All that a
// scrape reports is from one moment, at.
func (c *coder) report(r *weighting.ServerReport, at time.Time) {
	known := 0
	for i, f := range readings(r) {
		if f.Known() {
			known |= 1 << i
		}
	}
	if !r.Tokens.At.IsZero() {
		known |= withTokens
	}
	whole(c, &known, 2*withTokens-1)
	for i, f := range readings(r) {
		if known&(1<<i) != 0 {
			c.float(&f.Value)
			c.date(&f.At, at)
		}
	}
	if known&withTokens != 0 {
		c.date(&r.Tokens.At, at)
		for _, n := range tokens(&r.Tokens) {
			c.float(n)
		}
	}
	whole(c, &r.Restarts, maxCount)
	whole(c, &r.Implausible, maxCount)
}

// readings returns the fields that can be unknown independently.
func readings(r *weighting.ServerReport) [8]*weighting.Reading {
	return [...]*weighting.Reading{&r.Queue, &r.Running, &r.Utilization, &r.BlockTokens, &r.Completions,
		&r.QueueSeconds, &r.BusySeconds, &r.Awake}
}

// withTokens marks a report with tokens. It shares a number with a bit for each reading; version must rise when they
// change.
const withTokens = 1 << 8

func tokens(t *weighting.TokenCounts) [5]*float64 {
	return [...]*float64{&t.Prompt, &t.Cached, &t.Generated, &t.First, &t.Iterations}
}

func (c *coder) fail() { c.failed, c.b = true, nil }

// take reads the next n bytes; nil if there are not as many.
func (c *coder) take(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.fail()
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

// uvarint reads a number that is at most `most`.
func (c *coder) uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 || v > most {
		c.fail()
		return 0
	}
	c.b = c.b[n:]
	return v
}

// date sets a time that is not in the message by itself.
func (c *coder) date(t *time.Time, at time.Time) {
	if c.reads {
		*t = at
	}
}

// whole codes a number from 0 to `most`; a negative one is written as 0.
func whole[T int | int64 | uint64](c *coder, v *T, most uint64) {
	if c.reads {
		*v = T(c.uvarint(most))
	} else {
		c.b = binary.AppendUvarint(c.b, uint64(max(0, *v)))
	}
}

// list codes items of at least `least` bytes each.
func list[T any](c *coder, items *[]T, least int, item func(*T)) {
	n := len(*items)
	whole(c, &n, uint64(len(c.b)/least))
	if c.reads {
		*items = make([]T, n)
	}
	for i := range *items {
		item(&(*items)[i])
	}
}

// text codes a text, of which it writes `most` bytes.
func (c *coder) text(s *string, most int) {
	n := min(len(*s), most)
	whole(c, &n, maxText)
	if c.reads {
		*s = string(c.take(uint64(n)))
	} else {
		c.b = append(c.b, (*s)[:n]...)
	}
}

func (c *coder) byte(v *byte) {
	if !c.reads {
		c.b = append(c.b, *v)
	} else if b := c.take(1); b != nil {
		*v = b[0]
	}
}

func (c *coder) bool(v *bool) {
	n := byte(0)
	if *v {
		n = 1
	}
	c.byte(&n)
	*v = n != 0
}

// float codes a number that can be a sum or a gauge.
func (c *coder) float(v *float64) {
	if !c.reads {
		c.b = binary.LittleEndian.AppendUint64(c.b, math.Float64bits(*v))
		return
	}
	*v = 0
	if b := c.take(8); b != nil {
		*v = math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	if !(*v >= 0) || math.IsInf(*v, 0) {
		c.fail()
		*v = 0
	}
}

// duration codes microseconds.
func (c *coder) duration(d *time.Duration) {
	microseconds := max(0, *d).Microseconds()
	whole(c, &microseconds, uint64(maxAge.Microseconds()))
	if c.reads {
		*d = time.Duration(microseconds) * time.Microsecond
	}
}
