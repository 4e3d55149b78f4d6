package places

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"steelyard/internal/api"
	"steelyard/picking"
	"steelyard/picking/queue"
	"steelyard/weighting"
	"steelyard/xds/loads/loadsv1"
)

// Settings are the settings of a cluster's queue.
type Settings = queue.Options

// A hall is the queue of one cluster with the streams whose requests wait in it.
type hall struct {
	cluster  string
	observer Observer

	mu      sync.Mutex
	leader  *leader
	closes  time.Time // nothing is granted from then on; zero: for ever
	queue   *queue.Queue
	counts  map[string]*api.QueueClass // only the counts in it
	streams map[uint64]*stream
	relayed int       // streams that are passed on
	last    uint64    // number of the newest stream
	ticked  time.Time // when tick was last called
}

func newHall(cluster string, o Observer, opens time.Time, l *leader, closes time.Time) *hall {
	h := &hall{cluster: cluster, observer: o, queue: queue.New(opens, rand.Float64), leader: l, closes: closes,
		counts: make(map[string]*api.QueueClass), streams: make(map[uint64]*stream)}
	h.queue.Close(closes)
	return h
}

// of returns the counts of a class.
func (h *hall) of(class string) *api.QueueClass {
	c := h.counts[class]
	if c == nil {
		c = &api.QueueClass{Name: class}
		h.counts[class] = c
	}
	return c
}

// give passes verdicts to their streams.
func (h *hall) give(verdicts []queue.Verdict) {
	for _, v := range verdicts {
		counts, result := h.of(v.Class), ResultReleased
		switch {
		case v.Refused != "":
			if result = string(v.Refused); v.Refused == queue.RefusedFull {
				counts.RefusedFull++
			} else {
				counts.RefusedTimeout++
			}
		case v.Endpoint != "":
			counts.Granted++
			result = ResultGranted
		default:
			counts.Released++
		}
		h.observer.Waited(h.cluster, v.Class, result, v.Waited)
		if s := h.streams[v.ID.Stream]; s != nil {
			if v.Endpoint == "" {
				delete(s.open, v.ID.Request)
			}
			s.give(&loadsv1.Verdict{Id: v.ID.Request, Endpoint: v.Endpoint, Refused: string(v.Refused),
				RetryAfterSeconds: uint32(v.RetryAfter / time.Second)})
		}
	}
}

// configure changes the settings; nil switches the queue off.
func (h *hall) configure(s *Settings, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.give(h.queue.SetOptions(now, s))
}

// on reports whether the queue is on.
func (h *hall) on() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.queue.On()
}

// decided applies a decision.
func (h *hall) decided(d *weighting.Decision, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.queue.On() && len(h.streams) == 0 {
		return
	}
	u := picking.UpdateOf(d)
	endpoints := make([]queue.Endpoint, len(u.Endpoints))
	for i, e := range u.Endpoints {
		of := &d.Endpoints[i]
		endpoints[i] = queue.Endpoint{Endpoint: e, InFlight: inFlight(of), AtOnce: atOnce(of)}
	}
	h.give(h.queue.Update(now, endpoints, u.ArrivalRate, u.Cost))
}

// inFlight returns the requests at an endpoint, NaN where unknown.
func inFlight(e *weighting.EndpointDecision) float64 {
	if e.Work == nil && e.LoadSource != weighting.LoadMedian {
		return e.Load
	}
	for _, in := range e.Inputs {
		usable := in.State == weighting.StateFresh || in.State == weighting.StateHold
		if in.Field == weighting.FieldInFlight && usable {
			return in.Value
		}
	}
	return math.NaN()
}

// atOnce returns how many requests an endpoint executes at once, NaN where that is only assumed.
func atOnce(e *weighting.EndpointDecision) float64 {
	switch e.SlotsSource {
	case weighting.CapacityConfigured, weighting.CapacityLearned:
		return e.Slots
	}
	return math.NaN()
}

// enter adds a stream, which replaces the one before of the same waiter. An error is the status of the stream.
func (h *hall) enter(s *stream, l *leader, now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leader != l {
		return errMoved
	}
	for _, before := range h.streams {
		if s.waiter != "" && before.waiter == s.waiter {
			h.forget(before, errReplaced)
			h.give(h.queue.Gone(now, before.number))
		}
	}
	h.last++
	s.number = h.last
	h.streams[s.number] = s
	return nil
}

