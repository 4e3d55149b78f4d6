package prefix

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
)

// A reading writes values of a body to a prompt, such that equal values are the same bytes, and others different ones,
// however clients spell them: see package comment. Of a value that the end of the body cuts off, the part before that
// is written; the methods that write return whether it was whole.
type reading struct {
	index
	writer
	members []member // of the object that is written, and of those around it
	names   []byte   // of members, where they are not as the body has them
}

// A member of an object, with the number of its value.
type member struct {
	name  []byte
	value int32
}

var readings = sync.Pool{New: func() any { return new(reading) }}

// begin indexes a body.
func (r *reading) begin(body []byte) {
	r.members, r.names = r.members[:0], r.names[:0]
	r.read(body)
}

// release gives the memory back, to be reused, without what refers to the body.
func (r *reading) release() {
	const few = 1000 // to clear them takes no time
	r.body, r.writer = nil, writer{}
	if cap(r.members) > few {
		r.members = nil
	}
	clear(r.members[:cap(r.members)])
	readings.Put(r)
}

// The beginnings of objects that stand for a text.
var openURL, openUUID = []byte(`{"url":`), []byte(`{"uuid":`)

// value writes a value.
func (r *reading) value(i int32) (whole bool) {
	switch c := r.kind(i); {
	case c == '"':
		r.put('"')
		r.text(r.inner(i), r.whole(i))
		return r.closed(i, '"')
	case c == '{':
		return r.object(i)
	case r.isNumbers(i):
		return r.numbers(i)
	case c == '[':
		return r.array(i, (*reading).value)
	case r.whole(i):
		r.number(r.raw(i))
	}
	return r.whole(i)
}

// closed writes the end of a value if that is whole.
func (r *reading) closed(i int32, end byte) (whole bool) {
	if whole = r.whole(i); whole {
		r.put(end)
	}
	return whole
}

// array writes an array, with a function for its elements.
func (r *reading) array(i int32, write func(*reading, int32) bool) (whole bool) {
	r.put('[')
	for k := i + 1; k < r.after(i); k = r.after(k) {
		if k > i+1 {
			r.put(',')
		}
		if !write(r, k) {
			return false
		}
	}
	return r.closed(i, ']')
}

// numbers writes an array of numbers.
func (r *reading) numbers(i int32) (whole bool) {
	r.put('[')
	first := true
	for s := range eachNumber(r.inner(i), r.whole(i)) {
		if !first {
			r.put(',')
		}
		first = false
		r.number(s)
	}
	return r.closed(i, ']')
}

// eachNumber visits the numbers of an array, given without its brackets; but for the last one of an array that is not
// whole, as that may continue.
func eachNumber(array []byte, whole bool) func(visit func(number []byte) bool) {
	return func(visit func([]byte) bool) {
		for at := 0; at < len(array); at++ {
			from := at
			for at < len(array) && !ends[array[at]] {
				at++
			}
			if at > from && (at < len(array) || whole) && !visit(array[from:at]) {
				return
			}
		}
	}
}

// object writes an object: its members in one order, the last of equal ones, none that is null, and no cacheMarker.
func (r *reading) object(i int32) (whole bool) {
	from := len(r.members)
	r.collect(i)
	r.put('{')
	whole = true
	for k := from; k < len(r.members) && whole; k++ {
		if k > from {
			r.put(',')
		}
		m := r.members[k]
		r.put('"')
		r.write(m.name)
		r.put('"')
		r.put(':')
		whole = r.member(m)
	}
	r.members = r.members[:from]
	return whole && r.closed(i, '}')
}

// cacheMarker is a member of contents, messages and tools that asks for caching. It is in no prompt, and clients move
// it to the latest message with each turn, so what a conversation had before would differ.
const cacheMarker = "cache_control"

// collect appends the members of an object that are to be written.
func (r *reading) collect(i int32) {
	from := len(r.members)
	for name, value := range r.each(i) {
		if string(name) != cacheMarker {
			r.members = append(r.members, member{name, value})
		}
	}
	all := r.members[from:]
	if !slices.IsSortedFunc(all, inOrder) {
		slices.SortFunc(all, inOrder)
	}
	kept := all[:0]
	for k, m := range all {
		if last := k+1 == len(all) || !bytes.Equal(m.name, all[k+1].name); last && !r.isNull(m.value) {
			kept = append(kept, m)
		}
	}
	r.members = r.members[:from+len(kept)]
}

