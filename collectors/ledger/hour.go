package ledger

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// While nobody follows the weights of a cluster, its requests are recorded, hour by hour, so that they can be
// simulated with weights. Two hours are kept: the current one, and the busiest of those before it, for a day.
const (
	recordedFor  = time.Hour
	recordedKept = 24 * time.Hour
	recordedStep = 10 * time.Second // of the arrivals
	serviceSteps = 500              // of Recording.Service
)

// A record is the hours of a cluster.
type record struct {
	on               bool
	current, busiest *hour // busiest is nil before the first hour is over
}

// An hour is what the Envoys of a cluster sent in an hour.
type hour struct {
	began, until time.Time // until is zero for the current one
	requests     uint64
	arrivals     [recordedFor / recordedStep]uint32
	envoys       map[Envoy]uint64 // requests of each
	endpoints    map[*member]*hourOf
}

// An hourOf is the part of an endpoint.
type hourOf struct {
	requests, answered uint64
	at                 time.Time // up to which the next two are added up
	level              float64   // requests in flight since then
	held, busy         float64   // seconds of requests in flight, and of those of them that had a slot
	times              [timeBuckets]uint32
	service            [timeBuckets]uint32 // of answers to requests that found a free slot: their time of service
}

// shortestRecord is how long a recording has to last to be kept: while an Envoy subscribes to one name after another,
// it may seem not to follow.
const shortestRecord = time.Minute

// Record starts or stops the recording of a cluster; what was recorded stays.
func (l *Ledger) Record(name string, on bool, now time.Time) {
	l.mu.Lock()
	defer l.release()
	c := l.clusters[name]
	switch {
	case c == nil || c.record == nil && !on:
	case c.record == nil:
		c.record = &record{on: on, current: newHour(now)}
	case !on && c.record.busiest == nil && now.Sub(c.record.current.began) < shortestRecord:
		c.record = nil
	case !on && c.record.on:
		c.record.end(now)
		c.record.on = false
	case on && !c.record.on:
		c.record.on, c.record.current = true, newHour(now)
	}
}

func newHour(now time.Time) *hour {
	return &hour{began: now, envoys: make(map[Envoy]uint64), endpoints: make(map[*member]*hourOf)}
}

// rotate begins a new hour when the current one is over.
func (r *record) rotate(now time.Time) {
	if r != nil && r.on && now.Sub(r.current.began) >= recordedFor {
		r.end(now)
	}
}

// end ends the current hour, and keeps it if it is the busiest.
func (r *record) end(now time.Time) {
	done := r.current
	done.until = now
	for m := range done.endpoints {
		done.of(m, now).level = 0
	}
	if b := r.busiest; b == nil || done.requests >= b.requests || now.Sub(b.began) > recordedKept {
		r.busiest = done
	}
	r.current = newHour(now)
}

// of returns the part of an endpoint, with its sums up to now.
func (h *hour) of(m *member, now time.Time) *hourOf {
	e := h.endpoints[m]
	if e == nil {
		e = &hourOf{at: h.began}
		h.endpoints[m] = e
	}
	passed := max(0, now.Sub(e.at)).Seconds()
	e.held += e.level * passed
	e.busy += min(e.level, m.at.served.slots) * passed
	e.at = now
	return e
}

// recordBegin notes a request that has begun, and is counted. It reports whether it found a free slot.
func (l *Ledger) recordBegin(a *account, now time.Time) (free bool) {
	m := a.member
	r := m.cluster.record
	if r == nil || !r.on || !a.watched {
		return false
	}
	h := r.current
	e := h.of(m, now)
	h.requests++
	h.envoys[a.envoy.node]++
	h.arrivals[min(len(h.arrivals)-1, int(now.Sub(h.began)/recordedStep))]++
	e.requests++
	e.level = float64(m.inFlight)
	return e.level <= m.at.served.slots
}

// recordEnd notes the end of a request.
func (l *Ledger) recordEnd(a *account, now time.Time, took float64, answered, free bool) {
	m := a.member
	r := m.cluster.record
	if r == nil || !r.on || !a.watched {
		return
	}
	e := r.current.of(m, now)
	e.level = float64(m.inFlight)
	if !answered {
		return
	}
	e.answered++
	e.times[bucketOf(took)]++
	if free {
		e.service[bucketOf(took)]++
	}
}

