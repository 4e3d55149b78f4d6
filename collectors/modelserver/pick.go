package modelserver

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// errCut is the error for a body whose last line has no newline. Half a line can contain half a number, so such a body
// is not read at all.
var errCut = errors.New("the body is cut off: its last line has no newline")

// A picker finds the samples of a few series in a metrics body, so that no parser needs to read the rest: of the 600
// lines of a vLLM body about ten remain.
type picker struct {
	names  []string
	prefix string // common to all names, to skip most lines with one comparison
}

func newPicker(names []string) picker {
	prefix := names[0]
	for _, n := range names {
		for len(n) < len(prefix) || n[:len(prefix)] != prefix {
			prefix = prefix[:len(prefix)-1]
		}
	}
	return picker{names: names, prefix: prefix}
}

// pick appends to dst the samples of the wanted series in body, one a line.
func (p picker) pick(dst, body []byte) ([]byte, error) {
	err := p.each(body, func(_ int, sample []byte) bool {
		dst = append(append(dst, sample...), '\n')
		return true
	})
	return dst, err
}

// each calls use for the samples of the wanted series in body, with the number of the name, until it returns false. A
// sample is passed without timestamp and exemplar, which OpenMetrics writes in a way that the text parser does not
// know. Comments are left out: without them the parser accepts each sample, whatever type its family has.
func (p picker) each(body []byte, use func(name int, sample []byte) bool) error {
	if len(body) == 0 {
		return errors.New("the body is empty")
	}
	if body[len(body)-1] != '\n' {
		return errCut
	}
	for len(body) > 0 {
		end := bytes.IndexByte(body, '\n')
		line := body[:end]
		body = body[end+1:]
		if end > 0 && isBlank(line[0]) {
			line = bytes.TrimLeft(line, " \t")
		}
		name := p.match(line)
		if name < 0 {
			continue
		}
		sample, err := trimSample(line, len(p.names[name]))
		if err != nil {
			return err
		}
		if !use(name, sample) {
			return nil
		}
	}
	return nil
}

// match returns the number of the wanted name that the line is a sample of, or
// -1. The name must end where a name ends: vllm:num_requests_waiting is also the
// beginning of vllm:num_requests_waiting_by_reason.
func (p picker) match(line []byte) int {
	if len(line) < len(p.prefix) || string(line[:len(p.prefix)]) != p.prefix {
		return -1
	}
	for i, n := range p.names {
		if len(line) > len(n) && endsName(line[len(n)]) && string(line[:len(n)]) == n {
			return i
		}
	}
	return -1
}

// trimSample removes what follows the value of a sample whose name has the given length.
func trimSample(line []byte, name int) ([]byte, error) {
	i := name + blanks(line[name:])
	if i < len(line) && line[i] == '{' {
		n := labelsLen(line[i:])
		if n == 0 {
			return nil, fmt.Errorf("labels of %s have no closing brace", line[:name])
		}
		i += n
	}
	i += blanks(line[i:])
	for i < len(line) && !isBlank(line[i]) {
		i++
	}
	if err := checkTail(line[i:]); err != nil {
		return nil, fmt.Errorf("sample of %s: %w", line[:name], err)
	}
	return line[:i], nil
}

// labelsLen returns the length of the label set that s begins with, including braces, or 0 if it has no closing brace.
// Quoted values may contain braces, and escaped quotes.
func labelsLen(s []byte) int {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '}' && !quoted:
			return i + 1
		}
	}
	return 0
}

// checkTail accepts what may follow a value: nothing, a timestamp, an exemplar.
// Anything else means that two lines ran into one another.
func checkTail(tail []byte) error {
	tail = bytes.TrimLeft(tail, " \t")
	if len(tail) == 0 || tail[0] == '#' {
		return nil
	}
	stamp, rest, _ := bytes.Cut(tail, []byte(" "))
	rest = bytes.TrimLeft(rest, " \t")
	if _, err := strconv.ParseFloat(string(stamp), 64); err != nil || len(rest) > 0 && rest[0] != '#' {
		return fmt.Errorf("the value is followed by %s, which is not a timestamp", excerpt(tail))
	}
	return nil
}

func isBlank(b byte) bool { return b == ' ' || b == '\t' }

func endsName(b byte) bool { return b == '{' || isBlank(b) }

// blanks counts the blanks that s begins with.
func blanks(s []byte) int { return len(s) - len(bytes.TrimLeft(s, " \t")) }

// excerptLen bounds, in bytes, how much of an untrusted body an error quotes.
const excerptLen = 40

// excerpt quotes the beginning of s for an error message.
func excerpt(s []byte) string {
	if len(s) > excerptLen {
		return strconv.Quote(string(s[:excerptLen])) + "…"
	}
	return strconv.Quote(string(s))
}
