package engine

import (
	"testing"
	"time"
)

// chain is n blocks that no chain from another start has.
func chain(from uint64, n int) (hashes []uint64) {
	for i := range n {
		hashes = append(hashes, from+uint64(i))
	}
	return hashes
}

// caching computes 1 ms for each prompt token, and remembers so many blocks.
func caching(blocks int) *Engine {
	p := round()
	p.TokenBudget, p.KVTokens, p.CacheTokens = 10_000, 10_000, blocks*CacheBlock
	return New(p)
}

// cached is how many tokens of a prompt would be found in the cache now.
func cached(e *Engine, prompt int, blocks []uint64) int {
	r := Request{Prompt: prompt, Blocks: blocks}
	e.lookUp(&r)
	return r.Cached
}

// answer plays a request to its end.
func answer(t *testing.T, e *Engine, at time.Duration, r *Request) *Request {
	t.Helper()
	e.Arrive(at, r)
	run(t, e, at+time.Hour)
	want(t, "it has ended", r.Ended(), true)
	return r
}

func TestAConversationThatGoesOnIsFoundWithItsAnswer(t *testing.T) {
	e := caching(100)
	first := answer(t, e, 0, &Request{Prompt: 3 * CacheBlock, Output: CacheBlock + 1, Blocks: chain(1, 4)})
	want(t, "cached of the first turn", first.Cached, 0)
	second := answer(t, e, time.Hour, &Request{Prompt: 6 * CacheBlock, Output: 1, Blocks: chain(1, 6)})
	want(t, "cached of the second", second.Cached, 4*CacheBlock)
	want(t, "its time to first token", second.First-second.Arrived, 10*ms+2*CacheBlock*ms)
	want(t, "cached tokens counted", e.Counters().CachedTokens, 4*CacheBlock)
	again := answer(t, e, 2*time.Hour, &Request{Prompt: 6 * CacheBlock, Output: 1, Blocks: chain(1, 6)})
	want(t, "cached of a prompt that is all there: not its last token", again.Cached, 5*CacheBlock)
	want(t, "of another one", cached(e, 6*CacheBlock, chain(100, 6)), 0)
	want(t, "of one that begins alike", cached(e, 6*CacheBlock, append(chain(1, 2), chain(50, 4)...)),
		2*CacheBlock)
}

func TestTheBlocksThatWereUsedLeastRecentlyLeave(t *testing.T) {
	e := caching(4)
	ask := func(from uint64, blocks int) {
		answer(t, e, time.Duration(from)*time.Hour, &Request{Prompt: blocks * CacheBlock, Output: 1,
			Blocks: chain(1000*from, blocks)})
	}
	has := func(from uint64) int { return cached(e, 5*CacheBlock, chain(1000*from, 4)) / CacheBlock }
	ask(1, 2)
	ask(2, 2)
	want(t, "the first", has(1), 2)
	ask(3, 1)
	want(t, "of the oldest the last block is gone", has(1), 1)
	want(t, "the second", has(2), 2)
	ask(4, 4)
	want(t, "the second, after a prompt as large as the cache", has(2), 0)
	want(t, "that prompt", has(4), 4)
}

func TestWithoutACacheTheCallerSaysWhatIsCached(t *testing.T) {
	e := New(round())
	r := answer(t, e, 0, &Request{Prompt: 90, Cached: 16, Output: 1, Blocks: chain(1, 1)})
	want(t, "cached", r.Cached, 16)
}
