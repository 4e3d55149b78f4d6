package prefix

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// whole is all that is compared of a body, the end that does not fill a piece included.
func whole(body []byte) (hash uint64, bytes int) {
	var r Reader
	var b reading
	b.begin(body)
	f := b.find()
	b.key("", &f)
	r.write(&b, &f)
	bytes = b.pieces*PieceBytes + b.filled
	b.seed()
	return b.hash, bytes
}

// same reports whether two bodies have the same prompt.
func same(a, b []byte) bool {
	x, n := whole(a)
	y, m := whole(b)
	return x == y && n == m
}

// TestEqualPromptsMatchHoweverTheyAreSpelled, and others do not: what clients were seen to write.
func TestEqualPromptsMatchHoweverTheyAreSpelled(t *testing.T) {
	chat := func(content, more string) string {
		return `{"model":"m","messages":[{"role":"system","content":` + content + `}]` + more + `}`
	}
	claude := func(parts string) string { return `{"system":[` + parts + `{"type":"text","text":"s"}],"messages":[]}` }
	hash := func(cch string) string {
		return `{"type":"text","text":"x-anthropic-billing-header: cch=` + cch + `;"},`
	}
	image := func(is, more string) string {
		return chat(`[{"type":"image_url","image_url":`+is+more+`},{"type":"text","text":"t"}]`, "")
	}
	for _, c := range []struct {
		name, a, b string
		same       bool
	}{
		{"cache_salt", chat(`"x"`, `,"cache_salt":"a"`), chat(`"x"`, `,"cache_salt":"b"`), false},
		{"cache_salt, then none", chat(`"x"`, `,"cache_salt":"a"`), chat(`"x"`, ""), false},
		{"cache_salt null", chat(`"x"`, `,"cache_salt":null`), chat(`"x"`, ""), true},
		{"cache_salt without a character", chat(`"x"`, `,"cache_salt":""`), chat(`"x"`, ""), true},
		{"cache_salt, as extra_key", chat(`"x"`, `,"cache_salt":"a"`), chat(`"x"`, `,"extra_key":"a"`), false},
		{"the same cache_salt, in front", chat(`"x"`, `,"cache_salt":"a"`),
			`{"cache_salt":"\u0061",` + chat(`"x"`, "")[1:], true},
		{"extra_key", `{"text":"x","extra_key":"a"}`, `{"text":"x","extra_key":"b"}`, false},
		{"lora_path", `{"text":"x","lora_path":"a"}`, `{"text":"x","lora_path":"b"}`, false},
		{"lora_path in a list", `{"text":"x","lora_path":"a"}`, `{"text":"x","lora_path":["a"]}`, true},
		{"lora_request", `{"prompt":"x","lora_request":{"name":"a","id":1}}`,
			`{"prompt":"x","lora_request":{"name":"b","id":1}}`, false},
		{"lora_task_id", `{"text_input":"x","lora_task_id":1}`, `{"text_input":"x","lora_task_id":2}`, false},
		{"adapter_id", `{"inputs":"x","parameters":{"adapter_id":"a"}}`, `{"inputs":"x"}`, false},
		{"another parameter", `{"inputs":"x","parameters":{"seed":7}}`, `{"inputs":"x"}`, true},
		{"lora_name", `{"text_input":"x","parameters":{"lora_name":"a"}}`, `{"text_input":"x"}`, false},
		{"a model's adapter", chat(`"x"`, `,"model":"m-lora"`), chat(`"x"`, ""), false},
		{"image_data", `{"text":"x","image_data":"a"}`, `{"text":"x","image_data":"b"}`, false},
		{"image_data in a list", `{"text":"x","image_data":"a"}`, `{"text":"x","image_data":["a"]}`, true},
		{"prompt_embeds", `{"prompt":"x","prompt_embeds":"a"}`, `{"prompt":"x","prompt_embeds":"b"}`, false},
		{"options of the image processor", chat(`"x"`, `,"mm_processor_kwargs":{"a":1}`), chat(`"x"`, ""), false},
		{"chat_template", chat(`"x"`, `,"chat_template":"{{x}}"`), chat(`"x"`, ""), false},
		{"Claude Code's attribution", claude(hash("1")), claude(hash("2")), true},
		{"its attribution, then none", claude(hash("1")), claude(""), true},
		{"another sampling", chat(`"x"`, `,"temperature":0.7`), chat(`"x"`, `,"seed":1`), true},

		{"an image", image(`{"url":"data:image/png;base64,AAAA"}`, ""),
			image(`{"url":"data:image/png;base64,AAAB"}`, ""), false},
		{"an image by its address", image(`{"url":"https://a/1.png"}`, ""),
			image(`{"url":"https://a/2.png"}`, ""), false},
		{"an image as a text", image(`{"url":"https://a/1.png"}`, ""), image(`"https:\/\/a\/1.png"`, ""), true},
		{"an image named again by its uuid", image(`{"url":"https://a/1.png"}`, `,"uuid":"u"`),
			image(`null`, `,"uuid":"u"`), true},
		{"another uuid", image(`null`, `,"uuid":"u"`), image(`null`, `,"uuid":"v"`), false},

		{"two prompts, the last is the same", `{"prompt":"x","prompt":"z"}`, `{"prompt":"y","prompt":"z"}`, true},
		{"two prompts, the first is the same", `{"prompt":"z","prompt":"x"}`, `{"prompt":"z","prompt":"y"}`, false},
		{"two models", `{"model":"a","model":"m","prompt":"x"}`, `{"model":"m","prompt":"x"}`, true},
		{"two contents", `{"messages":[{"content":"a","content":"x"}]}`, `{"messages":[{"content":"x"}]}`, true},
		{"two names in an object of a tool", `{"tools":[{"a":{"b":1,"c":2,"b":3}}],"messages":[1]}`,
			`{"tools":[{"a":{"c":2,"b":3}}],"messages":[1]}`, true},
		{"a prompt that is taken back", `{"prompt":"x","text":"y","prompt":null}`, `{"text":"y"}`, true},

		{"messages null", `{"messages":null,"prompt":"x"}`, `{"prompt":"x"}`, true},
		{"no messages", `{"messages":[],"prompt":"x"}`, `{"prompt":"x"}`, true},
		{"tools null", chat(`"x"`, `,"tools":null`), chat(`"x"`, ""), true},
		{"no tools", chat(`"x"`, `,"tools":[]`), chat(`"x"`, ""), true},
		{"tools", chat(`"x"`, `,"tools":[{}]`), chat(`"x"`, ""), false},
		{"null in a message", `{"messages":[{"role":"assistant","content":"x","tool_calls":null}]}`,
			`{"messages":[{"role":"assistant","content":"x"}]}`, true},
		{"null in a list", `{"messages":[{"content":[null,"x"]}]}`, `{"messages":[{"content":["x"]}]}`, false},
		{"a byte order mark", "\xef\xbb\xbf" + chat(`"x"`, ""), chat(`"x"`, ""), true},
		{"a content in parts", chat(`"x"`, ""), chat(`[{"type":"text","text":"x"}]`, ""), true},
		{"a content in two parts", chat(`"xy"`, ""), chat(`["x",{"type":"text","text":"y"}]`, ""), false},
		{"a part of another kind", chat(`"x"`, ""), chat(`[{"type":"refusal","text":"x"}]`, ""), false},
		{"parts of responses", chat(`"x"`, ""), chat(`[{"annotations":[],"text":"x","type":"output_text"}]`, ""), true},
		{"a tool's result in parts", `{"messages":[{"role":"user","content":[{"type":"tool_result","content":"x"}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"x"}]}]}]}`,
			true},
		{"a prompt in a list", `{"prompt":"x"}`, `{"prompt":["x"]}`, true},
		{"prompts in a list", `{"prompt":["x","y"]}`, `{"prompt":"xy"}`, false},
		{"what looks like a list of prompts", `{"prompt":["x","y"]}`, `{"prompt":"x\",\"y"}`, false},
		{"token ids in a list", `{"prompt":[1,2]}`, `{"prompt":[[1,2]]}`, true},
		{"token ids as floats", `{"input_ids":[1,20]}`, `{"input_ids":[1.0,2e1]}`, true},
		{"other token ids", `{"input_ids":[1,20]}`, `{"input_ids":[1,21]}`, false},
		{"input as a text", `{"input":"x"}`, `{"input":[{"role":"user","content":"x"}]}`, true},
		{"system apart", `{"system":"x","messages":[{"role":"user","content":"y"}]}`,
			`{"messages":[{"role":"system","content":"x"},{"role":"user","content":"y"}]}`, true},
		{"instructions in parts", `{"instructions":"x","input":"y"}`,
			`{"instructions":[{"type":"input_text","text":"x"}],"input":"y"}`, true},
		{"order of members", chat(`"x"`, ""), `{"messages":[{"content":"x","role":"system"}],"model":"m"}`, true},
		{"order of messages", `{"messages":[{"content":"x"},{"content":"y"}]}`,
			`{"messages":[{"content":"y"},{"content":"x"}]}`, false},
		{"role as content", `{"messages":[{"role":"x","content":"y"}]}`,
			`{"messages":[{"role":"y","content":"x"}]}`, false},
		{"escapes of names", `{"m\u0065ssages":[{"c\u006fntent":"x"}]}`, `{"messages":[{"content":"x"}]}`, true},
		{"escapes", chat(`"\u4f60\u597D\/\u000a\ud83d\ude00\u005c\u0022\u001F\n"`, ""),
			chat("\"你好/\\n😀\\\\\\\"\\u001f\\n\"", ""), true},
		{"an escaped escape", chat(`"\\u4f60"`, ""), chat(`"你"`, ""), false},
		{"half of a pair", chat(`"\ud83d"`, ""), chat(`"\ude00"`, ""), true}, // both U+FFFD
		{"numbers", `{"tools":[1,-0,1.5,1e3,12345678901234567],"messages":[1]}`,
			`{"tools":[1.0,0,15e-1,1000,1.2345678901234567e16],"messages":[1]}`, true},
		{"other numbers", `{"tools":[1],"messages":[1]}`, `{"tools":[1.5],"messages":[1]}`, false},
		{"a number and its text", `{"tools":[1],"messages":[1]}`, `{"tools":["1"],"messages":[1]}`, false},
		{"a list and its element", `{"tools":[[1]],"messages":[1]}`, `{"tools":[1],"messages":[1]}`, false},
		{"empty values", `{"tools":[{"a":[]}],"messages":[1]}`, `{"tools":[{"a":{}}],"messages":[1]}`, false},
	} {
		for _, body := range []string{c.a, c.b} {
			if !json.Valid(bytes.TrimPrefix([]byte(body), byteOrderMark)) {
				t.Errorf("%s: not JSON: %s", c.name, body)
			}
		}
		if got := same([]byte(c.a), []byte(c.b)); got != c.same {
			t.Errorf("%s: the same prompt is %v, want %v:\n%s\n%s", c.name, got, c.same, c.a, c.b)
		}
	}
}

