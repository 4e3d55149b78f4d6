package trace

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// dialogs describe conversations that share system prompts, go on, and branch.
type dialogs struct {
	requests     int
	gap          time.Duration // between two of them, in the mean
	root         int           // tokens that all system prompts begin with
	systems      int           // system prompts; how often each is used follows Zipf's law
	zipf         float64
	system       logNormal // tokens of one
	opening      logNormal // tokens of the first question, with documents
	question     logNormal // tokens of each further one
	answer       logNormal // tokens
	turns        float64   // of a conversation, in the mean: geometric
	think        float64   // seconds between two turns, in the mean: exponential
	branch       float64   // share of the conversations that begin as the first turns of an earlier one
	branchWithin int       // conversations back
	longest      int       // tokens of a prompt
}

type logNormal struct{ mean, sigma float64 }

func (l logNormal) draw(random *rand.Rand) int {
	return 1 + int(l.mean*math.Exp(l.sigma*random.NormFloat64()-l.sigma*l.sigma/2))
}

// chatService has about the figures of a public trace of a chat service (Mooncake,
// "conversation"): prompts of 12,000 tokens, answers of 340, a first block that all
// share, and 40 per cent of the prompts' tokens that were there before.
var chatService = dialogs{
	requests: 16_000, gap: 112 * time.Millisecond, root: 4 * BlockTokens,
	systems: 100, zipf: 1.1, system: logNormal{500, 0.7}, opening: logNormal{9200, 1.2},
	question: logNormal{1500, 1.2}, answer: logNormal{340, 0.9}, turns: 1.6, think: 60,
	branch: 0.1, branchWithin: 200, longest: 120_000,
}

var makeConversations = sync.OnceValue(func() *Trace { return chatService.trace(rand.New(rand.NewPCG(1, 2))) })

// Conversations returns a synthetic trace modelled on published figures. Callers must not change it.
func Conversations() *Trace { return makeConversations() }

// A dialog is a conversation so far.
type dialog struct {
	blocks []uint64
	ends   []int32
	tokens int
	prompt []int // tokens of the prompt, by turn
	output []int
	asked  []int // index in ends of the end of each question
}

func (d dialogs) trace(random *rand.Rand) *Trace {
	t := &Trace{Name: "conversations"}
	systems := d.systemPrompts(random)
	use := rand.NewZipf(random, d.zipf, 1, uint64(d.systems-1))
	type request struct {
		Request
		Content
	}
	var all []request
	var earlier []*dialog
	at := time.Duration(0)
	// More than are asked for: the last ones have later turns that are cut off.
	for len(all) < 2*d.requests {
		at += time.Duration(random.ExpFloat64() * float64(d.gap) * d.turns)
		c := systems[use.Uint64()].fork(0)
		if len(earlier) > 0 && random.Float64() < d.branch {
			from := earlier[len(earlier)-1-random.IntN(min(len(earlier), d.branchWithin))]
			c = from.fork(1 + random.IntN(len(from.asked)))
		}
		moment := at
		for {
			d.turn(c, random)
			turn := len(c.prompt) - 1
			all = append(all, request{Request{At: moment, Prompt: int32(c.prompt[turn]), Output: int32(c.output[turn])},
				Content{Blocks: c.blocks, Ends: c.ends[:c.asked[turn]]}})
			if random.Float64() < 1/d.turns || c.tokens > d.longest/2 {
				break
			}
			moment += time.Duration(random.ExpFloat64() * d.think * float64(time.Second))
		}
		earlier = append(earlier, c)
	}
	slices.SortStableFunc(all, func(a, b request) int { return cmp.Compare(a.At, b.At) })
	for _, r := range all[:d.requests] {
		r.At -= all[0].At
		t.Requests = append(t.Requests, r.Request)
		t.Contents = append(t.Contents, r.Content)
	}
	return t
}

// systemPrompts returns a dialog for each system prompt; all share the tokens of root.
func (d dialogs) systemPrompts(random *rand.Rand) []*dialog {
	root := new(dialog)
	root.add(d.root, random)
	var out []*dialog
	for range d.systems {
		s := root.fork(0)
		s.add(d.system.draw(random), random)
		s.end()
		out = append(out, s)
	}
	return out
}

// turn adds a question, which is the end of a prompt, and its answer.
func (d dialogs) turn(c *dialog, random *rand.Rand) {
	question := d.question
	if len(c.prompt) == 0 {
		question = d.opening
	}
	c.add(min(question.draw(random), d.longest/2), random)
	c.end()
	c.prompt, c.asked = append(c.prompt, c.tokens), append(c.asked, len(c.ends))
	answer := d.answer.draw(random)
	c.output = append(c.output, answer)
	c.add(answer, random)
	c.end()
}

// add appends tokens that no other conversation has.
func (c *dialog) add(tokens int, random *rand.Rand) {
	c.tokens += tokens
	for len(c.blocks) < c.tokens/BlockTokens {
		c.blocks = append(c.blocks, random.Uint64())
	}
}

// end ends a message.
func (c *dialog) end() { c.ends = append(c.ends, int32(len(c.blocks))) }

// fork is a conversation that begins with the first turns of this one, answers
// included; with none of them, with its system prompt.
func (c *dialog) fork(turns int) *dialog {
	if turns == 0 {
		return &dialog{blocks: slices.Clip(c.blocks), ends: slices.Clip(c.ends), tokens: c.tokens}
	}
	tokens, ends := c.prompt[turns-1]+c.output[turns-1], c.asked[turns-1]+1
	return &dialog{blocks: slices.Clip(c.blocks[:tokens/BlockTokens]), ends: slices.Clip(c.ends[:ends]), tokens: tokens,
		prompt: slices.Clip(c.prompt[:turns]), output: slices.Clip(c.output[:turns]),
		asked: slices.Clip(c.asked[:turns])}
}
