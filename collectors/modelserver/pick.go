package modelserver

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

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

// eof is the last line of OpenMetrics: nothing after it counts.
const eof = "# EOF"

// each calls use for each line of the body that is a sample of a wanted series, with the number of its name. The last
// line counts only if it is whole.
func (p picker) each(body []byte, use func(name int, line []byte)) {
	for {
		end := bytes.IndexByte(body, '\n')
		if end < 0 {
			return
		}
		line := body[:end]
		body = body[end+1:]
		if end > 0 && isBlank(line[0]) {
			line = bytes.TrimLeft(line, " \t")
		}
		switch name := p.match(line); {
		case name >= 0:
			use(name, line)
		case string(line) == eof:
			return
		}
	}
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

// A series has at most so many labels, since expfmt's time for them is quadratic, and they are at most so many bytes.
// The most that an engine is known to have are the 37 of vLLM's cache_config_info.
const mostLabels, mostSeries = 64, 16 << 10

var (
	errManyLabels = fmt.Errorf("it has more than %d labels", mostLabels)
	errLongSeries = fmt.Errorf("its labels are longer than %d bytes", mostSeries)
)

// splitSample returns the two parts of a sample whose name has the given length: the series, which is its name and
// labels, and the value. It drops timestamp and exemplar, which OpenMetrics writes in a way that the text parser does
// not know.
func splitSample(line []byte, name int) (series, value []byte, err error) {
	i := name + blanks(line[name:])
	if i < len(line) && line[i] == '{' {
		n, labels := labelsLen(line[i:])
		switch {
		case n == 0:
			return nil, nil, errors.New("the labels have no closing brace")
		case labels > mostLabels:
			return nil, nil, errManyLabels
		case n > mostSeries:
			return nil, nil, errLongSeries
		}
		name = i + n
		i = name
	}
	i += blanks(line[i:])
	end := i
	for end < len(line) && !isBlank(line[end]) {
		end++
	}
	return line[:name], line[i:end], checkTail(line[end:])
}

// labelsLen returns the length of the label set that s begins with, including braces, or 0 if it has no closing brace,
// and how many values it has. Quoted values may contain braces, and escaped quotes.
func labelsLen(s []byte) (n, labels int) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			if quoted = !quoted; quoted {
				labels++
			}
		case s[i] == '}' && !quoted:
			return i + 1, labels
		}
	}
	return 0, labels
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