// TestWhatIsCommonIsInFront: what two bodies share is at the beginning of both, however they are spelled.
func TestWhatIsCommonIsInFront(t *testing.T) {
	common := text("c", 40)
	for name, of := range map[string][2]string{
		"a text and parts": {`{"messages":[{"role":"user","content":"` + common + `"}]}`,
			`{"messages":[{"content":["` + common + `",{"type":"image_url","image_url":"x"}],"role":"user"}]}`},
		"an id in front": {`{"messages":[{"id":"1","role":"user","content":"` + common + `"}]}`,
			`{"messages":[{"id":"2","role":"user","content":"` + common + `"}]}`},
		"a prompt and prompts": {`{"prompt":"` + common + `"}`, `{"prompt":["` + common + `","y"]}`},
		"system and a system message": {`{"system":"` + common + `","messages":[{"role":"user","content":"a"}]}`,
			`{"messages":[{"content":"` + common + `","role":"system"},{"role":"user","content":"b"}]}`},
	} {
		if got := shared(read([]byte(of[0])), read([]byte(of[1]))); got < 32 {
			t.Errorf("%s: %d blocks are shared of 40", name, got)
		}
	}
}

// A speller writes a value in one of the ways that clients may.
type speller struct {
	*rand.Rand
	out bytes.Buffer
}

