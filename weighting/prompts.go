package weighting

import (
	"math"
	"time"
)

// Constants of the work of a request.
const (
	// outputCost is a unit: what generating one token costs, in prompt tokens. Either is one pass of one token through
	// the model, and a generated one reads its context from the KV cache as well.
	outputCost = 1.5
	// iterationTokens is a unit: how many prompt tokens take as long as an iteration, about where the arithmetic of a
	// GPU takes as long as reading the weights.
	iterationTokens = 200.0
	// workTau is a memory: the time in which what is learned of prompts and engines fades.
	workTau = 60 * time.Second
	// longestSpan is for how long the most that was counted between two readings is remembered, at least.
	longestSpan = 5 * time.Minute
	// fewestPrompts is a budget of noise: how many requests a mean stands on.
	fewestPrompts = 10.0
)

// prompts is what a cluster has learned of its requests: how many tokens they make the engines compute,
// and how far the size of a request says so. All sums fade with the time constant workTau.
type prompts struct {
	faded     time.Time
	computed  float64   // prompt tokens, without those from a prefix cache
	cached    float64   // those
	first     float64   // requests whose prompt is computed
	generated float64   // tokens
	perByte   ratio     // prompt tokens computed for each byte of requests
	sizedAt   time.Time // the newest reading in it
	longest   highest   // prompt tokens that one engine counted from one reading to the next: of one prompt or more

	// What guesses were off, in tokens: by the size of the requests, and by the mean of all.
	offBySize, offByMean float64
}

// mean is the prompt tokens that a request makes an engine compute; NaN while unknown.
func (k *prompts) mean() float64 {
	if k.first < fewestPrompts {
		return math.NaN()
	}
	return k.computed / k.first
}

// cachedShare is the share of the prompt tokens that prefix caches answered, 0..1.
func (k *prompts) cachedShare() float64 {
	if k.cached == 0 {
		return 0
	}
	return k.cached / (k.cached + k.computed)
}

// output is the tokens that a request generates.
func (k *prompts) output() float64 { return k.generated / max(1, k.first) }

// decode is what a request counts whose prompt is computed, in prompt tokens (decodeOf).
func (k *prompts) decode() float64 { return decodeOf(k.mean(), k.output()) }

// Decode is what a mean request counts whose prompt is computed, in prompt tokens (decodeOf).
func (w *Work) Decode() float64 { return decodeOf(w.PromptTokens, w.OutputTokens) }

// decodeOf is what is left of a request whose prompt is computed: half of its output, as a request in flight is
// halfway. It is at most a sixth of what a prompt keeps others waiting for, with its iteration: a sequence that
// decodes keeps a new request waiting for next to nothing, and counts so that endpoints stay alike. Where outputs are
// long, the endpoint that is some requests short would otherwise get all that comes until the next push, prompt upon
// prompt: with outputs of 3,400 tokens and seven requests at once, 1.09 of the p99 of least request instead of 1.01.
func decodeOf(prompt, output float64) float64 {
	return min(outputCost*output/2, (prompt+iterationTokens)/6)
}

// whole is the work of a mean request, in prompt tokens.
func (k *prompts) whole() float64 { return max(1, k.mean()+k.decode()) }

// bySize reports whether the size of a request says more of its prompt than the mean does.
func (k *prompts) bySize() bool {
	const worse = 1.25 // errors of single requests cancel out in the sums that are compared
	return k.perByte.requests >= fewestPrompts && k.offBySize <= worse*k.offByMean
}

// guess is the prompt tokens of requests that begin. One request is guessed to be no longer than what one engine
// counted between two readings: a large body may be an image, or never be sent.
func (k *prompts) guess(b batch) float64 {
	if b.sized == 0 || !k.bySize() {
		return b.requests * k.mean()
	}
	return k.sizes(b)
}

// sizes is the same by what is known of sizes.
func (k *prompts) sizes(b batch) float64 {
	longest := max(k.longest.most(), k.mean())
	return min(b.bytes*k.perByte.typical(), b.sized*longest) + max(0, b.requests-b.sized)*k.mean()
}

// fade forgets.
func (k *prompts) fade(now time.Time, perSecond float64) {
	const stand = 2 * fewestPrompts // the last few stand until others come
	if k.faded.IsZero() || !now.After(k.faded) {
		k.faded = now
		return
	}
	elapsed := now.Sub(k.faded).Seconds()
	if k.first > stand {
		keep := max(math.Exp(-elapsed/workTau.Seconds()), stand/k.first)
		for _, sum := range []*float64{&k.computed, &k.cached, &k.first, &k.generated, &k.offBySize, &k.offByMean} {
			*sum *= keep
		}
	}
	k.perByte.fade(math.Exp(-elapsed * perSecond / ratioWindow(perSecond)))
	k.faded = now
}

// ratioWindow is how many requests tokens per byte stand on: those of workTau, but few where many come. When caches are
// cleared a byte costs ten times as much from one moment to the next, and what is typical is the old ratio in part
// until most of the requests are new.
func ratioWindow(perSecond float64) float64 {
	const fewest, many, soon = 2 * fewestPrompts, 350.0, 7.0 // requests, and seconds
	return max(fewest, min(perSecond*workTau.Seconds(), many), perSecond*soon)
}

// learn takes in what an engine computed from one reading to the next.
func (k *prompts) learn(d *tokenGrowth, at time.Time) {
	k.computed += d.computed
	k.cached += d.cached
	k.first += d.first
	k.generated += d.generated
	k.longest.note(d.computed, at, longestSpan)
}

// compare holds what requests were guessed to compute against what they did: some requests at an
// endpoint, at least enough that those which began and were not computed yet are few among them.
func (k *prompts) compare(sent batch, d *tokenGrowth) {
	if math.IsNaN(k.mean()) || !(sent.sized > 0 && sent.bytes > 0 && d.computed > 0) {
		return
	}
	// By the means of both, since not all requests have to come through proxies.
	mean := d.computed / d.first
	if k.perByte.requests >= fewestPrompts {
		each := k.sizes(sent) / sent.requests
		k.offBySize += d.first * math.Abs(each-mean)
		k.offByMean += d.first * math.Abs(k.mean()-mean)
	}
}

// A ratio is tokens for each byte of requests: of the sums, without comparisons that are far from what is usual, as
// with images in them. Whether they are is decided by the whole prompts, and the ratio is that of the tokens computed:
// where most of a prompt is cached most of the time, what the others compute is no exception, but most of it.
type ratio struct{ requests, whole, computed, bytes float64 }

// add counts requests whose prompts are computed, of so many bytes each. Each comparison that is far off takes some of
// the weight of the others, until what it shows may be usual.
func (r *ratio) add(d *tokenGrowth, bytes float64) {
	const far, off = 4, 0.9 // ratios
	whole := d.computed + d.cached
	if usual := r.whole / r.bytes; r.requests >= 1 && math.Abs(math.Log(whole/d.first/bytes/usual)) > math.Log(far) {
		r.fade(off)
		return
	}
	*r = ratio{r.requests + d.first, r.whole + whole, r.computed + d.computed, r.bytes + bytes*d.first}
}

func (r *ratio) fade(keep float64) {
	const nothing = 1e-6 // requests; a bound
	*r = ratio{r.requests * keep, r.whole * keep, r.computed * keep, r.bytes * keep}
	if r.requests < nothing {
		*r = ratio{} // before the sums underflow
	}
}

// typical is tokens for each byte; NaN before there was any.
func (r *ratio) typical() float64 { return r.computed / r.bytes }
