package prefix

import "bytes"

// A scanner reads untrusted JSON, which may end anywhere, in one pass. It does not validate: it finds something even in
// text that is not JSON. It neither recurses nor allocates.
type scanner struct {
	text []byte
	at   int
}

// next returns the next byte that is not white space, without consuming it; 0 at the end.
func (s *scanner) next() byte {
	for ; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
		default:
			return s.text[s.at]
		}
	}
	return 0
}

// take consumes a byte if it is the next one.
func (s *scanner) take(c byte) bool {
	if s.next() != c || c == 0 {
		return false
	}
	s.at++
	return true
}

// quoted consumes a string, and returns it without its quotes; whole is false if it does not end.
func (s *scanner) quoted() (text []byte, whole bool) {
	if !s.take('"') {
		return nil, false
	}
	from := s.at
	for {
		i := bytes.IndexByte(s.text[s.at:], '"')
		if i < 0 {
			s.at = len(s.text)
			return s.text[from:], false
		}
		end := s.at + i
		if s.at = end + 1; !escaped(s.text[from:end]) {
			return s.text[from:end], true
		}
	}
}

// escaped reports whether what follows the text is escaped by it: an odd number of backslashes is at its end.
func escaped(text []byte) bool {
	n := len(text)
	for n > 0 && text[n-1] == '\\' {
		n--
	}
	return (len(text)-n)%2 == 1
}

// value consumes a value, and returns it as it is written; whole is false if it does not end.
func (s *scanner) value() (text []byte, whole bool) {
	s.next()
	from, depth := s.at, 0
	for {
		switch s.next() {
		case 0:
			return s.text[from:], false
		case '"':
			if _, whole := s.quoted(); !whole {
				return s.text[from:], false
			}
		case '{', '[':
			s.at++
			depth++
			continue
		case '}', ']':
			if depth == 0 { // of what is around it
				return s.text[from:s.at], false
			}
			s.at++
			depth--
		case ',', ':':
			if depth == 0 {
				return s.text[from:s.at], false
			}
			s.at++
			continue
		default:
			if s.literal(); s.at == len(s.text) {
				return s.text[from:], false // it may continue
			}
		}
		if depth == 0 {
			return s.text[from:s.at], true
		}
	}
}

// literal consumes a number or a word.
func (s *scanner) literal() {
	if i := bytes.IndexAny(s.text[s.at:], " \t\n\r,:]}[{\""); i >= 0 {
		s.at += i
	} else {
		s.at = len(s.text)
	}
}

// elements calls visit with each element of an array, as far as the text goes.
func (s *scanner) elements(visit func(text []byte, whole bool)) {
	if !s.take('[') {
		return
	}
	for s.next() != 0 && s.next() != ']' {
		from := s.at
		text, whole := s.value()
		if s.at > from {
			visit(text, whole)
		}
		if !s.take(',') {
			return
		}
	}
}

// members calls visit with each member of an object, as far as the text goes.
func (s *scanner) members(visit func(key, value []byte)) {
	if !s.take('{') {
		return
	}
	for {
		key, whole := s.quoted()
		if !whole || !s.take(':') {
			return
		}
		value, _ := s.value()
		visit(key, value)
		if !s.take(',') {
			return
		}
	}
}

// cacheMarker is a member of contents, messages and tools that asks for caching. It is in no prompt, and clients move
// it to the latest message with each turn, so what a conversation had before would differ.
const cacheMarker = "cache_control"

var comma = []byte(",")

// compact writes a value without the white space between its parts, and without cacheMarker.
func compact(w *writer, value []byte) {
	s := scanner{text: value}
	due, opened := false, true // a comma before the next part; nothing is written in this object or array yet
	for c := s.next(); c != 0; c = s.next() {
		from, member := s.at, false
		switch c {
		case ',':
			s.at++
			due = !opened
			continue
		case '"':
			text, _ := s.quoted()
			member = string(text) == cacheMarker
		case '{', '}', '[', ']', ':':
			s.at++
		default:
			s.literal()
		}
		part := value[from:s.at]
		if member && s.take(':') {
			s.value()
			continue
		}
		if due && c != '}' && c != ']' {
			w.write(comma)
		}
		due, opened = false, c == '{' || c == '['
		w.write(part)
	}
}