func (s *speller) one(n int) bool { return s.IntN(n) == 0 }

func (s *speller) space() {
	for s.one(6) {
		s.out.WriteByte(" \t\n\r"[s.IntN(4)])
	}
}

func (s *speller) text(text string) {
	s.out.WriteByte('"')
	dense := s.one(3)
	for _, c := range text {
		switch short := strings.IndexRune("\"\\\b\f\n\r\t/", c); {
		case c > 0xffff && s.one(2):
			fmt.Fprintf(&s.out, `\u%04x\u%04X`, 0xd800+(c-0x10000)>>10, 0xdc00+(c-0x10000)&0x3ff)
		case c <= 0xffff && (c < ' ' && short < 0 || s.one(map[bool]int{true: 2, false: 40}[dense])):
			fmt.Fprintf(&s.out, []string{`\u%04x`, `\u%04X`}[s.IntN(2)], c)
		case short >= 0 && (c != '/' || s.one(2)):
			s.out.WriteByte('\\')
			s.out.WriteByte(`"\bfnrt/`[short])
		default:
			s.out.WriteRune(c)
		}
	}
	s.out.WriteByte('"')
}

func (s *speller) number(f float64) {
	forms := []string{"%v", "%.20e", "%E", "%g"}
	if f == float64(int64(f)) {
		forms = append(forms, "%.0f", "%.0f", "%.2f", "%.0f.0", "%.0fe0")
	}
	text := fmt.Sprintf(forms[s.IntN(len(forms))], f)
	var back float64
	if json.Unmarshal([]byte(text), &back) != nil || back != f {
		text = fmt.Sprint(f)
	}
	s.out.WriteString(text)
}

