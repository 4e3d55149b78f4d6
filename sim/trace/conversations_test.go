package trace

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// TestConversationsHaveThePublishedFigures: of a trace of a public chat service, about.
func TestConversationsHaveThePublishedFigures(t *testing.T) {
	c := Conversations()
	prompt, output := c.Means()
	seen := map[uint64]bool{}
	var found, all float64
	for i, r := range c.Requests {
		blocks := c.Contents[i].Blocks
		all += float64(r.Prompt)
		for k := 0; k < int(r.Prompt)/BlockTokens && seen[blocks[k]]; k++ {
			found += BlockTokens
		}
		for _, b := range blocks {
			seen[b] = true
		}
	}
	first := map[uint64]bool{}
	for _, content := range c.Contents {
		first[content.Blocks[0]] = true
	}
	for _, f := range []struct {
		name             string
		got, least, most float64
	}{
		{"tokens of a prompt", prompt, 9_000, 14_000},
		{"tokens of an answer", output, 300, 400},
		{"share of the prompts that an endless cache has", found / all, 0.38, 0.52},
		{"first blocks", float64(len(first)), 1, 1},
		{"requests", float64(len(c.Requests)), 16_000, 16_000},
	} {
		if f.got < f.least || f.got > f.most {
			t.Errorf("%s: %v, want %v to %v", f.name, f.got, f.least, f.most)
		}
	}
}

func TestEachPromptIsMadeOfWholeMessages(t *testing.T) {
	c := Conversations()
	for i, r := range c.Requests {
		content := c.Contents[i]
		if got, want := len(content.Blocks), int(r.Prompt+r.Output)/BlockTokens; got != want {
			t.Fatalf("request %d: %d blocks of %d tokens, want %d", i, got, r.Prompt+r.Output, want)
		}
		if i > 0 && r.At < c.Requests[i-1].At {
			t.Fatalf("request %d comes before the one before it", i)
		}
		before := int32(0)
		for _, end := range content.Ends {
			if end < before || end > r.Prompt/BlockTokens {
				t.Fatalf("request %d: messages end at %v, of %d tokens", i, content.Ends, r.Prompt)
			}
			before = end
		}
		if before != r.Prompt/BlockTokens {
			t.Fatalf("request %d: its last message ends at block %d of %d tokens", i, before, r.Prompt)
		}
	}
}

func TestTheSameSeedMakesTheSameConversations(t *testing.T) {
	small := chatService
	small.requests = 300
	made := func(seed uint64) *Trace { return small.trace(rand.New(rand.NewPCG(seed, 2))) }
	if !reflect.DeepEqual(made(7), made(7)) {
		t.Error("two traces of one seed differ")
	}
	if reflect.DeepEqual(made(7), made(8)) {
		t.Error("two seeds make the same trace")
	}
}
