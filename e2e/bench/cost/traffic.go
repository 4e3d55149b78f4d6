package main

import (
	"math"
	"math/rand/v2"
	"time"
)

// The traffic of a model server: 12 of 16 slots busy in the mean, each request 4 s.
const (
	slots       = 16
	meanService = 4.0  // seconds
	utilization = 0.75 // of the slots
)

// A traffic moves a server's load on by some seconds.
type traffic interface {
	advance(r *reading, seconds float64)
}

// busy is Poisson arrivals and exponential services, so that no two pages are alike.
type busy struct{ rng *rand.Rand }

func (b busy) advance(r *reading, seconds float64) {
	ended := min(r.running, poisson(b.rng, r.running/meanService*seconds))
	arrived := poisson(b.rng, slots*utilization/meanService*seconds)
	inSystem := r.running + r.waiting - ended + arrived
	r.completed += ended
	r.busy += ended * meanService
	r.queued += r.waiting * seconds
	r.running = min(slots, inSystem)
	r.waiting = inSystem - r.running
}

// steady completes what it is sent, in a flow without steps: a load at rest.
type steady struct{}

func (steady) advance(r *reading, seconds float64) {
	r.completed += r.running / meanService * seconds
	r.busy += r.running * seconds
}

// poisson draws the number of events when mean are expected. Means are small here.
func poisson(rng *rand.Rand, mean float64) float64 {
	limit, product, n := math.Exp(-mean), rng.Float64(), 0.0
	for product > limit {
		product *= rng.Float64()
		n++
	}
	return n
}

// atStart returns the load of a server that has run for a while.
func atStart(seed uint64, t traffic) reading {
	r := reading{running: slots / 2}
	if b, ok := t.(busy); ok {
		r.running = min(slots, poisson(b.rng, slots*utilization))
	}
	r.completed = float64(100 + seed%100)
	return r
}

// longest bounds one step of a server's traffic: one that was not asked for a
// while goes on from where it was.
const longest = 2 * time.Second