// value spells a value; in objects, members come in any order, after others with the same names, and null ones.
func (s *speller) value(v any) {
	s.space()
	defer s.space()
	switch v := v.(type) {
	case map[string]any:
		s.object(v)
	case []any:
		s.out.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				s.out.WriteByte(',')
			}
			s.value(e)
		}
		s.out.WriteByte(']')
	case string:
		s.text(v)
	case float64:
		s.number(v)
	default:
		out, _ := json.Marshal(v)
		s.out.Write(out)
	}
}

func (s *speller) object(v map[string]any) {
	names := slices.Sorted(maps.Keys(v))
	for _, name := range names {
		for s.one(9) {
			names = append(names, name)
		}
	}
	s.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	s.out.WriteByte('{')
	for i, name := range names {
		if i > 0 {
			s.out.WriteByte(',')
		}
		s.space()
		s.text(name)
		s.space()
		s.out.WriteByte(':')
		if slices.Contains(names[i+1:], name) {
			s.value([]any{"other", nil, 7.0, []any{}}[s.IntN(4)])
		} else {
			s.value(v[name])
		}
	}
	if s.one(5) && len(v) > 0 {
		s.out.WriteString(`,"none":null`)
	}
	s.out.WriteByte('}')
}

func spelled(r *rand.Rand, v any) []byte {
	s := speller{Rand: r}
	if s.one(5) {
		s.out.Write(byteOrderMark)
	}
	s.value(v)
	return s.out.Bytes()
}

// A maker makes bodies.
type maker struct{ *rand.Rand }

func (m maker) pick(of ...any) any { return of[m.IntN(len(of))] }

