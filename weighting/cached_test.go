package weighting

import (
	"testing"
	"time"
)

func TestTheShareOfPromptsThatIsCachedIsLearned(t *testing.T) {
	at := func(seconds int, prompt, cached float64) TokenCounts {
		return TokenCounts{At: time.Unix(int64(seconds), 0), Prompt: prompt, Cached: cached,
			First: float64(20 * seconds)}
	}
	k := prompts{}
	want(t, "before any reading", k.cachedShare(), 0)
	before, after, back := at(0, 0, 0), at(10, 10_000, 4000), at(20, 20_000, 3000)
	d, ok := after.growth(&before)
	want(t, "a reading counts", ok, true)
	k.learn(&d, after.At)
	want(t, "of 4,000 in 10,000 tokens", k.cachedShare(), 0.4)
	_, ok = back.growth(&after)
	want(t, "one where fewer are cached than before counts", ok, false)
	k.fade(after.At, 0)
	k.fade(after.At.Add(time.Minute), 0)
	want(t, "a share does not fade with the sums", k.cachedShare(), 0.4)
}