// leave forgets a stream with its requests.
func (h *hall) leave(s *stream, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.streams, s.number)
	h.give(h.queue.Gone(now, s.number))
}

// receive applies a message of a stream: ends first, because they free places. An error is the status of the stream.
func (h *hall) receive(s *stream, m *loadsv1.WaitRequest, now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams[s.number] == nil {
		return s.why
	}
	s.heard = now
	if err := s.check(m); err != nil {
		return err
	}
	for _, n := range m.GetEnded() {
		delete(s.open, n)
		verdicts, class, left := h.queue.End(now, queue.ID{Stream: s.number, Request: n})
		if left {
			h.of(class).Left++
			h.observer.Left(h.cluster, class)
		}
		h.give(verdicts)
	}
	if err := s.room(m); err != nil {
		return err
	}
	for _, held := range m.GetHeld() {
		s.open[held.GetId()] = struct{}{}
		h.queue.Hold(queue.ID{Stream: s.number, Request: held.GetId()}, cut(held.GetEndpoint()))
	}
	sent := now.Add(-s.fastest.late(m.GetSentMicroseconds(), now))
	for _, a := range m.GetArrivals() {
		if _, twice := s.open[a.GetId()]; twice {
			continue
		}
		s.open[a.GetId()] = struct{}{}
		const most = uint64(time.Hour / time.Microsecond)
		waited := time.Duration(min(a.GetWaitedMicroseconds(), most)) * time.Microsecond
		h.give(h.queue.Arrive(now, queue.Request{ID: queue.ID{Stream: s.number, Request: a.GetId()},
			Class: cut(a.GetClass()), Tenant: cut(a.GetTenant()), Size: a.GetSize(), Since: sent.Add(-waited),
			Cached: cachedOf(a), Key: a.GetKey()}))
	}
	return nil
}

// cachedOf returns where a part of the prompt of a request is cached, by its Envoy; nil where that does not say.
func cachedOf(a *loadsv1.Arrival) (out []picking.Cached) {
	for _, c := range a.GetCached()[:min(len(a.GetCached()), MaxCached)] {
		out = append(out, picking.Cached{Address: cut(c.GetEndpoint()), Share: c.GetShare()})
	}
	return out
}

// cut bounds a name, and copies it so that its message is not kept.
func cut(name string) string { return strings.Clone(name[:min(len(name), MaxName)]) }

// tick refuses requests that have waited too long, and forgets the streams that have been silent for too long: an Envoy
// that hangs reports no ends, and would keep its places.
func (h *hall) tick(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	late := now.Sub(h.ticked) > Heartbeat // this process hung itself, and may have messages that it has not read
	h.ticked = now
	for _, s := range h.streams {
		switch {
		case late:
			s.heard = now
		case now.Sub(s.heard) > picking.Stale:
			h.forget(s, errSilent)
			h.give(h.queue.Gone(now, s.number))
		case !h.closes.IsZero() && now.Sub(h.closes) > picking.Stale:
			h.forget(s, errNoOwner)
			h.give(h.queue.Gone(now, s.number))
		}
	}
	h.give(h.queue.Tick(now))
}

// state returns the state of the queue; ok is false while it is off.
func (h *hall) state() (out api.Queue, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if most := h.queue.MaxInFlight(); most > 0 {
		out.MaxInFlight = &most
	}
	out.Classes = []api.QueueClass{}
	if out.Envoys, out.Here = h.relayed, h.relayed; !h.leader.mine {
		return out, h.queue.On()
	}
	for _, c := range h.queue.Classes() {
		class := *h.of(c.Name)
		class.Weight, class.Strict = c.Weight, c.Strict
		class.MaxWaiting, class.MaxWaitSeconds = c.MaxWaiting, api.Seconds(c.MaxWait)
		class.Waiting, class.Tenants, class.OldestAt = c.Waiting, c.Tenants, api.At(c.Oldest)
		out.Classes = append(out.Classes, class)
	}
	out.InFlight, out.Envoys = api.Num(float64(h.queue.Held())), len(h.streams)
	for _, s := range h.streams {
		out.Shared = out.Shared || s.shared
		if !s.relayed {
			out.Here++
		}
	}
	return out, h.queue.On()
}

// relays counts the streams that are passed on.
func (h *hall) relays(more int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relayed += more
}
