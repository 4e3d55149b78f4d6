package sim

import (
	"math"
	"slices"

	"steelyard/picking/prefix"
)

// The policies that look at the content of each request, with one view of all engines. What they know of the caches is
// learned from the answers.

// hashedBlocks are the first ones of a prompt that prefix_hash goes by: 2,048 tokens.
const hashedBlocks = 16

// overrideFactor is how many times the median of the requests in flight are too many.
const overrideFactor = 2

// byContent is the choice of a policy that looks at prompts.
func (w *world) byContent(a *arrival) int32 {
	switch w.p.Balancer {
	case PrefixHash:
		return w.hashed(a.prompt.blocks[:min(hashedBlocks, len(a.prompt.blocks))])
	case LeastWorkPrefix:
		return w.leastUncached(a)
	}
	chosen := w.matched(&a.content)
	if chosen < 0 {
		chosen = w.hashed(a.prompt.blocks)
	}
	if w.p.Balancer == PrefixOverride && w.overloaded(chosen) {
		return w.least(func(p *pod, _ int) float64 { return float64(p.load()) })
	}
	return chosen
}

// matched is the pod with the longest known beginning of a prompt, of several the one that learned it last; -1 if there
// is none.
func (w *world) matched(content *prefix.Prompt) int32 {
	for _, m := range w.router.match(content) {
		if pod := podNumber(m.Address); w.pods[pod].present {
			return pod
		}
	}
	return -1
}

// hashed is a pod by the hash of blocks (rendezvous hashing).
func (w *world) hashed(blocks []uint64) int32 {
	if len(blocks) == 0 {
		return w.least(func(*pod, int) float64 { return 0 })
	}
	key := blocks[len(blocks)-1]
	return w.least(func(_ *pod, i int) float64 { return float64(scrambled(key ^ scrambled(uint64(i)+1))) })
}

// overloaded reports whether a pod has too many requests in flight.
func (w *world) overloaded(pod int32) bool {
	var loads []int
	for i := range w.pods {
		if w.pods[i].present {
			loads = append(loads, w.pods[i].load())
		}
	}
	slices.Sort(loads)
	return len(loads) > 0 && w.pods[pod].load() > overrideFactor*loads[len(loads)/2]
}

// leastUncached is the engine where the work that is known to be there and what a request adds to it are least.
func (w *world) leastUncached(a *arrival) int32 {
	output := w.arrivals.prompts.output
	cached := make([]float64, len(w.pods)) // share of the prompt
	for _, m := range w.router.match(&a.content) {
		cached[podNumber(m.Address)] = a.content.Share(m.Blocks)
	}
	return w.least(func(p *pod, i int) float64 {
		if p.speed == 0 {
			return math.Inf(1)
		}
		tokens := float64(a.prompt.prompt) * (1 - cached[i])
		return p.engine.Work(output) + tokens/(p.engine.Params().PrefillRate*p.speed)
	})
}

// learn takes in an answer.
func (w *world) learn(r *request) {
	if w.router == nil {
		w.of(r.envoy).control.pickers.learn(r)
		return
	}
	content := r.content
	if w.p.Balancer == PrefixSingle && len(content.Steps) > 0 {
		content.Steps = content.Steps[len(content.Steps)-1:]
	}
	w.router.table.Learn(&content, podName(int(r.pod)), prefix.Own, w.now.time())
}
