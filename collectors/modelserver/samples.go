package modelserver

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	dto "github.com/prometheus/client_model/go"
)

// samples has the samples of the wanted series of one body, by series. The labels point into the body.
type samples struct {
	names  []string
	byName [][]sample
	labels []label // of all samples, one after the other
}

// A sample is one value of a series.
type sample struct {
	labels []label
	key    uint64 // hash of the series' name and labels: the same from body to body
	value  float64
}

// A label is a name and its value, without quotes and escapes.
type label struct{ name, value []byte }

func newSamples(names []string) samples {
	return samples{names: names, byName: make([][]sample, len(names))}
}

func (s *samples) clear() {
	for i := range s.byName {
		s.byName[i] = s.byName[i][:0]
	}
	s.labels = s.labels[:0]
}

// of returns the samples of a series; none if it is not wanted.
func (s *samples) of(name string) []sample {
	if i := slices.Index(s.names, name); i >= 0 {
		return s.byName[i]
	}
	return nil
}

func (s *samples) add(name int, labels []label, value float64) {
	s.byName[name] = append(s.byName[name], sample{labels: labels, key: seriesKey(s.names[name], labels), value: value})
}

// take adds the wanted lines as prometheus/common parsed them.
func (s *samples) take(parsed map[string]*dto.MetricFamily) {
	for i, name := range s.names {
		for _, m := range parsed[name].GetMetric() {
			labels := make([]label, len(m.Label))
			for j, l := range m.Label {
				labels[j] = label{[]byte(l.GetName()), []byte(l.GetValue())}
			}
			s.add(i, labels, m.GetUntyped().GetValue())
		}
	}
}

// parse adds a sample in the form that servers write, NAME{LABEL="VALUE",…} NUMBER, with blanks only before the number.
// It returns false for any other line, which may be valid: one with blanks elsewhere, with escapes, without a value, or
// malformed.
func (s *samples) parse(name int, line []byte) bool {
	rest := line[len(s.names[name]):]
	first := len(s.labels)
	if len(rest) > 0 && rest[0] == '{' {
		var ok bool
		if rest, ok = s.parseLabels(rest[1:]); !ok {
			return false
		}
	}
	value, ok := parseNumber(bytes.TrimLeft(rest, " "))
	if !ok {
		return false
	}
	s.add(name, s.labels[first:len(s.labels):len(s.labels)], value)
	return true
}

// parseLabels adds the labels that text begins with, after the brace, and returns what
// follows the closing one.
func (s *samples) parseLabels(text []byte) (rest []byte, ok bool) {
	first := len(s.labels)
	for len(text) > 0 && text[0] != '}' {
		equals := bytes.IndexByte(text, '=')
		if equals < 0 || equals+1 == len(text) || text[equals+1] != '"' || !isLabelName(text[:equals]) {
			return nil, false
		}
		value := text[equals+2:]
		end := bytes.IndexByte(value, '"')
		if end < 0 || end+1 == len(value) || bytes.IndexByte(value[:end], '\\') >= 0 || !utf8.Valid(value[:end]) {
			return nil, false
		}
		l := label{text[:equals], value[:end]}
		for _, other := range s.labels[first:] {
			if bytes.Equal(other.name, l.name) {
				return nil, false
			}
		}
		s.labels = append(s.labels, l)
		text = value[end+1:]
		if text[0] == ',' {
			text = text[1:]
		} else if text[0] != '}' {
			return nil, false
		}
	}
	if len(text) == 0 {
		return nil, false
	}
	return text[1:], true
}

// isLabelName reports whether this is a simple label name. Names that begin with two underscores are reserved.
func isLabelName(name []byte) bool {
	for i, b := range name {
		letter := b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '_'
		if !letter && (i == 0 || b < '0' || b > '9') {
			return false
		}
	}
	return len(name) > 0 && !bytes.HasPrefix(name, []byte("__"))
}

// parseNumber reads a plain decimal number. Hexadecimal and grouped digits and infinity are left to prometheus/common.
func parseNumber(text []byte) (float64, bool) {
	if len(text) == 0 {
		return 0, false
	}
	for _, b := range text {
		if (b < '0' || b > '9') && b != '.' && b != '-' && b != '+' && b != 'e' && b != 'E' {
			return 0, false
		}
	}
	v, err := strconv.ParseFloat(string(text), 64)
	return v, err == nil && !math.IsInf(v, 0)
}

// checkTwice refuses a body that has the same series twice: adding both up would be wrong, and either of them may be.
func (s *samples) checkTwice(seen map[uint64]struct{}) error {
	clear(seen)
	for i, list := range s.byName {
		for _, m := range list {
			if _, ok := seen[m.key]; ok {
				return fmt.Errorf("%s occurs twice with the same labels", s.names[i])
			}
			seen[m.key] = struct{}{}
		}
	}
	return nil
}

// label returns the value of a label, empty if it is absent.
func (m sample) label(name string) []byte {
	for _, l := range m.labels {
		if string(l.name) == name {
			return l.value
		}
	}
	return nil
}

// seriesKey hashes the identity of a series: its name and its labels, in
// whatever order they are written.
func seriesKey(name string, labels []label) uint64 {
	key := fnv1a(fnvOffset, name)
	for _, l := range labels {
		// 0xff is no part of a UTF-8 text, so it separates name from value.
		key += fnv1a(fnv1a(fnvOffset, l.name)*fnvPrime^0xff, l.value)
	}
	return key
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func fnv1a[T string | []byte](h uint64, s T) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}
