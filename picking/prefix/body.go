package prefix

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// MaxBody is how much of a body is worth reading, in bytes: what comes after it is guessed from its size. The parts of
// the engines' cache keys are looked for in the first MaxKeyBody, since clients append them: openai-python has messages
// before the model, and its extra_body behind all (resources/chat/completions/completions.py and _base_client.py in
// openai/openai-python).
const MaxBody, MaxKeyBody = 256 << 10, 1 << 20

// DefaultMarkers are the token ids that begin a message: of Llama 3 (<|start_header_id|>) and of Qwen's ChatML
// (<|im_start|>).
var DefaultMarkers = []uint32{128006, 151644}

// A Reader finds prompts in bodies. Its zero value takes the defaults.
type Reader struct {
	Markers []uint32 // token ids that begin a message; empty: DefaultMarkers
	// BlockTokens is the size of the engines' blocks; 0: PieceTokens.
	BlockTokens int
	// TokensPerByte is the mean of a text; 0: PieceTokens in PieceBytes. A value outside the range of texts counts as
	// the nearest one within it.
	TokensPerByte float64
}

// The tokens of a byte: at least those of text in escapes (\u4f60), at most one.
const leastPerByte, mostPerByte = 1. / 16, 1.

// perPiece returns how many blocks a piece of text is, or one of token ids.
func (r *Reader) perPiece(text bool) float64 {
	tokens := float64(PieceTokens)
	if text && r.TokensPerByte > 0 {
		tokens = PieceBytes * min(max(r.TokensPerByte, leastPerByte), mostPerByte)
	}
	return tokens / float64(r.blockTokens())
}

func (r *Reader) blockTokens() int { return cmp.Or(max(0, r.BlockTokens), PieceTokens) }

// The members of a body that count: those before slotTools are parts of engines' cache keys, see package comment, the
// others of the prompt. Members with one slot mean the same.
const (
	slotNone = iota
	slotPath // of the request, not of the body
	slotModel
	slotSalt
	slotExtraKey
	slotLoRAPath
	slotLoRARequest
	slotLoRATask
	slotLoRAName
	slotAdapter
	slotImages
	slotVideos
	slotAudios
	slotPromptEmbeds
	slotInputEmbeds
	slotProcessor
	slotTemplate
	slotTruncate
	slotTruncateIn // parameters
	slotTools
	slotDocuments
	slotSystem
	slotInstructions
	slotMessages
	slotInput
	slotInputIDs
	slotPromptIDs
	slotPrompt
	slotInputs
	slotText
	slotTextInput
	slots
)

// slotOf returns the slot of a member of a body.
func slotOf(name []byte) int {
	switch string(name) {
	case "model":
		return slotModel
	case "cache_salt":
		return slotSalt
	case "extra_key":
		return slotExtraKey
	case "lora_path":
		return slotLoRAPath
	case "lora_request":
		return slotLoRARequest
	case "lora_task_id":
		return slotLoRATask
	case "image_data":
		return slotImages
	case "video_data":
		return slotVideos
	case "audio_data":
		return slotAudios
	case "prompt_embeds":
		return slotPromptEmbeds
	case "input_embeds":
		return slotInputEmbeds
	case "mm_processor_kwargs":
		return slotProcessor
	case "chat_template":
		return slotTemplate
	case "truncate_prompt_tokens":
		return slotTruncate
	case "tools":
		return slotTools
	case "documents":
		return slotDocuments
	case "system":
		return slotSystem
	case "instructions":
		return slotInstructions
	case "messages":
		return slotMessages
	case "input":
		return slotInput
	case "input_ids":
		return slotInputIDs
	case "prompt_token_ids":
		return slotPromptIDs
	case "prompt":
		return slotPrompt
	case "inputs":
		return slotInputs
	case "text":
		return slotText
	case "text_input":
		return slotTextInput
	}
	return slotNone
}

// slotOfParameter returns the slot of a member of parameters.
func slotOfParameter(name []byte) int {
	switch string(name) {
	case "adapter_id":
		return slotAdapter
	case "lora_name":
		return slotLoRAName
	case "truncate", "truncate_prompt_tokens":
		return slotTruncateIn
	}
	return slotNone
}

// found are the values of the members of a body, by slot; 0 where there is none.
type found [slots]int32

// Read returns the prompt of a request to a path, of whose body the first part is given. size is that of the whole body
// in bytes, negative where unknown. A body of an unknown form has no steps, nor has a request that computes no prompt.
// The prompt does not refer to the body.
func (r *Reader) Read(path string, body []byte, size int64) Prompt {
	path = trimmed(path)
	if !computes(path) {
		return Prompt{}
	}
	b := readings.Get().(*reading)
	defer b.release()
	b.begin(body[:min(len(body), MaxKeyBody)])
	f := b.find()
	b.key(modelOf(path), &f)
	if len(body) > MaxBody {
		body = body[:MaxBody]
		b.begin(body)
		f = b.find()
	}
	b.per = r.perPiece(!b.inTokens(&f))
	r.write(b, &f)
	whole := b.written()
	if read := int64(len(body)); size > read && read > 0 {
		whole *= float64(size) / float64(read)
	}
	if most, ok := b.most(&f); ok && whole*float64(r.blockTokens()) > float64(most) {
		return Prompt{}
	}
	return b.prompt(whole)
}

