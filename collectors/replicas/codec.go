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
	version = 2
)

// Bounds on what a message holds.
const (
	maxMessage = 256 << 10 // bytes of one that is published
	maxState   = 16 << 20  // bytes of a whole state
	maxText    = 1024      // bytes of a name or an address
	maxError   = 200       // bytes of the error of a scrape
	maxCount   = 1 << 30   // requests in flight
	maxAge     = 24 * time.Hour
)

// errVersion reports a message of another version.
var errVersion = errors.New("a message of another version")

// encode returns the bytes of a message. Ages are relative to now.
func encode(m *merge.Message, now time.Time) []byte {
	b := append([]byte(magic), version)
	b = appendText(b, string(m.From))
	b = appendText(b, m.Name)
	b = binary.AppendUvarint(b, m.Seq)
	b = appendBool(b, m.Leaving)
	b = binary.AppendUvarint(b, uint64(len(m.Clusters)))
	for i := range m.Clusters {
		b = appendCluster(b, &m.Clusters[i])
	}
	b = binary.AppendUvarint(b, uint64(len(m.Scrapes)))
	for i := range m.Scrapes {
		b = appendScrape(b, &m.Scrapes[i], now)
	}
	return b
}

func appendCluster(b []byte, c *merge.Cluster) []byte {
	h := &c.Head
	b = appendText(b, c.Name)
	for _, n := range []int{h.Watching, h.Events, h.Reports, h.Reconciled} {
		b = binary.AppendUvarint(b, uint64(max(0, n)))
	}
	b = appendFloat(b, h.Rate)
	b = appendDuration(appendDuration(b, h.Age), h.Interval)
	b = binary.AppendUvarint(b, uint64(len(c.Parts)))
	for i := range c.Parts {
		p := &c.Parts[i]
		b = appendText(b, p.Address)
		b = binary.AppendUvarint(b, uint64(max(0, p.InFlight)))
		for _, n := range merge.Counts(&p.Sums) {
			b = binary.AppendUvarint(b, *n)
		}
		b = appendFloat(appendFloat(b, p.Sums.Latency), p.Sums.Bytes)
	}
	return b
}

func appendScrape(b []byte, s *merge.Scrape, now time.Time) []byte {
	b = appendText(appendText(b, s.Cluster), s.Address)
	b = appendDuration(appendDuration(b, now.Sub(s.At)), s.Took)
	b = appendBool(b, s.Refused)
	b = appendText(b, s.Error[:min(len(s.Error), maxError)])
	if s.Error != "" {
		return b
	}
	r := s.Report
	known := byte(0)
	for i, f := range readings(&r) {
		if f.Known() {
			known |= 1 << i
		}
	}
	if !r.Tokens.At.IsZero() {
		known |= withTokens
	}
	b = append(b, known)
	for _, f := range readings(&r) {
		if f.Known() {
			b = appendFloat(b, f.Value)
		}
	}
	if known&withTokens != 0 {
		for _, n := range tokens(&r.Tokens) {
			b = appendFloat(b, *n)
		}
	}
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(max(0, r.Restarts))), uint64(max(0, r.Implausible)))
}

// readings returns the fields that can be unknown independently. All that a scrape reports is from one moment.
func readings(r *weighting.ServerReport) [7]*weighting.Reading {
	return [...]*weighting.Reading{&r.Queue, &r.Running, &r.Utilization, &r.BlockTokens, &r.Completions,
		&r.QueueSeconds, &r.BusySeconds}
}

// withTokens marks a report with tokens. It shares a byte with a bit for each reading, so there can be seven of them;
// version must rise when they change.
const withTokens = 1 << 7

func tokens(t *weighting.TokenCounts) [5]*float64 {
	return [...]*float64{&t.Prompt, &t.Cached, &t.Generated, &t.First, &t.Iterations}
}

func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), maxText)]
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendFloat(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}

// appendDuration appends microseconds.
func appendDuration(b []byte, d time.Duration) []byte {
	return binary.AppendUvarint(b, uint64(max(0, d).Microseconds()))
}

