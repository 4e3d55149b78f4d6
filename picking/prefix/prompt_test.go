package prefix

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// text is n blocks of a text that no other name has.
func text(name string, blocks int) string {
	one := (name + strings.Repeat(".", PieceBytes))[:PieceBytes]
	return strings.Repeat(one, blocks)
}

type message struct {
	Role    string `json:"role"`
	Content any    `json:"content"`
}

func said(role string, content any) message { return message{role, content} }

// chat is a body of a conversation, with other members around the messages.
func chat(t testing.TB, messages ...message) []byte {
	t.Helper()
	return marshalled(t, struct {
		Model       string    `json:"model"`
		Temperature float64   `json:"temperature"`
		Messages    []message `json:"messages"`
	}{"llama", 0.7, messages})
}

func marshalled(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func read(body []byte) Prompt { return new(Reader).Read("", body, int64(len(body))) }

// shared is the number of blocks of the deepest step that both prompts have.
func shared(a, b Prompt) int {
	deepest := 0
	for _, s := range a.Steps {
		if slices.Contains(b.Steps, s) {
			deepest = s.Blocks
		}
	}
	return deepest
}

func last(p Prompt) int { return p.Steps[len(p.Steps)-1].Blocks }

func TestAConversationThatGoesOnContainsTheOneBefore(t *testing.T) {
	system, first, answer := said("system", text("s", 6)), said("user", text("u", 3)), said("assistant", text("a", 2))
	before := read(chat(t, system, first))
	after := read(chat(t, system, first, answer, said("user", text("v", 2))))
	if got := shared(before, after); got != last(before) {
		t.Errorf("%d blocks are shared, want all %d of the first turn: %v, %v", got, last(before), before, after)
	}
	if len(after.Steps) != 4 {
		t.Errorf("steps %v, want the ends of four messages", after.Steps)
	}
}

func TestConversationsThatBranchShareWhatIsBeforeTheBranch(t *testing.T) {
	system := said("system", text("s", 12))
	a, b := read(chat(t, system, said("user", text("a", 5)))), read(chat(t, system, said("user", text("b", 5))))
	if got, want := shared(a, b), a.Steps[0].Blocks; got != want || want < 12 {
		t.Errorf("%d blocks are shared, want the system message, %d: %v, %v", got, want, a.Steps, b.Steps)
	}
	if a.Key(shared(a, b)) == b.Key(shared(a, b)) {
		t.Error("the keys of what differs are the same")
	}
	if a.Key(0) != b.Key(0) {
		t.Error("the keys of what is the same differ")
	}
}

func TestADocumentInsideAMessageIsShared(t *testing.T) {
	ask := func(question string) Prompt { return read(chat(t, said("user", text("d", 100)+question))) }
	if got := shared(ask(text("p", 9)), ask(text("q", 9))); got != 96 {
		t.Errorf("%d blocks are shared, want 96: the rung of the ladder under 100", got)
	}
}

func TestWhiteSpaceAndOtherMembersDoNotMatter(t *testing.T) {
	messages := []message{said("system", text("s", 3)+`"\`), said("user", text("u", 3))}
	compact := chat(t, messages...)
	var indented bytes.Buffer
	if err := json.Indent(&indented, marshalled(t, map[string]any{"user": "x", "messages": messages, "n": []int{1},
		"model": "llama", "zzz": map[string]any{"messages": 1}}), "", "\t "); err != nil {
		t.Fatal(err)
	}
	a, b := read(compact), read(indented.Bytes())
	if !slices.Equal(a.Steps, b.Steps) || a.Whole != b.Whole || len(a.Steps) == 0 {
		t.Errorf("%v\n%v", a, b)
	}
}

// TestCacheMarkersDoNotMatter: clients of Anthropic messages mark the latest message with each turn.
func TestCacheMarkersDoNotMatter(t *testing.T) {
	type part struct {
		Mark any    `json:"cache_control,omitempty"`
		Type string `json:"type"`
		Text string `json:"text"`
		Late any    `json:"CACHE_CONTROL,omitempty"`
	}
	mark := map[string]any{"type": "ephemeral", "of": []any{1, "}"}}
	plain := func(name string) []part { return []part{{Type: "text", Text: text(name, 5)}} }
	first := []part{{Type: "text", Text: text("u", 5), Mark: mark}}
	last := []part{{Type: "text", Text: text("u", 5), Late: mark}}
	after := read(chat(t, said("user", plain("u")), said("assistant", plain("a")), said("user", plain("v"))))
	for name, marked := range map[string][]part{"first member": first, "last member": last} {
		body := bytes.ReplaceAll(chat(t, said("user", marked)), []byte("CACHE_CONTROL"), []byte(cacheMarker))
		before := read(body)
		if got := shared(before, after); got < 5 || got != before.Steps[len(before.Steps)-1].Blocks {
			t.Errorf("marked in the %s: %d blocks are shared, want all: %v, %v", name, got, before, after)
		}
	}
	a, b := read(chat(t, said(cacheMarker, text("w", 5)))), read(chat(t, said("user", text("w", 5))))
	if shared(a, b) > 0 {
		t.Error("a value that has the name of the member is left out")
	}
}

func TestAnotherModelSharesNothing(t *testing.T) {
	body := chat(t, said("user", text("u", 20)))
	other := bytes.Replace(body, []byte("llama"), []byte("adapter"), 1)
	if got := shared(read(body), read(other)); got != 0 {
		t.Errorf("%d blocks are shared", got)
	}
}

// TestSystemAndToolsComeFirst: templates put them in front of the messages, wherever they are in the body.
func TestSystemAndToolsComeFirst(t *testing.T) {
	tools, system := text("t", 4), text("s", 4)
	form := func(format, question string) Prompt {
		return read(fmt.Appendf(nil, format, question, system, tools))
	}
	const behind = `{"messages":[{"role":"user","content":"%s"}],"system":"%s","tools":["%s"]}`
	a, b := form(behind, text("a", 4)), form(behind, text("b", 4))
	if got := shared(a, b); got < 8 {
		t.Errorf("%d blocks are shared, want 8: %v, %v", got, a.Steps, b.Steps)
	}
}

// TestEachAPIHasItsPrompt: the bodies of the APIs that engines serve. Two that begin in the same way share that, and no
// more; the members around the prompt do not matter.
func TestEachAPIHasItsPrompt(t *testing.T) {
	begin := text("b", 40)
	type body = map[string]any
	for name, of := range map[string]func(prompt string) body{
		"OpenAI chat": func(p string) body {
			return body{"messages": []message{said("system", begin), said("user", p)}, "n": 1}
		},
		"OpenAI completions": func(p string) body { return body{"prompt": begin + p, "max_tokens": 9} },
		"OpenAI responses": func(p string) body {
			return body{"instructions": begin, "input": []message{said("user", p)}, "text": body{"format": body{}}}
		},
		"OpenAI responses, a text": func(p string) body { return body{"instructions": begin, "input": p} },
		"Anthropic messages": func(p string) body {
			return body{"system": begin, "messages": []message{said("user", p)}}
		},
		"SGLang": func(p string) body { return body{"text": begin + p, "sampling_params": body{"n": 1}} },
		"TGI":    func(p string) body { return body{"inputs": begin + p, "parameters": body{"seed": 7}} },
		"Triton": func(p string) body { return body{"text_input": begin + p, "stream": true} },
	} {
		a, b := read(marshalled(t, of(text("x", 40)))), read(marshalled(t, of(text("y", 40))))
		if got := shared(a, b); got < 32 || got > 41 {
			t.Errorf("%s: %d blocks are shared of a beginning of 40", name, got)
		}
		if last(a) < 80 || shared(a, read(marshalled(t, of(text("x", 40))))) != last(a) {
			t.Errorf("%s: the prompt has the steps %v, want some up to 80 blocks", name, a.Steps)
		}
	}
}

// Counting tokens, or rendering a template, leaves nothing in a cache; a path that is not known may.
func TestARequestThatComputesNoPromptHasNone(t *testing.T) {
	body := chat(t, said("user", text("u", 40)))
	for path, want := range map[string]bool{
		"/v1/chat/completions": true, "/v1/completions": true, "/v1/messages": true, "/v1/responses": true,
		"/generate": true, "/generate_stream": true, "/infer": true, "/v2/models/X/generate": true,
		"/v2/models/X/generate_stream": true, "/v2/models/X/versions/2/infer": true, "/v2/models/render/infer": true,
		"/v1/embeddings": true, "/score": true, "/v1/rerank": true, "/pooling": true, "/classify": true, "": true,
		"/": true, "/v1/chat/completions?of=/tokenize": true, "/of/ones/own": true, "/tokenize/v1/completions": true,

		"/v1/messages/count_tokens": false, "/v1/messages/count_tokens?beta=true": false, "/tokenize": false,
		"/llm/v1/messages/count_tokens/": false, "/v1/responses/input_tokens": false, "/detokenize": false,
		"/v1/tokenize": false, "/chat_tokenize": false, "/v1/chat/completions/render": false,
		"/v1/completions/render": false, "/apply-template": false, "/parse_function_call": false,
	} {
		if p := new(Reader).Read(path, body, int64(len(body))); len(p.Steps) > 0 != want {
			t.Errorf("%q: the steps %v, want some: %v", path, p.Steps, want)
		}
	}
}

// An engine that keeps the last tokens of a prompt caches it as its end, which does not begin as others do.
func TestAPromptThatIsCutSharesNothing(t *testing.T) {
	type body = map[string]any
	begin := text("b", 40) // of 640 tokens
	for name, of := range map[string]func(prompt string, most any) body{
		"vLLM": func(p string, most any) body {
			return body{"messages": []message{said("system", begin), said("user", p)}, "truncate_prompt_tokens": most}
		},
		"vLLM, completions": func(p string, most any) body {
			return body{"prompt": begin + p, "truncate_prompt_tokens": most}
		},
		"TGI": func(p string, most any) body {
			return body{"inputs": begin + p, "parameters": body{"truncate": most}}
		},
		"Triton": func(p string, most any) body {
			return body{"text_input": begin + p, "parameters": body{"truncate_prompt_tokens": most}}
		},
	} {
		a, b := text("x", 40), text("y", 40)
		at := func(prompt string, most any) Prompt { return read(marshalled(t, of(prompt, most))) }
		if p := at(a, 100); len(p.Steps) > 0 {
			t.Errorf("%s: the steps %v of a prompt of which 100 tokens are left", name, p.Steps)
		}
		if shared(at(a, 10_000), at(b, 10_000)) == 0 || shared(at(a, -1), at(b, -1)) == 0 {
			t.Errorf("%s: prompts that are not cut share nothing", name)
		}
		if shared(at(a, 10_000), at(a, nil)) > 0 || shared(at(a, -1), at(a, nil)) > 0 {
			t.Errorf("%s: a prompt that may be cut is as one that is not", name)
		}
		if shared(at(a, nil), at(b, nil)) == 0 {
			t.Errorf("%s: null is a limit", name)
		}
	}
}

func TestTheModelOfThePathIsPartOfTheKey(t *testing.T) {
	body := marshalled(t, map[string]string{"text_input": text("t", 40)})
	at := func(path string) Prompt { return new(Reader).Read(path, body, int64(len(body))) }
	all := []string{"/generate", "/v2/models/a/generate", "/v2/models/b/generate", "/v2/models/a/versions/1/generate",
		"/v2/models/a/versions/2/generate"}
	for i, a := range all {
		for k, b := range all {
			if n := shared(at(a), at(b)); (n > 0) != (i == k) {
				t.Errorf("%s and %s share %d blocks", a, b, n)
			}
		}
	}
	for _, other := range []string{"/v2/models/a/generate_stream", "/v2/models/a/infer?x=1", "/triton/v2/models/a"} {
		if a := at("/v2/models/a/generate"); shared(a, at(other)) != last(a) {
			t.Errorf("%s is another model than /v2/models/a/generate", other)
		}
	}
}

func TestTokenIdsBeginMessagesAtMarkers(t *testing.T) {
	tokens := func(marker int, lengths ...int) (ids []int) {
		for i, n := range lengths {
			ids = append(ids, marker)
			for k := range n - 1 {
				ids = append(ids, 1000*i+k)
			}
		}
		return ids
	}
	steps := func(r Reader, body any) (blocks []int) {
		for _, s := range r.Read("", marshalled(t, body), -1).Steps {
			blocks = append(blocks, s.Blocks)
		}
		return blocks
	}
	type completion struct {
		Prompt any `json:"prompt"`
	}
	for _, c := range []struct {
		name   string
		reader Reader
		body   any
		want   []int
	}{
		{"Llama 3", Reader{}, completion{tokens(128006, 40, 50, 70)}, []int{2, 5, 10}},
		{"ChatML", Reader{}, completion{tokens(151644, 40, 50, 70)}, []int{2, 5, 10}},
		{"configured", Reader{Markers: []uint32{7}}, completion{tokens(7, 40, 50, 70)}, []int{2, 5, 10}},
		{"near each other", Reader{}, completion{tokens(128006, 33, 3, 3, 3, 22)}, []int{2, 4}},
		{"no markers", Reader{}, completion{tokens(5, 320)}, []int{16, 20}},
		{"a batch", Reader{}, completion{[][]int{tokens(5, 40), tokens(5, 40)}}, []int{2, 5}},
		{"input_ids", Reader{}, map[string]any{"input_ids": tokens(128006, 40, 50)}, []int{2, 5}},
		{"prompt_token_ids", Reader{}, map[string]any{"prompt_token_ids": tokens(128006, 40, 50)}, []int{2, 5}},
		{"text", Reader{}, completion{text("x", 50)}, []int{16, 24, 32, 48, 50}},
		{"several texts", Reader{}, completion{[]string{text("x", 5), text("y", 5)}}, []int{5, 10}},
	} {
		if got := steps(c.reader, c.body); !slices.Equal(got, c.want) {
			t.Errorf("%s: steps at %v, want %v", c.name, got, c.want)
		}
	}
}

func TestWhatIsNoPromptHasNoSteps(t *testing.T) {
	for _, body := range []string{"", "hello", "[]", "{}", `{"content":"` + text("x", 40) + `"}`, `{"messages":[]}`,
		`{"messages":"no array"}`, `{"prompt":null}`, `"messages"`, "\x00\xff", "\x1f\x8b\x08" + text("gzip", 40),
		"\xff\xfe{\x00\"\x00p\x00", `{"prompt":`, `{"prompt"`, `{"`,
		`{"messages":[{"role":"user","content":"short"}]}`} {
		if p := read([]byte(body)); len(p.Steps) != 0 || p.Key(0) != 0 {
			t.Errorf("%q has the steps %v", body, p.Steps)
		}
	}
}

// TestTheFirstPartOfABodyIsEnough: its steps are those of the whole, and the size of the rest is guessed.
func TestTheFirstPartOfABodyIsEnough(t *testing.T) {
	var messages []message
	for i := range 40 {
		messages = append(messages, said("user", text(fmt.Sprint(i), 10)))
	}
	body := chat(t, messages...)
	whole := read(body)
	for _, n := range []int{100, 1000, 5000, len(body) - 30} {
		part := new(Reader).Read("", body[:n], int64(len(body)))
		if n >= 1000 && len(part.Steps) == 0 {
			t.Errorf("%d bytes have no steps", n)
		}
		for _, s := range part.Steps {
			isEnd := s == part.Steps[len(part.Steps)-1] // of what was read
			if !isEnd && !slices.Contains(whole.Steps, s) {
				t.Errorf("%d bytes have the step %v, which the whole body does not have", n, s)
			}
		}
		if n >= 1000 && (part.Whole < 0.9*whole.Whole || part.Whole > 1.1*whole.Whole) {
			t.Errorf("%d bytes: the whole is guessed as %.0f blocks, it has %.0f", n, part.Whole, whole.Whole)
		}
	}
}

func TestNoMoreOfABodyIsReadThanIsWorthIt(t *testing.T) {
	body := []byte(`{"prompt":"` + strings.Repeat("x", MaxBody) + `"}`)
	first := new(Reader).Read("", body[:MaxBody], int64(len(body)))
	if whole := read(body); !slices.Equal(whole.Steps, first.Steps) || whole.Whole != first.Whole {
		t.Errorf("the whole body has the steps %v, its first part %v", whole.Steps, first.Steps)
	}
}

// TestTheKeyOfALongBodyIsFoundBehindItsMessages: clients append what they add to a request. Where that has not come, it
// is as if it was not there.
func TestTheKeyOfALongBodyIsFoundBehindItsMessages(t *testing.T) {
	long := func(size int, more string) []byte {
		return []byte(`{"messages":[{"role":"user","content":"` + strings.Repeat("x ", size/2) + `"}]` + more + "}")
	}
	for _, c := range []struct {
		name, a, b string
		size, come int
		same       bool
	}{
		{"the same", `,"model":"m","cache_salt":"a"`, `,"model":"m","cache_salt":"a"`, 300 << 10, MaxKeyBody, true},
		{"cache_salt", `,"cache_salt":"a"`, `,"cache_salt":"b"`, 300 << 10, MaxKeyBody, false},
		{"model", `,"model":"a"`, `,"model":"b"`, 300 << 10, MaxKeyBody, false},
		{"cache_salt, then none", `,"cache_salt":"a"`, "", 300 << 10, MaxKeyBody, false},
		{"adapter", `,"parameters":{"adapter_id":"a"}`, "", 300 << 10, MaxKeyBody, false},
		{"another sampling", `,"temperature":1`, `,"seed":1`, 300 << 10, MaxKeyBody, true},
		{"what has not come", `,"cache_salt":"a"`, `,"cache_salt":"b"`, 300 << 10, MaxBody, true},
		{"what is not looked at", `,"cache_salt":"a"`, `,"cache_salt":"b"`, MaxKeyBody, MaxKeyBody, true},
	} {
		prompt := func(more string) Prompt {
			var f First
			body := long(c.size, more)
			f.Add(body, c.come)
			p, _ := f.Read(new(Reader), "", int64(len(body)), false)
			return p
		}
		a, b := prompt(c.a), prompt(c.b)
		if got := shared(a, b); c.same && got != last(a) || !c.same && got > 0 || last(a) < MaxBody/PieceBytes-2 {
			t.Errorf("%s: %d of %d blocks are shared, want all: %t", c.name, got, last(a), c.same)
		}
	}
}

func TestStepsAreBounded(t *testing.T) {
	var messages []message
	for i := range 2000 {
		messages = append(messages, said("user", text(fmt.Sprint(i), 1)))
	}
	whole := read(chat(t, messages...))
	if len(whole.Steps) != MaxSteps {
		t.Fatalf("%d steps, want %d", len(whole.Steps), MaxSteps)
	}
	if !slices.IsSortedFunc(whole.Steps, func(a, b Step) int { return a.Blocks - b.Blocks }) {
		t.Errorf("steps in the order %v", whole.Steps)
	}
	if first := whole.Steps[0].Blocks; first > 2 || last(whole) < 2000 {
		t.Errorf("the first step is at %d, the last at %d", first, last(whole))
	}
}

func TestAPromptOfBlocksHasTheStepsOfItsEnds(t *testing.T) {
	p := FromBlocks([]uint64{11, 12, 13, 14, 15}, []int32{0, 2, 4, 9})
	want := []Step{{2, 12}, {4, 14}, {5, 15}}
	if !slices.Equal(p.Steps, want) || p.Whole != 5 {
		t.Errorf("%+v, want %v", p, want)
	}
	if got := p.Share(4); got != 0.8 {
		t.Errorf("4 of 5 blocks are a share of %v", got)
	}
	if got := new(Prompt).Share(4); got != 0 {
		t.Errorf("of no prompt they are %v", got)
	}
}

// FuzzRead: whatever strangers write, reading ends, the steps are in order and bounded, and the first half has no steps
// before its own end that the whole does not have.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":"` + text("x", 20) + `"},{"a":[1,{"b":"\\\""}]}]}`))
	f.Add([]byte(`{"prompt":[[128006,1,2],[3]],"prompt":"x"}`))
	f.Add([]byte(`{"instructions":"x","input":` + text("y", 2) + `","text":{},"inputs":"z"}`))
	f.Add([]byte(`{"system":[{"type":"text","text":"x"}],"messages":[` + text("y", 2) + `],"tools":{}}`))
	f.Add([]byte(`{"input_ids":[` + strings.Repeat("151644,1,22,333,", 40) + `]}`))
	f.Add([]byte(strings.Repeat(`{"messages":[`, 1000)))
	f.Add([]byte(strings.Repeat(`{"prompt":"\\\`, 1000)))
	f.Fuzz(func(t *testing.T, body []byte) {
		p := read(body)
		if len(p.Steps) > MaxSteps || p.Whole < 0 || p.Whole > float64(8*len(body)) {
			t.Fatalf("%d steps, %v blocks of %d bytes", len(p.Steps), p.Whole, len(body))
		}
		before := 0
		for _, s := range p.Steps {
			if s.Blocks <= before || float64(s.Blocks) > p.Whole {
				t.Fatalf("steps %v of %v", p.Steps, p.Whole)
			}
			before = s.Blocks
		}
	})
}

func BenchmarkRead(b *testing.B) {
	for _, kilobytes := range []int{1, 48, 200, 1000} {
		b.Run(fmt.Sprintf("%dKB", kilobytes), func(b *testing.B) {
			var messages []message
			for i := range kilobytes {
				messages = append(messages, said("user", strings.ReplaceAll(text(fmt.Sprint(i), 15), "....", "a b\n")))
			}
			body := chat(b, messages...)
			var r Reader
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				r.Read("", body, int64(len(body)))
			}
		})
	}
}

func TestBlocksAreThoseOfTheEngine(t *testing.T) {
	messages := chat(t, said("system", text("s", 7)), said("user", text("u", 1)), said("assistant", text("a", 24)))
	ids := []byte(`{"input_ids":[` + strings.TrimSuffix(strings.Repeat("7,", 1000), ",") + `]}`)
	for _, c := range []struct {
		name   string
		reader Reader
		body   []byte
		blocks []int
		whole  float64
	}{
		// 33.6 pieces: 7.5 of the first message, 9 of two, and the rest of the third.
		{"the default", Reader{}, messages, []int{7, 9, 16, 24, 32, 33}, 33.6},
		{"large ones, which two ends may share", Reader{BlockTokens: 128}, messages, []int{1, 2, 3, 4}, 4.2},
		{"fewer tokens in a byte", Reader{BlockTokens: 128, TokensPerByte: 0.125}, messages, []int{1, 2}, 2.1},
		{"more than any text has", Reader{BlockTokens: 128, TokensPerByte: 50}, messages,
			[]int{3, 4, 8, 12, 16}, 16.7},
		{"token ids", Reader{BlockTokens: 128, TokensPerByte: 0.125}, ids, []int{2, 3, 4, 6, 7}, 7.8},
		{"the least", Reader{BlockTokens: 1}, ids, []int{256, 384, 512, 768, 992}, 1000},
	} {
		p := c.reader.Read("", c.body, int64(len(c.body)))
		var blocks []int
		for _, s := range p.Steps {
			blocks = append(blocks, s.Blocks)
		}
		if !slices.Equal(blocks, c.blocks) || math.Abs(p.Whole-c.whole) > 0.1 {
			t.Errorf("%s: steps of %v blocks, of %.2f, want %v of %v", c.name, blocks, p.Whole, c.blocks, c.whole)
		}
	}
}

// TestWhatIsLearnedSurvivesANewEstimate of the tokens in a byte: what is hashed does not depend on it.
func TestWhatIsLearnedSurvivesANewEstimate(t *testing.T) {
	body := chat(t, said("system", text("s", 7)), said("user", text("u", 30)))
	before, after := Reader{TokensPerByte: 0.25, BlockTokens: 16}, Reader{TokensPerByte: 0.28, BlockTokens: 16}
	table := NewTable(Limits{})
	p := before.Read("", body, int64(len(body)))
	table.Learn(&p, "a", Own, start)
	p = after.Read("", body, int64(len(body)))
	var m Matches
	if table.Match(&p, &m); len(m.All) != 1 || p.Share(m.All[0].Blocks) < 0.95 {
		t.Errorf("matches %v of %v", m.All, p)
	}
}
