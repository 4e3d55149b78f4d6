package weighting

// What counts as a reading, and how it ages
//
// A value that is negative or not finite is no reading, and neither is one from more than a second ahead of the loop's
// clock. A field that an endpoint never reported is unknown and not zero: where others of the pool report it, the
// median stands in and the load counts as neutral; where no endpoint does, it is no part of any load. The median is
// that of the levels of the fresh and held loads; while a whole source is away, that of the fading ones.

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Bounds on values: larger ones count as these. Sums over a pool stay finite, a float64 still counts in ones, and a
// garbage count is one full endpoint and no more.
const (
	largestCount = 1e5  // requests at one endpoint
	largestSum   = 1e15 // of a cumulative field
	largestBytes = 1e18 // of the sizes of requests
)

// valid returns the reading, or the unknown one where its value cannot be a count, a sum or a share (an exporter's NaN
// is no load), or its time is so far ahead that it would stay fresh for ever and keep true readings out.
func valid(r Reading, now time.Time, largest float64) Reading {
	const skew = time.Second // more than that between two clocks is an error
	if !r.Known() || !(r.Value >= 0) || math.IsInf(r.Value, 0) || r.At.Sub(now) > skew {
		return Reading{}
	}
	r.Value = min(r.Value, largest)
	return r
}

// validReport is the report without invalid readings.
func validReport(r ServerReport, now time.Time) ServerReport {
	for _, gauge := range r.gauges() {
		*gauge = valid(*gauge, now, largestCount)
	}
	for _, sum := range r.sums() {
		*sum = valid(*sum, now, largestSum)
	}
	r.Tokens = validTokens(r.Tokens, now)
	return r
}

// validTokens is the same for counts of tokens, which come as one.
func validTokens(t TokenCounts, now time.Time) TokenCounts {
	for _, count := range []*float64{&t.Prompt, &t.Cached, &t.Generated, &t.First, &t.Iterations} {
		r := valid(Reading{*count, t.At}, now, largestSum)
		if !r.Known() {
			return TokenCounts{}
		}
		*count = r.Value
	}
	return t
}

// validProxies is the same for what proxies report.
func validProxies(r ProxyReport, now time.Time) ProxyReport {
	for _, sum := range r.requests() {
		*sum = valid(*sum, now, largestSum)
	}
	r.SizedBytes = valid(r.SizedBytes, now, largestBytes)
	r.RefusedBytes = valid(r.RefusedBytes, now, largestBytes)
	return r
}

// A frozen gauge is one of waiting requests that does not change, while the number running does. Its value contradicts
// that, whatever it counts: a queue gets shorter when a request begins to execute, and longer when one arrives. Where a
// full queue always has the same length, the number running does not change either. Where so many waited while none
// ran, the first change of the number running is enough: those that wait would have run.
type frozen struct {
	changes int // of the number running, since the value was another
	idle    int // reports in a row with this queue and none running
}

// stuckAfter is a budget: so many changes of the number running, with the queue unchanged, cannot be coincidence. While
// such gauges counted, the mean with one that stays at 40 was 0.12 s instead of 0.095 (docs/design/ablation.md).
const stuckAfter = 10

// observe takes in what a server did, and its report.
func (s *frozen) observe(did *served, seen *ServerReport) {
	switch {
	case did.queue.dt == 0:
	case did.queue.by != 0 || seen.Queue.Value == 0:
		*s = frozen{}
	case did.running.by != 0 && s.idle >= stuckAfter:
		s.changes, s.idle = stuckAfter, 0 // those that waited would have run
	case did.running.by != 0:
		s.changes++
		s.idle = 0
	case seen.Running.Known() && seen.Running.Value == 0:
		s.idle++
	}
}

func (s *frozen) stuck() bool { return s.changes >= stuckAfter }

