package sim

import (
	"math"
	"math/rand/v2"

	"steelyard/picking/prefix"
)

// arrivals is the sequence of requests: when, at which Envoy and worker, with what
// need of service. It draws from random sources of its own, so that it is the same
// whatever happens to the requests.
type arrivals struct {
	gaps, places, services *rand.Rand

	rate     float64   // per second, now
	base     float64   // without a flash crowd
	at       instant   // of the next one
	shares   []float64 // of the Envoys, cumulative; the last is 1
	workers  int
	service  Service
	measured []float64
	mean     float64 // seconds
	classes  [2]float64
	mu       float64  // of the log-normal
	prompts  *prompts // nil where requests need a time of service
}

// An arrival is a request before it is placed.
type arrival struct {
	envoy, worker int32
	work          float64       // seconds
	prompt        prompt        // of requests to engines
	content       prefix.Prompt // of that, for policies that look at it
	coin          float64       // 0..1, for a share of the requests to be refused
}

func newArrivals(s *Scenario, rate float64) *arrivals {
	a := &arrivals{
		gaps: source(s.Seed, streamGaps), places: source(s.Seed, streamPlaces),
		services: source(s.Seed, streamServices),
		rate:     rate, base: rate, workers: s.Workers, service: s.Service, mean: s.Service.Mean.Seconds(),
		measured: s.Measured,
	}
	var sum float64
	for i := range s.Envoys {
		share := 1.0
		if len(s.EnvoyShares) > 0 {
			share = s.EnvoyShares[i]
		}
		sum += share
		a.shares = append(a.shares, sum)
	}
	for i := range a.shares {
		a.shares[i] /= sum
	}
	a.shares[len(a.shares)-1] = 1
	// The short class is such that both together have the mean.
	short := a.mean / (1 - s.Service.LongShare + s.Service.LongShare*s.Service.LongFactor)
	a.classes = [2]float64{short, short * s.Service.LongFactor}
	a.mu = math.Log(a.mean) - s.Service.Sigma*s.Service.Sigma/2
	if s.Prompts != nil {
		a.prompts = newPrompts(s)
	}
	a.at = a.gap()
	return a
}

// gap is the time to the next request.
func (a *arrivals) gap() instant {
	gaps := 0.0 // mean ones
	if a.prompts != nil {
		gaps = a.prompts.gaps()
	} else {
		gaps = a.gaps.ExpFloat64()
	}
	return instant(gaps / a.rate * 1e9)
}

// take returns the request that arrives now and plans the one after it.
func (a *arrivals) take() arrival {
	r := arrival{coin: a.places.Float64()}
	if a.prompts != nil {
		r.prompt = a.prompts.take()
	} else {
		r.work = a.work()
	}
	a.at += a.gap()
	x := a.places.Float64()
	for x >= a.shares[r.envoy] {
		r.envoy++
	}
	r.worker = int32(a.places.IntN(a.workers))
	return r
}

// surge changes the rate to a multiple of the usual one. What is left of the gap
// to the next request shrinks or grows with it.
func (a *arrivals) surge(factor float64, now instant) {
	was := a.rate
	a.rate = a.base * factor
	a.at = now + instant(float64(a.at-now)*was/a.rate)
}

func (a *arrivals) work() float64 {
	if len(a.measured) > 0 {
		return a.mean * a.measured[a.services.IntN(len(a.measured))]
	}
	switch a.service.Kind {
	case Deterministic:
		return a.mean
	case LogNormal:
		return math.Exp(a.mu + a.service.Sigma*a.services.NormFloat64())
	case TwoClass:
		if a.services.Float64() < a.service.LongShare {
			return a.classes[1]
		}
		return a.classes[0]
	}
	return a.services.ExpFloat64() * a.mean
}
