package weighting

import "testing"

// Of requests of which only some have a size, the others count as mean ones.
func TestRequestsWithoutASizeCountAsMeanOnes(t *testing.T) {
	k := prompts{computed: 10_000, first: 20} // a mean of 500 tokens
	k.perByte.add(500, 2000, 20)              // a quarter of a token for each byte
	k.longest.note(800, epoch, longestSpan)
	for _, c := range []struct {
		name string
		of   batch
		want float64 // tokens
	}{
		{"all have one", batch{requests: 2, sized: 2, bytes: 4000}, 1000},
		{"some have one", batch{requests: 5, sized: 2, bytes: 4000}, 1000 + 3*500},
		{"none has one", batch{requests: 3}, 3 * 500},
		{"sizes beyond the longest", batch{requests: 2, sized: 1, bytes: 1e9}, 800 + 500},
	} {
		t.Run(c.name, func(t *testing.T) { wantNear(t, "tokens", k.sizes(c.of), c.want, 1e-9) })
	}
}

// What decodes keeps a new request waiting for little, however long its output is.
func TestARequestThatDecodesCountsForHalfAPromptAtMost(t *testing.T) {
	for _, c := range []struct {
		name                 string
		prompt, output, want float64 // tokens
	}{
		{"half of a short output, of 1.5 prompt tokens each", 1000, 200, 150},
		{"a long output: half of the prompt and of its iteration", 300, 1500, 250},
		{"no prompt is computed: half of an iteration", 0, 1500, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantNear(t, "tokens", (&Work{PromptTokens: c.prompt, OutputTokens: c.output}).Decode(), c.want, 1e-9)
			k := prompts{computed: 20 * c.prompt, first: 20, generated: 20 * c.output}
			wantNear(t, "tokens, as learned", k.decode(), c.want, 1e-9)
		})
	}
}