func (m maker) text() string {
	var b strings.Builder
	for range m.IntN(1 << m.IntN(7)) {
		b.WriteString(m.pick("a", "b ", "\n", `"`, `\`, "/", "u", "\\u0041", "é", "你", "😀", "\x01", "\u2028", "\x7f",
			"]", "}", ",", "null", "\ufffd").(string))
	}
	return b.String()
}

func (m maker) number() float64 {
	return m.pick(0.0, 1.0, -1.0, 0.5, 100.0, 1e15, 123456789012345.0, 1e21, 1.5e-7, -2.25).(float64)
}

func (m maker) value(depth int) any {
	if depth == 0 {
		return m.pick(m.text(), m.number(), true, false, nil, []any{}, map[string]any{})
	}
	switch m.IntN(4) {
	case 0:
		all := []any{}
		for range m.IntN(4) {
			all = append(all, m.value(depth-1))
		}
		return all
	case 1, 2:
		all := map[string]any{}
		for range m.IntN(4) {
			name := m.pick("role", "content", "type", "text", "a", "b\n", "é", "image_url", "uuid", "cache_control",
				m.text()).(string)
			all[name] = m.value(depth - 1)
		}
		return all
	}
	return m.value(0)
}

func (m maker) content() any {
	if m.IntN(2) == 0 {
		return m.text()
	}
	var parts []any
	for range 1 + m.IntN(3) {
		parts = append(parts, m.pick(m.text(), map[string]any{"type": "text", "text": m.text()},
			map[string]any{"type": "input_text", "text": m.text(), "annotations": []any{}},
			map[string]any{"type": "image_url", "image_url": map[string]any{"url": m.text()}},
			map[string]any{"type": "image_url", "image_url": m.text(), "uuid": m.pick("u", "", nil)},
			map[string]any{"type": "tool_result", "content": m.pick(m.text(), []any{m.text()})}, m.value(2)))
	}
	return parts
}

func (m maker) messages() any {
	var all []any
	for range m.IntN(4) {
		all = append(all, m.pick(map[string]any{"role": m.pick("user", "system"), "content": m.content()},
			map[string]any{"role": "assistant", "content": nil, "tool_calls": m.value(3)}, m.value(3)))
	}
	return all
}

func (m maker) ids() any {
	all := []any{}
	for range m.IntN(40) {
		all = append(all, float64(m.IntN(200_000)))
	}
	return all
}

func (m maker) body() map[string]any {
	b := map[string]any{"temperature": m.number(), "model": m.pick("m", "n", nil, "")}
	for range 1 + m.IntN(4) {
		switch m.IntN(8) {
		case 0:
			b["tools"] = m.pick(nil, []any{}, []any{m.value(4)})
		case 1:
			b[m.pick("system", "instructions").(string)] = m.pick(m.content(), nil, "")
		case 2:
			b[m.pick("cache_salt", "extra_key", "lora_path", "image_data", "chat_template").(string)] =
				m.pick("a", "b", nil, "", []any{"a"}, m.text())
		case 3:
			b["parameters"] = m.pick(nil, "a", map[string]any{"adapter_id": m.pick("a", nil), "seed": 1.0})
		case 4, 5:
			b[m.pick("messages", "input").(string)] = m.pick(m.messages(), m.text(), nil)
		case 6:
			b[m.pick("prompt", "text", "inputs").(string)] =
				m.pick(m.text(), []any{m.text(), m.text()}, []any{m.text()}, nil)
		case 7:
			b[m.pick("input_ids", "prompt_token_ids").(string)] = m.pick(m.ids(), []any{m.ids()}, nil)
		}
	}
	return b
}

// changed returns a body that may differ in one place.
func (m maker) changed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := maps.Clone(v)
		if names := slices.Sorted(maps.Keys(v)); len(names) > 0 {
			name := names[m.IntN(len(names))]
			if out[name] = m.changed(v[name]); m.IntN(4) == 0 {
				delete(out, name)
			}
		}
		return out
	case []any:
		out := slices.Clone(v)
		if len(out) > 0 {
			i := m.IntN(len(out))
			out[i] = m.changed(out[i])
		}
		return out
	case string:
		return v + m.pick("", "a", "\n", `\`).(string)
	case float64:
		return v + m.pick(0.0, 1.0).(float64)
	case nil:
		return m.pick(nil, "x")
	}
	return v
}

// expected is what is compared of a body, by encoding/json: equal values are equal prompts.
func expected(t *testing.T, body []byte) any {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(bytes.TrimPrefix(body, byteOrderMark), &all); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	first := func(names ...string) any {
		for _, name := range names {
			if v := present(all[name]); v != nil {
				return v
			}
		}
		return nil
	}
	key := map[string]any{}
	for _, name := range []string{"model", "cache_salt", "extra_key", "lora_path", "image_data", "chat_template"} {
		key[name] = only(normal(first(name)))
	}
	of, _ := all["parameters"].(map[string]any)
	key["adapter_id"] = only(normal(present(of["adapter_id"])))
	if messages := first("messages", "input"); messages != nil {
		list, ok := messages.([]any)
		switch {
		case !ok:
			messages = []any{map[string]any{"role": "user", "content": messages}}
		case areNumbers(list):
			messages = []any{list}
		}
		if system := first("system", "instructions"); system != nil {
			messages = append([]any{map[string]any{"role": "system", "content": system}}, messages.([]any)...)
		}
		return []any{key, normal(first("tools")), normal(messages)}
	}
	prompt := first("input_ids", "prompt_token_ids", "prompt", "inputs", "text", "text_input")
	if list, ok := prompt.([]any); prompt != nil && (!ok || areNumbers(list)) {
		prompt = []any{prompt}
	}
	if reflect.DeepEqual(prompt, []any{""}) {
		prompt = nil
	}
	return []any{key, normal(prompt)}
}

func present(v any) any {
	if v == "" || reflect.DeepEqual(v, []any{}) || reflect.DeepEqual(v, map[string]any{}) {
		return nil
	}
	return v
}

func areNumbers(list []any) bool {
	return len(list) > 0 && !slices.ContainsFunc(list, func(v any) bool { _, ok := v.(float64); return !ok })
}

func only(v any) any {
	if list, ok := v.([]any); ok && len(list) == 1 && !areNumbers(list) {
		return list[0]
	}
	return v
}

// normal is a value without what does not count.
func normal(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = normal(e)
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for name, of := range v {
			address, isText := of.(string)
			switch {
			case of == nil || name == cacheMarker:
			case name == "content":
				out[name] = parts(of)
			case isText && slices.Contains([]string{"image_url", "video_url", "audio_url"}, name):
				out[name] = map[string]any{"url": address}
			default:
				out[name] = normal(of)
			}
		}
		return out
	}
	return v
}

// parts returns a content as a list of parts.
func parts(content any) any {
	list, ok := content.([]any)
	if text, isText := content.(string); isText {
		list = []any{text}
	} else if !ok {
		return normal(content)
	}
	out := make([]any, len(list))
	for i, e := range list {
		part, _ := e.(map[string]any)
		text, isText := part["text"].(string)
		uuid, _ := part["uuid"].(string)
		switch {
		case isText && slices.Contains([]any{nil, "text", "input_text", "output_text"}, part["type"]):
			out[i] = text
		case uuid != "":
			out[i] = map[string]any{"uuid": uuid}
		default:
			out[i] = normal(e)
		}
	}
	return out
}

// FuzzPromptsAreThoseOfEncodingJSON: two bodies have the same prompt if and only if encoding/json reads equal values of
// what counts.
func FuzzPromptsAreThoseOfEncodingJSON(f *testing.F) {
	for seed := range uint64(2000) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := maker{r}
		value := m.body()
		other := value
		for range r.IntN(3) {
			other = m.changed(other).(map[string]any)
		}
		a, b := spelled(r, value), spelled(r, other)
		read(a[:r.IntN(len(a))]) // may end anywhere
		want := reflect.DeepEqual(expected(t, a), expected(t, b))
		if got := same(a, b); got != want {
			t.Fatalf("the same prompt is %v, want %v:\n%s\n%s\n%#v\n%#v", got, want, a, b, expected(t, a),
				expected(t, b))
		}
		if x, y := read(a), read(b); want && (!slices.Equal(x.Steps, y.Steps) || x.Whole != y.Whole) {
			t.Fatalf("%v\n%v", x, y)
		}
	})
}

// FuzzSpelling: whatever JSON strangers write, encoding/json's own spelling of it is the same prompt.
func FuzzSpelling(f *testing.F) {
	for _, body := range []string{`{"model":"m","messages":[{"role":"user","content":"\ud83d\u00e9\/\b\\u0041<&>"}]}`,
		`{"prompt":[1,2e0,-0,1.5,123456789012345678]}`, `{"inputs":"x","inputs":null,"parameters":{"adapter_id":"a"}}`,
		`{"tools":[{"b":[1,{"\u0061":[]}],"a":null,"b":1e400}],"messages":[{}]}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var v any
		if !utf8.Valid(body) || json.Unmarshal(body, &v) != nil || deep(v, maxDepth) {
			return
		}
		again, err := json.Marshal(v)
		if err != nil || len(again) > MaxBody {
			return
		}
		if !same(body, again) {
			t.Fatalf("another prompt:\n%s\n%s", body, again)
		}
	})
}

func deep(v any, most int) bool {
	is := func(v any) bool { return deep(v, most-1) }
	switch v := v.(type) {
	case []any:
		return most == 0 || slices.ContainsFunc(v, is)
	case map[string]any:
		return most == 0 || slices.ContainsFunc(slices.Collect(maps.Values(v)), is)
	}
	return false
}