// most returns how many tokens at the end of the prompt the engine keeps; false if it is not said, or up to the engine.
// A longer one is cached as its end, which no other prompt begins with.
func (r *reading) most(f *found) (tokens uint32, ok bool) {
	i := f.first(slotTruncate, slotTruncateIn)
	if i == 0 {
		return 0, false
	}
	return tokenID(r.raw(i))
}

// find returns the members of the body that count.
func (r *reading) find() (f found) {
	if len(r.nodes) == 0 {
		return f
	}
	for name, value := range r.each(0) {
		if string(name) == "parameters" {
			f[slotAdapter], f[slotLoRAName], f[slotTruncateIn] = 0, 0, 0
			for name, value := range r.each(value) {
				f[slotOfParameter(name)] = r.present(value)
			}
			continue
		}
		f[slotOf(name)] = r.present(value)
	}
	f[slotNone] = 0
	return f
}

// present returns the value, 0 if that is empty: to engines, as if it was not there.
func (r *reading) present(i int32) int32 {
	if r.isEmpty(i) {
		return 0
	}
	return i
}

// first returns the first that there is of some members.
func (f *found) first(slots ...int) int32 {
	for _, slot := range slots {
		if f[slot] > 0 {
			return f[slot]
		}
	}
	return 0
}

func (f *found) messages() int32   { return f.first(slotMessages, slotInput) }
func (f *found) ids() int32        { return f.first(slotInputIDs, slotPromptIDs) }
func (f *found) completion() int32 { return f.first(slotPrompt, slotInputs, slotText, slotTextInput) }

// inTokens reports whether the prompt is token ids.
func (r *reading) inTokens(f *found) bool {
	if f.messages() > 0 || f.ids() > 0 {
		return f.messages() == 0
	}
	p := f.completion()
	return p > 0 && r.kind(p) == '[' && (r.isNumbers(p) || r.kind(p+1) != '"')
}

// key begins the prompt with the parts of the engines' cache keys. A list of one value is that value.
func (r *reading) key(model string, f *found) {
	if model != "" {
		r.put(slotPath)
		r.write([]byte(model))
	}
	for slot, i := range f[:slotTools] {
		if i > 0 {
			r.put(byte(slot))
			r.value(r.only(i))
		}
	}
	r.seed()
}

// only returns the one element of an array; every other value as it is.
func (r *reading) only(i int32) int32 {
	if r.kind(i) == '[' && r.after(i) > i+1 && r.after(i+1) == r.after(i) {
		return i + 1
	}
	return i
}

// write writes the prompt in the order in which chat templates do.
func (r *Reader) write(b *reading, f *found) {
	switch {
	case f.messages() > 0:
		b.conversation(f)
	case f.ids() > 0:
		r.batch(b, f.ids())
	case f.completion() > 0:
		r.batch(b, f.completion())
	}
}

// conversation writes messages, with what is in front of them.
func (r *reading) conversation(f *found) {
	for slot := slotTools; slot <= slotDocuments; slot++ {
		if f[slot] > 0 {
			r.put(byte(slot))
			r.value(f[slot])
		}
	}
	if i := f.first(slotSystem, slotInstructions); i > 0 {
		r.message("system", i)
	}
	r.step()
	all := f.messages()
	if r.kind(all) != '[' {
		r.message("user", all)
		return
	}
	if r.isNumbers(all) {
		r.value(all)
	}
	for i := all + 1; i < r.after(all); i = r.after(i) {
		r.put(',')
		if r.value(i) {
			r.step()
		}
	}
}

// message writes a message that the body has as a content only.
func (r *reading) message(role string, content int32) {
	r.write([]byte(`,{"role":"` + role + `","content":`))
	if r.content(content) {
		r.put('}')
	}
}

// batch writes a text, token ids, or an array of such prompts: each is a message then.
func (r *Reader) batch(b *reading, i int32) {
	if b.kind(i) != '[' || b.isNumbers(i) {
		r.one(b, i)
		return
	}
	for k := i + 1; k < b.after(i); k = b.after(k) {
		if k > i+1 {
			b.write(between)
		}
		r.one(b, k)
		b.step()
	}
}

// between is between the texts of an array: none of them has a quote that is not escaped.
var between = []byte(`","`)

// one writes a text without quotes, or token ids.
func (r *Reader) one(b *reading, i int32) {
	switch {
	case b.kind(i) == '"':
		b.text(b.inner(i), b.whole(i))
	case b.kind(i) != '[' || !b.isNumbers(i):
		b.value(i)
	default:
		r.tokens(b, b.inner(i), b.whole(i))
	}
}

// tokens writes an array of token ids; a number that is none as any other value.
func (r *Reader) tokens(b *reading, array []byte, whole bool) {
	markers := r.markers()
	for s := range eachNumber(array, whole) {
		id, ok := tokenID(s)
		if !ok {
			b.number(s)
			b.step()
			continue
		}
		if slices.Contains(markers, id) {
			b.step()
		}
		b.token(id)
	}
}

func (r *Reader) markers() []uint32 {
	if len(r.Markers) == 0 {
		return DefaultMarkers
	}
	return r.Markers
}

// tokenID returns the value of a token id, also of one that is spelled as a float; false if it is not one.
func tokenID(s []byte) (id uint32, ok bool) {
	if isPlain(s) {
		n := uint64(0)
		for _, c := range s {
			n = 10*n + uint64(c-'0')
		}
		return uint32(n), n <= math.MaxUint32
	}
	f, err := strconv.ParseFloat(string(s), 64)
	return uint32(f), err == nil && f == math.Trunc(f) && f >= 0 && f <= math.MaxUint32
}