// decode reads a message of at most `most` bytes that arrived at now.
func decode(b []byte, now time.Time, most int) (*merge.Message, error) {
	if len(b) > most || len(b) < len(magic)+1 || string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("%d bytes are not a replica's message", len(b))
	}
	if b[len(magic)] != version {
		return nil, fmt.Errorf("%w: %d", errVersion, b[len(magic)])
	}
	d := &decoder{b: b[len(magic)+1:]}
	m := &merge.Message{From: merge.ID(d.text()), Name: d.text(), Seq: d.uvarint(), Leaving: d.bool()}
	m.Clusters = make([]merge.Cluster, d.length(leastCluster))
	for i := range m.Clusters {
		d.cluster(&m.Clusters[i])
	}
	if len(d.b) > maxMessage { // scrapes are published only
		d.fail()
	}
	m.Scrapes = make([]merge.Scrape, d.length(leastScrape))
	for i := range m.Scrapes {
		d.scrape(&m.Scrapes[i], now)
	}
	if d.failed || len(d.b) > 0 || m.From == "" || m.Seq == 0 {
		return nil, errors.New("a replica's message is incomplete or malformed")
	}
	return m, nil
}

// A decoder reads values in order. After the first one that is missing it returns zeros.
type decoder struct {
	b      []byte
	failed bool
}

func (d *decoder) fail() {
	d.failed, d.b = true, nil
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// bounded reads a number that is at most `most`.
func (d *decoder) bounded(most uint64) uint64 {
	v := d.uvarint()
	if v > most {
		d.fail()
		return 0
	}
	return v
}

// The least encoded size of an item, in bytes: a list allocates no more items than the message can hold.
const (
	leastCluster = 16
	leastPart    = 25
	leastScrape  = 8
)

// length reads the length of a list whose items have at least `least` bytes each.
func (d *decoder) length(least int) int {
	n := d.bounded(uint64(len(d.b) / least))
	if d.failed {
		return 0
	}
	return int(n)
}

func (d *decoder) text() string {
	n := d.bounded(maxText)
	if n > uint64(len(d.b)) {
		d.fail()
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) bool() bool { return d.byte() != 0 }

// float reads a number that can be a sum or a gauge.
func (d *decoder) float() float64 {
	if len(d.b) < 8 {
		d.fail()
		return 0
	}
	v := math.Float64frombits(binary.LittleEndian.Uint64(d.b))
	d.b = d.b[8:]
	if !(v >= 0) || math.IsInf(v, 0) {
		d.fail()
		return 0
	}
	return v
}

func (d *decoder) duration() time.Duration {
	return time.Duration(d.bounded(uint64(maxAge.Microseconds()))) * time.Microsecond
}

func (d *decoder) cluster(c *merge.Cluster) {
	h := &c.Head
	c.Name = d.text()
	for _, n := range []*int{&h.Watching, &h.Events, &h.Reports, &h.Reconciled} {
		*n = int(d.bounded(maxCount))
	}
	h.Rate, h.Age, h.Interval = d.float(), d.duration(), d.duration()
	c.Parts = make([]flight.Part, d.length(leastPart))
	for i := range c.Parts {
		p := &c.Parts[i]
		p.Address, p.InFlight = d.text(), int64(d.bounded(maxCount))
		for _, n := range merge.Counts(&p.Sums) {
			*n = d.bounded(math.MaxInt64)
		}
		p.Sums.Latency, p.Sums.Bytes = d.float(), d.float()
	}
}

func (d *decoder) scrape(s *merge.Scrape, now time.Time) {
	s.Cluster, s.Address = d.text(), d.text()
	s.At = now.Add(-d.duration())
	s.Took, s.Refused, s.Error = d.duration(), d.bool(), d.text()
	if s.Error != "" {
		return
	}
	known := d.byte()
	for i, f := range readings(&s.Report) {
		if known&(1<<i) != 0 {
			*f = weighting.Reading{Value: d.float(), At: s.At}
		}
	}
	if known&withTokens != 0 {
		s.Report.Tokens.At = s.At
		for _, n := range tokens(&s.Report.Tokens) {
			*n = d.float()
		}
	}
	s.Report.Restarts, s.Report.Implausible = int(d.bounded(maxCount)), int(d.bounded(maxCount))
}