// each visits the members of an object as they come; there are none in other values.
func (r *reading) each(i int32) func(visit func(name []byte, value int32) bool) {
	return func(visit func([]byte, int32) bool) {
		for k := i + 1; r.kind(i) == '{' && k < r.after(i); {
			value := r.after(k)
			if r.kind(k) != '"' || value >= r.after(i) || !visit(r.name(k), value) {
				return
			}
			k = r.after(value)
		}
	}
}

// name returns the name of a member, with the fewest escapes.
func (r *reading) name(i int32) []byte {
	s := r.inner(i)
	if fewest(s) == len(s) {
		return s
	}
	from := len(r.names)
	for len(s) > 0 {
		n := fewest(s)
		r.names = append(r.names, s[:n]...)
		s = s[n:]
		r.names, n = respelled(r.names, s, true)
		s = s[n:]
	}
	return r.names[from:]
}

// inOrder is the order in which members are written: a message's role and content first, as in templates, then by
// name; and equal ones as they come.
func inOrder(a, b member) int {
	return cmp.Or(cmp.Compare(rank(a.name), rank(b.name)), bytes.Compare(a.name, b.name),
		cmp.Compare(a.value, b.value))
}

func rank(name []byte) int {
	switch string(name) {
	case "role":
		return 0
	case "content":
		return 1
	}
	return 2
}

// member writes the value of a member.
func (r *reading) member(m member) (whole bool) {
	switch string(m.name) {
	case "content":
		return r.content(m.value)
	case "image_url", "video_url", "audio_url": // a text, or an object
		if r.kind(m.value) == '"' {
			r.write(openURL)
			if !r.value(m.value) {
				return false
			}
			r.put('}')
			return true
		}
	}
	return r.value(m.value)
}

// content writes the content of a message: a text is a list of that one text.
func (r *reading) content(i int32) (whole bool) {
	switch {
	case r.kind(i) == '"':
		r.put('[')
		return r.value(i) && r.closed(i, ']')
	case r.kind(i) == '[' && !r.isNumbers(i):
		return r.parts(i)
	}
	return r.value(i)
}

// attribution begins a part that Claude Code puts in front of its system prompt, with a hash of each request; vLLM
// drops it (github.com/vllm-project/vllm/pull/36829).
var attribution = []byte("x-anthropic-billing-header")

// parts writes the parts of a content, but for an attribution.
func (r *reading) parts(i int32) (whole bool) {
	r.put('[')
	first := true
	for k := i + 1; k < r.after(i); k = r.after(k) {
		if r.isAttribution(k) {
			continue
		}
		if !first {
			r.put(',')
		}
		first = false
		if !r.part(k) {
			return false
		}
	}
	return r.closed(i, ']')
}

func (r *reading) isAttribution(i int32) bool {
	for name, value := range r.each(i) {
		if string(name) == "text" && r.kind(value) == '"' && bytes.HasPrefix(r.inner(value), attribution) {
			return true
		}
	}
	return false
}

// part writes a part of a content. Of a text, engines use no other member; media with a uuid are cached by that.
func (r *reading) part(i int32) (whole bool) {
	if r.kind(i) != '{' {
		return r.value(i)
	}
	var kind, text, uuid int32
	for name, value := range r.each(i) {
		switch string(name) {
		case "type":
			kind = value
		case "text":
			text = value
		case "uuid":
			uuid = value
		}
	}
	switch {
	case text > 0 && r.kind(text) == '"' && r.isTextType(kind):
		return r.value(text)
	case uuid > 0 && r.kind(uuid) == '"' && !r.isEmpty(uuid):
		r.write(openUUID)
		return r.value(uuid) && r.closed(i, '}')
	}
	return r.object(i)
}

// isTextType reports whether a type is that of a text; without one, a text is one.
func (r *reading) isTextType(i int32) bool {
	if i == 0 || r.isNull(i) {
		return true
	}
	if r.kind(i) != '"' {
		return false
	}
	switch string(r.name(i)) {
	case "text", "input_text", "output_text":
		return true
	}
	return false
}
