package latency

import (
	"slices"
	"sync"
	"time"
)

// A Book matches requests with the pushes that include them and with their ACKs. It is safe for
// concurrent use.
type Book struct {
	mu        sync.Mutex
	endpoints map[string]*endpoint
	acks      map[string][]push // by Envoy, each of a higher version than the one before
	expected  int               // Envoys
	samples   chan Sample
}

// An endpoint is the requests of one, in the order of their arrival.
type endpoint struct {
	arrived []time.Time
	decided []decision // by which each became known; may be ahead of arrived
	pushed  []push     // with which that was sent
	settled int        // samples made
}

type decision struct {
	at   time.Time
	held bool
}

type push struct {
	version uint64
	at      time.Time
}

// A Sample is what became of one request.
type Sample struct {
	Endpoint string
	Arrived  time.Time // at the endpoint
	Decided  time.Time // first decision that includes it
	Held     bool      // that decision was not worth a push
	Pushed   time.Time // first push that includes it
	Acked    time.Time // by the last Envoy
}

// NewBook makes a book for a fleet of this many Envoys. The caller receives from Samples; room is how many samples may
// wait there, above which they are dropped.
func NewBook(envoys, room int) *Book {
	return &Book{
		endpoints: make(map[string]*endpoint), acks: make(map[string][]push),
		expected: envoys, samples: make(chan Sample, room),
	}
}

// Samples returns the requests that have reached every Envoy.
func (b *Book) Samples() <-chan Sample { return b.samples }

// Arrived records that a request reached an endpoint.
func (b *Book) Arrived(address string, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.endpoint(address)
	e.arrived = append(e.arrived, at)
	b.settle()
}

// Decided records a decision that included this many requests issued to each endpoint since the start, and its result:
// pushed under a version, which rises, or held back.
func (b *Book) Decided(issued map[string]uint64, at time.Time, pushed bool, version uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for address, n := range issued {
		e := b.endpoint(address)
		for uint64(len(e.decided)) < n {
			e.decided = append(e.decided, decision{at: at, held: !pushed})
		}
		for pushed && uint64(len(e.pushed)) < n {
			e.pushed = append(e.pushed, push{version: version, at: at})
		}
	}
	b.settle()
}

// Acked records the version that an Envoy accepted last, and when. It may be called again with the same values.
func (b *Book) Acked(envoy string, version uint64, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	acks := b.acks[envoy]
	if len(acks) > 0 && acks[len(acks)-1].version >= version {
		return
	}
	b.acks[envoy] = append(acks, push{version: version, at: at})
	b.settle()
}

// Counts returns how many requests reached each endpoint, and how many were decided
// on. In a fleet at rest the two are the same, or the times mean nothing.
func (b *Book) Counts() (arrived, decided map[string]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	arrived, decided = make(map[string]int), make(map[string]int)
	for address, e := range b.endpoints {
		arrived[address], decided[address] = len(e.arrived), len(e.decided)
	}
	return arrived, decided
}

func (b *Book) endpoint(address string) *endpoint {
	e := b.endpoints[address]
	if e == nil {
		e = &endpoint{}
		b.endpoints[address] = e
	}
	return e
}

// settle makes samples of the requests that have arrived and have reached all Envoys.
func (b *Book) settle() {
	if len(b.acks) < b.expected {
		return
	}
	for address, e := range b.endpoints {
		for e.settled < min(len(e.arrived), len(e.pushed)) {
			p, d := e.pushed[e.settled], e.decided[e.settled]
			acked, all := b.last(p.version)
			if !all {
				break
			}
			s := Sample{Endpoint: address, Arrived: e.arrived[e.settled], Decided: d.at, Held: d.held, Pushed: p.at,
				Acked: acked}
			select {
			case b.samples <- s:
			default: // nothing receives them now
			}
			e.settled++
		}
	}
}

// last returns when the last Envoy accepted the version or a later one; all is false
// when not every one has.
func (b *Book) last(version uint64) (at time.Time, all bool) {
	for _, acks := range b.acks {
		i, _ := slices.BinarySearchFunc(acks, version, func(p push, v uint64) int {
			if p.version < v {
				return -1
			}
			return 1
		})
		if i == len(acks) {
			return time.Time{}, false
		}
		if acks[i].at.After(at) {
			at = acks[i].at
		}
	}
	return at, true
}
