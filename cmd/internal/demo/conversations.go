package demo

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"steelyard/e2e/rig/load"
)

// The conversations.
const (
	conversationRate = 1.8 // per second
	systemPrompts    = 3
	systemBytes      = 4000
	leastBytes       = 3000 // of a message
	mostBytes        = 9000
	leastTokens      = 40 // of an answer
	mostTokens       = 90
	mostTurns        = 6
	leastPause       = 3 * time.Second // from one turn to the next
	mostPause        = 5 * time.Second
)

// conversations are the requests of those that begin within a time. The topic is their text: the same seed with another
// topic asks as much at the same times, about something else.
func conversations(topic string, named bool, seed uint64, d time.Duration) []load.Completion {
	random, letters := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
	var systems []string
	for i := range systemPrompts {
		systems = append(systems, words(letters, fmt.Sprint(topic, " system ", i, " "), systemBytes))
	}
	var all []load.Completion
	for at, n := time.Duration(0), 0; at < d; n++ {
		all = append(all, conversation(random, letters, fmt.Sprint(topic, " ", n), named,
			systems[random.IntN(systemPrompts)], at, d)...)
		at += time.Duration(random.ExpFloat64() / conversationRate * float64(time.Second))
	}
	slices.SortStableFunc(all, func(a, b load.Completion) int { return cmp.Compare(a.At, b.At) })
	return all
}

// conversation is the turns of one that begin before the end.
func conversation(random, letters *rand.Rand, name string, named bool, system string, at, end time.Duration) (
	turns []load.Completion) {
	messages := []string{message("system", system)}
	for turn := range mostTurns {
		messages = append(messages, message("user", words(letters, fmt.Sprint(name, " turn ", turn, " "),
			leastBytes+random.IntN(mostBytes-leastBytes))))
		tokens := leastTokens + random.IntN(mostTokens-leastTokens)
		c := load.Completion{At: at, Text: fmt.Sprintf(
			`{"model": "tiny", "stream": true, "max_tokens": %d, "messages": [%s]}`, tokens,
			strings.Join(messages, ", "))}
		if named {
			c.Conversation = name
		}
		if at < end {
			turns = append(turns, c)
		}
		// The simulated engines answer this.
		messages = append(messages, message("assistant", strings.Repeat(" token", tokens)))
		at += leastPause + time.Duration(random.Int64N(int64(mostPause-leastPause)))
	}
	return turns
}

func message(role, text string) string { return fmt.Sprintf(`{"role": %q, "content": %q}`, role, text) }

// words returns a text of that many bytes, which begins with a title.
func words(letters *rand.Rand, title string, bytes int) string {
	var b strings.Builder
	for b.WriteString(title); b.Len() < bytes; {
		fmt.Fprintf(&b, "%x ", letters.Uint64())
	}
	return b.String()[:max(bytes, len(title))]
}
