package weighting

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A hashed pool gets most of its requests by a hash of their conversation, many of one in a row, and the others by the
// shares. Each takes three seconds. It returns the longest horizon of the last minutes, and how often an endpoint was
// unused; counted says that proxies report which requests a hash placed.
func hashed(counted bool) (longest time.Duration, unused int) {
	const endpoints, together, every, takes = 6, 60, 50 * time.Millisecond, 60 // ticks
	law, r, now := NewLaw(DefaultParams()), rand.New(rand.NewPCG(1, 1)), epoch
	var issued, ended, byHash [endpoints]float64
	var ending [takes][]int
	shares := make([]float64, endpoints)
	begin := func(tick, at int) {
		issued[at]++
		ending[tick%takes] = append(ending[tick%takes], at)
	}
	to := 0
	for tick := range int(6 * time.Minute / every) {
		now = now.Add(every)
		for _, at := range ending[tick%takes] {
			ended[at]++
		}
		ending[tick%takes] = ending[tick%takes][:0]
		if tick%together == 0 {
			to = r.IntN(endpoints)
		}
		begin(tick, to)
		byHash[to]++
		if tick%5 == 0 { // four requests a second
			at, x := 0, r.Float64()
			for ; at < endpoints-1 && x >= shares[at]; at++ {
				x -= shares[at]
			}
			begin(tick, at)
		}
		s := Snapshot{PushPeriod: every}
		for i, n := range issued {
			e := Endpoint{Address: fmt.Sprint(i), InFlight: known(n-ended[i], now), Exact: true, Capacity: 8,
				Server: ServerReport{Queue: known(max(0, n-ended[i]-8), now), Running: known(min(8, n-ended[i]), now),
					Completions: known(ended[i], now)},
				Proxies: ProxyReport{Issued: known(n, now), Ended: known(ended[i], now)}}
			if counted {
				e.Proxies.Hashed = known(byHash[i], now)
			}
			s.Endpoints = append(s.Endpoints, e)
		}
		d := law.Step(now, s)
		for i, e := range d.Endpoints {
			shares[i] = e.Share
			if e.Reason == ReasonUnused {
				unused++
			}
		}
		if now.Sub(epoch) > time.Minute {
			longest = max(longest, d.Horizon)
		}
	}
	return longest, unused
}

// Requests that a hash placed show nothing of what the shares did. Taken for those of the weights, they would look like
// reports that are late by seconds, and like endpoints that proxies do not use.
func TestRequestsThatAHashPlacedAreNoLagAndNoUnusedEndpoint(t *testing.T) {
	if longest, unused := hashed(true); longest > 60*time.Millisecond || unused > 0 {
		t.Errorf("horizon up to %v, an endpoint unused in %d steps", longest, unused)
	}
	if longest, unused := hashed(false); longest < time.Second && unused == 0 {
		t.Errorf("unknown, they do no harm: horizon up to %v, unused in %d steps", longest, unused)
	}
}
