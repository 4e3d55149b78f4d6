package prefix

import "bytes"

// maxDepth is how deep values may be nested: what is deeper counts as cut off. It is the limit of serde_json, too.
const maxDepth = 128

// byteOrderMark may be in front of a body: Python's json skips it.
var byteOrderMark = []byte("\xef\xbb\xbf")

// An index has the values of untrusted JSON, which may end anywhere, in the order in which they begin. It is made in
// one pass, and does not validate: it finds something even in text that is not JSON. Its memory can be reused.
type index struct {
	body  []byte
	nodes []node // the first is that of the whole body
}

// A node is a value, or the name of a member, which is in front of its value. The nodes of what is in an object or an
// array follow its own; an array of numbers has none.
type node struct {
	from, to int32 // in the text, with quotes and brackets; to is 0 if the text ends before the value does
	next     int32 // the number of the first node after it that is not in it; 0 if there is none
}

// read indexes a text.
func (x *index) read(text []byte) {
	text = bytes.TrimPrefix(text, byteOrderMark)
	x.body, x.nodes = text, x.nodes[:0]
	var around [maxDepth]int32 // what is around the next value
	depth := 0
	for at := 0; at < len(text); {
		switch c := text[at]; c {
		case ' ', '\t', '\n', '\r', ',', ':':
			at++
			continue
		case '{', '[':
			if depth == maxDepth {
				return
			}
			if end, ok := numbers(text, at); ok {
				at = x.add(at, end)
				break
			}
			around[depth] = int32(len(x.nodes))
			depth++
			x.nodes = append(x.nodes, node{from: int32(at)})
			at++
			continue
		case '}', ']':
			if depth == 0 || text[x.nodes[around[depth-1]].from] != c-2 { // in ASCII, '{' and '[' are two before
				return
			}
			depth--
			at++
			n := &x.nodes[around[depth]]
			n.to, n.next = int32(at), int32(len(x.nodes))
		case '"':
			at = x.add(at, quoted(text, at))
		default:
			at = x.add(at, literal(text, at))
		}
		if depth == 0 {
			return
		}
	}
}

// add adds a value without others in it that ends before a byte of the text, 0 if it does not end, and returns where to
// go on.
func (x *index) add(from, to int) int {
	x.nodes = append(x.nodes, node{from: int32(from), to: int32(to), next: int32(len(x.nodes) + 1)})
	if to == 0 {
		return len(x.body)
	}
	return to
}

// quoted returns the end of the string that begins at a byte of the text; 0 if it does not end.
func quoted(text []byte, from int) int {
	for at := from + 1; ; {
		i := bytes.IndexByte(text[at:], '"')
		if i < 0 {
			return 0
		}
		at += i + 1
		if !escaped(text[from+1 : at-1]) {
			return at
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

// ends are the bytes that end a number or a word; numeric are those of numbers and what is between them.
var ends, numeric = setOf(" \t\n\r,:]}[{\""), setOf(" \t\n\r,0123456789+-.eE")

func setOf(bytes string) (set [256]bool) {
	for _, c := range []byte(bytes) {
		set[c] = true
	}
	return set
}

// literal returns the end of a number or a word; 0 at the end of the text, as it may continue.
func literal(text []byte, from int) int {
	for at := from; at < len(text); at++ {
		if ends[text[at]] {
			return at
		}
	}
	return 0
}

// numbers returns the end of an array of numbers, 0 if it does not end; ok is false for other values.
func numbers(text []byte, from int) (end int, ok bool) {
	at := from + 1
	for at < len(text) && numeric[text[at]] {
		at++
	}
	switch {
	case text[from] != '[' || !isNumber(text[from+1:at]):
		return 0, false
	case at == len(text):
		return 0, true
	}
	return at + 1, text[at] == ']'
}

// isNumber reports whether a number begins in the text, which may have white space before it.
func isNumber(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\n\r")
	return len(text) > 0 && (text[0] == '-' || text[0] >= '0' && text[0] <= '9')
}

// kind is the first byte of a value.
func (x *index) kind(i int32) byte { return x.body[x.nodes[i].from] }

// whole reports whether a value ends in the text.
func (x *index) whole(i int32) bool { return x.nodes[i].to > 0 }

// raw is a value as it is written, as far as the text goes.
func (x *index) raw(i int32) []byte {
	if n := x.nodes[i]; n.to > 0 {
		return x.body[n.from:n.to]
	}
	return x.body[x.nodes[i].from:]
}

// inner is a string without its quotes, or an array of numbers without its brackets.
func (x *index) inner(i int32) []byte {
	if x.whole(i) {
		return x.body[x.nodes[i].from+1 : x.nodes[i].to-1]
	}
	return x.body[x.nodes[i].from+1:]
}

// after is the number of the first node that is not in a value.
func (x *index) after(i int32) int32 {
	if n := x.nodes[i].next; n > 0 {
		return n
	}
	return int32(len(x.nodes))
}

// isNumbers reports whether a value is an array of numbers.
func (x *index) isNumbers(i int32) bool {
	return x.kind(i) == '[' && x.after(i) == i+1 && isNumber(x.inner(i))
}

// isNull reports whether a value is null: the absence of one.
func (x *index) isNull(i int32) bool { return string(x.raw(i)) == "null" }

// isEmpty reports whether a value is null, or has nothing in it: engines take either for its absence.
func (x *index) isEmpty(i int32) bool {
	switch x.kind(i) {
	case '"':
		return len(x.inner(i)) == 0
	case '{', '[':
		return x.after(i) == i+1 && !x.isNumbers(i)
	default:
		return x.isNull(i)
	}
}
