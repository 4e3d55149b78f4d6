package sim

import (
	"math"
	"time"

	"steelyard/xds/envoyspec"
)

// The policies that are neither Envoy's own nor Steelyard's: the bounds, and a bad example.

// least is the pod for which the measure is least; of several, any.
func (w *world) least(measure func(p *pod, i int) float64) int32 {
	best, least, ties := int32(-1), math.Inf(1), 0
	for i := range w.pods {
		p := &w.pods[i]
		if !p.present {
			continue
		}
		switch m := measure(p, i); {
		case best < 0 || m < least:
			best, least, ties = int32(i), m, 1
		case m == least:
			if ties++; w.picks.IntN(ties) == 0 {
				best = int32(i)
			}
		}
	}
	return best
}

// guessed is the work of a pod, estimated from the requests that were sent there.
func (w *world) guessed(p *pod, i int) float64 {
	decode := w.arrivals.prompts.output / 2 * p.engine.Params().Sequence.Seconds() / p.speed
	return w.guesses[i].left(w.now) + float64(p.load())*decode
}

// guess adds a prompt: by content-length, or a mean one.
func (w *world) guess(pod int32, asked prompt) {
	if pod < 0 {
		return
	}
	all, p := w.arrivals.prompts, &w.pods[pod]
	tokens := all.prompt
	if asked.bytes > 0 {
		tokens = asked.bytes / all.BytesPerToken
	}
	seconds := tokens * (1 - all.Cached) / (p.engine.Params().PrefillRate * p.speed)
	w.guesses[pod] = guess{w.guesses[pod].left(w.now) + seconds, w.now}
}

// shortest is the pod where a request waits least, going by its queue; of those with a free slot the fastest, then the
// emptiest, then any.
func (w *world) shortest() int32 {
	best, ties := int32(-1), 0
	for i := range w.pods {
		if !w.pods[i].present {
			continue
		}
		switch c := w.pods[i].shorter(w.pods, best); {
		case c < 0:
			best, ties = int32(i), 1
		case c == 0:
			if ties++; w.picks.IntN(ties) == 0 {
				best = int32(i)
			}
		}
	}
	return best
}

// shorter compares a pod with the best so far: negative if it is to be preferred.
func (p *pod) shorter(pods []pod, best int32) int {
	if best < 0 {
		return -1
	}
	b := &pods[best]
	for _, pair := range [...][2]float64{
		{p.backlog(), b.backlog()},
		{-p.speed / p.slowed, -b.speed / b.slowed},
		{float64(p.load()) / float64(p.slots), float64(b.load()) / float64(b.slots)},
	} {
		switch {
		case pair[0] < pair[1]:
			return -1
		case pair[0] > pair[1]:
			return 1
		}
	}
	return 0
}

// backlog is how long, in mean services, a request would wait here.
func (p *pod) backlog() float64 {
	return max(0, float64(p.load()+1-p.slots)) / (p.fullRate() / p.slowed)
}

// sendFreeSlots weighs by the slots that are free now: the obvious law, and one that sends all requests to the same few
// pods.
func (w *world) sendFreeSlots() {
	w.set(laneFreeSlots, w.now+at(freeSlotsEvery))
	a := newAssignment(len(w.pods))
	var members []int32
	var shares []float64
	var sum float64
	for i := range w.pods {
		if p := &w.pods[i]; p.present {
			members = append(members, int32(i))
			shares = append(shares, float64(max(0, p.slots-p.load())))
			sum += shares[len(shares)-1]
		}
	}
	if sum == 0 {
		w.groups[0].send(w.evenly(), freeSlotsDelay)
		return
	}
	weights := make([]uint32, len(shares))
	bounds, err := envoyspec.BoundsFor(len(shares))
	if err != nil {
		return // not with as few pods as check lets through
	}
	bounds.Weights(weights, shares, w.tally.dither)
	for k, pod := range members {
		a.weights[pod], a.shares[pod] = weights[k], shares[k]/sum
	}
	a.settle()
	w.groups[0].send(a, freeSlotsDelay)
}

const (
	freeSlotsEvery = time.Second
	freeSlotsDelay = 3 * time.Millisecond // from a decision to its effect, as Steelyard's default
)