// A Recording is the busiest hour of a cluster of the last day while nobody followed its weights. Times are in
// seconds, to 4 %; NaN is unknown.
type Recording struct {
	Began     time.Time
	Length    time.Duration
	Requests  uint64
	Arrivals  []uint32 // by ten seconds
	P50, P99  float64  // to the last byte
	Envoys    []RecordedEnvoy
	Endpoints []RecordedEndpoint
	// Service is the distribution of the times of service, of requests that found a free slot: quantiles in equal
	// steps, over the mean of their endpoint. Empty where no slots are known.
	Service []float64
}

// A RecordedEnvoy is an Envoy with the requests that it sent.
type RecordedEnvoy struct {
	NodeID   string
	Requests uint64
}

// A RecordedEndpoint is an endpoint with what it got. ServiceSeconds is the mean time of a request in a slot: the time
// for which slots were taken, over the answers (the utilization law).
type RecordedEndpoint struct {
	Address                              string
	Requests, Answered                   uint64
	InFlight, P99, Slots, ServiceSeconds float64
}

// Recorded returns what was recorded of a cluster; false if that is nothing.
func (l *Ledger) Recorded(name string, now time.Time) (Recording, bool) {
	l.mu.Lock()
	defer l.release()
	c := l.clusters[name]
	if c == nil || c.record == nil {
		return Recording{}, false
	}
	h := c.record.current
	if b := c.record.busiest; b != nil && b.requests >= h.requests {
		h = b
	}
	return h.recording(now), h.requests > 0
}

// recording sums an hour up.
func (h *hour) recording(now time.Time) Recording {
	if !h.until.IsZero() {
		now = h.until
	}
	out := Recording{Began: h.began, Length: now.Sub(h.began), Requests: h.requests}
	out.Arrivals = slices.Clone(h.arrivals[:min(len(h.arrivals), int(out.Length/recordedStep)+1)])
	for envoy, n := range h.envoys {
		out.Envoys = append(out.Envoys, RecordedEnvoy{envoy.NodeID, n})
	}
	slices.SortFunc(out.Envoys, func(a, b RecordedEnvoy) int { return strings.Compare(a.NodeID, b.NodeID) })
	var all [timeBuckets]uint64
	var service []weighed
	for m := range h.endpoints {
		e := h.of(m, now)
		var own [timeBuckets]uint64
		slots := cmp.Or(m.at.served.slots, math.NaN())
		one := RecordedEndpoint{Address: m.address, Requests: e.requests, Answered: e.answered, Slots: slots,
			InFlight: e.held / out.Length.Seconds(), ServiceSeconds: math.NaN()}
		if e.answered > 0 && slots > 0 {
			one.ServiceSeconds = e.busy / float64(e.answered)
		}
		for i, n := range e.times {
			own[i] += uint64(n)
			all[i] += uint64(n)
		}
		one.P99 = quantile(&own, 0.99)
		service = append(service, shape(&e.service)...)
		out.Endpoints = append(out.Endpoints, one)
	}
	slices.SortFunc(out.Endpoints, func(a, b RecordedEndpoint) int { return strings.Compare(a.Address, b.Address) })
	out.P50, out.P99, out.Service = quantile(&all, 0.5), quantile(&all, 0.99), quantilesOf(service)
	return out
}

// A weighed value stands for n of its kind.
type weighed struct {
	value float64
	n     uint32
}

// shape is times over their mean.
func shape(times *[timeBuckets]uint32) (out []weighed) {
	var sum, n float64
	for i, k := range times {
		sum += float64(k) * middleOf(i)
		n += float64(k)
	}
	for i, k := range times {
		if k > 0 {
			out = append(out, weighed{middleOf(i) / (sum / n), k})
		}
	}
	return out
}

// quantilesOf returns the middles of equal parts of the values.
func quantilesOf(values []weighed) []float64 {
	slices.SortFunc(values, func(a, b weighed) int { return cmp.Compare(a.value, b.value) })
	var all float64
	for _, v := range values {
		all += float64(v.n)
	}
	var out []float64
	var below float64
	for _, v := range values {
		below += float64(v.n)
		for len(out) < serviceSteps && (float64(len(out))+0.5)/serviceSteps*all <= below {
			out = append(out, v.value)
		}
	}
	return out
}
