package prefix

import (
	"cmp"
	"slices"
)

// MaxBody is how much of a body is worth reading, in bytes: what comes after it is guessed from its size.
const MaxBody = 256 << 10

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
	return tokens / float64(cmp.Or(max(0, r.BlockTokens), PieceTokens))
}

// found are the values of a body that are parts of the prompt, as they are written; nil where there is none.
type found struct{ model, tools, system, messages, input, prompt, ids []byte }

// Read returns the prompt of a body, of which the first part is given, at most MaxBody of it is looked at. size is that
// of the whole body in bytes, negative where unknown. A body of an unknown form has no steps. The prompt does not refer
// to the body.
func (r *Reader) Read(body []byte, size int64) Prompt {
	body = body[:min(len(body), MaxBody)]
	var f found
	s := scanner{text: body}
	s.members(f.note)
	if f.messages == nil {
		f.messages = f.input
	}
	w := writer{per: r.perPiece(!f.inTokens())}
	w.seed(f.model)
	r.write(&w, &f)
	whole := w.written()
	if read := int64(len(body)); size > read && read > 0 {
		whole *= float64(size) / float64(read)
	}
	return w.prompt(whole)
}

// note keeps a member if it is a part of the prompt. Of several with one name it keeps the first.
func (f *found) note(key, value []byte) {
	var of *[]byte
	switch string(key) {
	case "model":
		of = &f.model
	case "tools":
		of = &f.tools
	case "system", "instructions":
		of = &f.system
	case "messages":
		of = &f.messages
	case "input":
		of = &f.input
	case "prompt", "inputs", "text", "text_input":
		of = &f.prompt
	case "input_ids", "prompt_token_ids":
		of = &f.ids
	default:
		return
	}
	if *of == nil {
		*of = value
	}
}

// inTokens reports whether the prompt is token ids.
func (f *found) inTokens() bool {
	if f.messages != nil || f.ids != nil {
		return f.messages == nil
	}
	s := scanner{text: f.prompt}
	return s.take('[') && s.next() != '"'
}

// write writes the prompt in the order in which chat templates do.
func (r *Reader) write(w *writer, f *found) {
	switch {
	case f.messages != nil:
		compact(w, f.tools)
		compact(w, f.system)
		w.step()
		s := scanner{text: f.messages}
		text, _ := s.quoted() // instead of an array
		w.write(text)
		s.elements(func(message []byte, whole bool) {
			compact(w, message)
			if whole {
				w.step()
			}
		})
	case f.ids != nil:
		r.tokens(w, f.ids)
	case f.prompt != nil:
		r.completion(w, f.prompt)
	}
}

// completion writes a text, or an array: of token ids, of texts, or of arrays of token ids.
func (r *Reader) completion(w *writer, prompt []byte) {
	s := scanner{text: prompt}
	if s.next() == '"' {
		text, _ := s.quoted()
		w.write(text)
		return
	}
	r.tokens(w, prompt)
}

// tokens writes the token ids of an array. Texts in it, and arrays of token ids, are one message each.
func (r *Reader) tokens(w *writer, array []byte) {
	s := scanner{text: array}
	s.elements(func(text []byte, whole bool) {
		inner := scanner{text: text}
		if inner.next() != '[' {
			r.token(w, text, whole)
			return
		}
		inner.elements(func(text []byte, whole bool) { r.token(w, text, whole) })
		w.step()
	})
}

// token writes a token id; something else as it is written.
func (r *Reader) token(w *writer, text []byte, whole bool) {
	id, ok := number(text)
	switch {
	case !ok:
		compact(w, text)
		w.step()
	case whole:
		if slices.Contains(r.markers(), id) {
			w.step()
		}
		w.token(id)
	}
}

func (r *Reader) markers() []uint32 {
	if len(r.Markers) == 0 {
		return DefaultMarkers
	}
	return r.Markers
}

// number returns the value of a token id; false if it is not one.
func number(text []byte) (id uint32, ok bool) {
	const mostDigits = 9 // fits
	if len(text) == 0 || len(text) > mostDigits {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		id = 10*id + uint32(c-'0')
	}
	return id, true
}
