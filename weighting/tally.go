package weighting

import (
	"math"
	"time"

	"steelyard/weighting/shed"
)

// passages are what was reported since the last step: all completions; arrivals and ends by one source; and, without
// such a source, changes of the load. A pair of one source misses the same requests on both sides, so their ratio is
// right.
func (m *member) passages(p *pool) (all, pair, change shed.Flow) {
	server, proxies := p.usable(m.server.Completions), p.usable(m.proxies.Issued) && p.usable(m.proxies.Ended)
	switch {
	case server && proxies:
		return m.tally.byServer(&m.server), m.tally.byProxies(&m.proxies), change
	case server:
		all = m.tally.byServer(&m.server)
		return all, all, change
	case proxies:
		all = m.tally.byProxies(&m.proxies)
		return all, all, change
	}
	return all, pair, m.tally.byChange(m.counts())
}

// counts is the number of requests at the endpoint as one reading.
func (m *memory) counts() Reading {
	queue, running := m.server.Queue, m.server.Running
	switch {
	case m.inFlight.Known():
		return m.inFlight
	case queue.Known() && running.Known():
		return Reading{Value: queue.Value + running.Value, At: earlier(queue.At, running.At)}
	case queue.Known():
		return queue
	}
	return running
}

// tally is what had been reported of an endpoint at the last step.
type tally struct {
	server    ServerReport
	proxies   ProxyReport
	counts    Reading
	completed time.Time // when the last completion was reported
	free      time.Time // since when a slot has been free; zero while none is
}

func (t *tally) note(m *member) {
	if m.server.Completions.Value > t.server.Completions.Value {
		t.completed = m.server.Completions.At
	}
	t.server, t.proxies, t.counts = m.server, m.proxies, m.counts()
}

// idle is how long a slot has been free at each step.
func (t *tally) idle(free bool, now time.Time) time.Duration {
	switch {
	case !free:
		t.free = time.Time{}
		return 0
	case t.free.IsZero():
		t.free = now
	}
	return now.Sub(t.free)
}

func (t *tally) byServer(seen *ServerReport) shed.Flow {
	left, dt := flow(t.server.Completions, seen.Completions)
	if math.IsNaN(left) || t.server.Restarts != seen.Restarts {
		return shed.Flow{}
	}
	queued, _ := slope(t.server.Queue, seen.Queue)
	ran, _ := slope(t.server.Running, seen.Running)
	arrived := left + orZero(sumKnown(queued, ran))
	return shed.Flow{Arrived: arrived * dt.Seconds(), Left: left * dt.Seconds(), From: t.server.Completions.At,
		To: seen.Completions.At}
}

func (t *tally) byProxies(seen *ProxyReport) shed.Flow {
	arrived, _ := flow(t.proxies.Issued, seen.Issued)
	left, dt := flow(t.proxies.Ended, seen.Ended)
	if math.IsNaN(arrived + left) {
		return shed.Flow{}
	}
	return shed.Flow{Arrived: arrived * dt.Seconds(), Left: left * dt.Seconds(), From: t.proxies.Ended.At,
		To: seen.Ended.At}
}

func (t *tally) byChange(seen Reading) shed.Flow {
	growth, dt := slope(t.counts, seen)
	if math.IsNaN(growth) {
		return shed.Flow{}
	}
	growth *= dt.Seconds()
	return shed.Flow{Arrived: max(0, growth), Left: max(0, -growth), From: t.counts.At, To: seen.At}
}