// merge returns the newest reading of each field of two reports.
func merge(a, b *ServerReport) ServerReport {
	merged := ServerReport{
		Tokens:      newestTokens(a.Tokens, b.Tokens),
		Restarts:    max(a.Restarts, b.Restarts),
		Implausible: max(a.Implausible, b.Implausible),
	}
	takeNewest(merged.gauges(), a.gauges(), b.gauges())
	takeNewest(merged.sums(), a.sums(), b.sums())
	return merged
}

func takeNewest(merged, a, b []*Reading) {
	for i, r := range merged {
		*r = newest(*a[i], *b[i])
	}
}

// newestTokens returns the later of two; of two with the same time, the one with more requests.
func newestTokens(a, b TokenCounts) TokenCounts {
	order := cmp.Or(
		a.At.Compare(b.At), cmp.Compare(a.First, b.First), cmp.Compare(a.Prompt, b.Prompt),
		cmp.Compare(a.Cached, b.Cached),
		cmp.Compare(a.Generated, b.Generated), cmp.Compare(a.Iterations, b.Iterations),
	)
	if order < 0 {
		return b
	}
	return a
}

// unite merges two entries of one address; the result is the same whichever comes first.
func unite(a, b *Endpoint, now time.Time) *Endpoint {
	serverA, serverB := validReport(a.Server, now), validReport(b.Server, now)
	return &Endpoint{
		Address:  a.Address,
		Zone:     max(a.Zone, b.Zone),
		Capacity: max(a.Capacity, b.Capacity),
		Server:   merge(&serverA, &serverB),
		Refused:  a.Refused && b.Refused,
		InFlight: newest(valid(a.InFlight, now, largestCount), valid(b.InFlight, now, largestCount)),
		Exact:    a.Exact && b.Exact,
		Proxies:  mergeProxies(validProxies(a.Proxies, now), validProxies(b.Proxies, now)),
		Override: Override{
			Drained: a.Override.Drained || b.Override.Drained,
			Share:   max(a.Override.Share, b.Override.Share),
		},
	}
}

// mergeProxies is the newest of every sum of two reports.
func mergeProxies(a, b ProxyReport) ProxyReport {
	merged := ProxyReport{
		SizedBytes: newest(a.SizedBytes, b.SizedBytes), RefusedBytes: newest(a.RefusedBytes, b.RefusedBytes),
		Partial: a.Partial || b.Partial,
	}
	takeNewest(merged.requests(), a.requests(), b.requests())
	return merged
}

// field is a reading as it counts in this step.
type field struct {
	Reading
	age   time.Duration
	state FieldState
	fade  float64 // how much of it has turned into the pool's median, 0..1
}

// at returns the reading with its age and its state at that time.
func (p *Params) at(r Reading, now time.Time) field {
	f := field{Reading: r, state: StateUnknown}
	if !r.Known() {
		return f
	}
	switch f.age = r.Age(now); {
	case f.age <= p.Fresh:
		f.state = StateFresh
	case f.age <= p.Hold:
		f.state = StateHold
	case f.age <= p.Decay:
		f.state = StateDecay
		f.fade = float64(f.age-p.Hold) / float64(p.Decay-p.Hold)
	default:
		f.state, f.fade = StateNeutral, 1
	}
	return f
}

// trusted reports whether a field in this state is used as it is.
func trusted(s FieldState) bool { return s == StateFresh || s == StateHold }

// usable reports whether anything of the field is the endpoint's own: one that has turned into the pool's median is not
// usable.
func (f *field) usable() bool { return trusted(f.state) || f.state == StateDecay }

// blend is the field faded into what a median endpoint of this one's size would report. Without a median, a field
// counts as read until nothing of it is left, and then ok is false.
func (f *field) blend(median float64) (value float64, ok bool) {
	switch {
	case f.state == StateUnknown || f.state == StateStuck:
		return 0, false
	case f.fade == 0:
		return f.Value, true
	case math.IsNaN(median):
		return f.Value, f.fade < 1
	}
	return f.Value*(1-f.fade) + median*f.fade, true
}

// median of the values; NaN for none. It reorders its argument.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
