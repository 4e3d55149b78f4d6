package modelserver

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// samples has the samples of the wanted series of one body, by name, and remembers the label sets of the bodies before:
// from one scrape to the next only the values change. So expfmt parses each label set once, and strconv the values, as
// Prometheus' own scrape cache does.
type samples struct {
	names  []string
	copies []string // the labels that distinguish copies, of this engine
	parts  []string // those that distinguish parts
	byName [][]sample
	faults []error // by name: why it has no usable samples in this body

	texts      map[string]*labelSet // by the text of a series, as it is written
	sets       map[string]*labelSet // by key
	remembered int                  // bytes of texts and keys
	reading    uint64               // the number of this body
	units      int                  // that this body has
	parsed     int                  // of this body, in units of mostParsed

	parser expfmt.TextParser
	input  bytes.Reader
}

// mostRemembered bounds the texts of series that are kept from one body to the next, in bytes. The memory for a label
// set is about three times its text and its key; of a body with more than this, all are parsed again each time.
const mostRemembered = 4 << 20

// mostParsed bounds the new label sets that are parsed of one body, so that a page that shows others each time takes no
// more than 0.2 s of CPU, whatever is on it: one of n labels counts as perSet + n², about 0.15 µs each (10 µs without
// labels, 0.5 ms for 64). That is 16,000 series of few labels, or 730 of 37. The next body goes on where this one
// ended, so a page that is larger, and stays, is known after a few.
const mostParsed, perSet = 1 << 20, 64

var errManySets = errors.New("the page has more new series than are read at once")

// A sample is the value of one series. Of several that are copies of one another it is the largest.
type sample struct {
	set   *labelSet // without the labels that distinguish copies
	value float64
}

// A labelSet is the identity of a series.
type labelSet struct {
	key    string // name and labels in canonical form: the same from body to body
	labels []label
	part   *labelSet // without the labels that distinguish copies; itself if it has none
	unit   *labelSet // no name, and only the labels that distinguish parts

	reading uint64  // the latest body that had this very series
	value   float64 // its value there

	combined uint64 // the latest body that had it, or copies of it
	at       int    // its place among the samples of its name there; of a unit, its number
}

// A label is a name and its value.
type label struct{ name, value string }

func newSamples(names []string, e Engine) *samples {
	copies, parts := labelsOfEngine(e)
	return &samples{
		names: names, copies: copies, parts: parts,
		byName: make([][]sample, len(names)), faults: make([]error, len(names)),
		texts: make(map[string]*labelSet), sets: make(map[string]*labelSet),
		parser: expfmt.NewTextParser(model.LegacyValidation),
	}
}

// read takes over the samples of a body.
func (s *samples) read(p *picker, body []byte) {
	for i := range s.byName {
		s.byName[i] = s.byName[i][:0]
	}
	clear(s.faults)
	if s.remembered > mostRemembered {
		clear(s.texts)
		clear(s.sets)
		s.remembered = 0
	}
	s.reading++
	s.units, s.parsed = 0, 0
	p.each(body, func(name int, line []byte) {
		if s.faults[name] == nil { // else nothing of this name is used
			s.faults[name] = s.add(name, line)
		}
	})
}

// of returns the samples of a series, none if it is not wanted, and why they cannot be used.
func (s *samples) of(name string) ([]sample, error) {
	if i := slices.Index(s.names, name); i >= 0 {
		return s.byName[i], s.faults[i]
	}
	return nil, nil
}

// add takes in a line. A series that occurs twice with the same value is one; with two values, either may be wrong.
func (s *samples) add(name int, line []byte) error {
	text, number, err := splitSample(line, len(s.names[name]))
	if err != nil {
		return fmt.Errorf("line %s: %w", excerpt(line), err)
	}
	set, err := s.setOf(name, text)
	if err != nil {
		return fmt.Errorf("line %s: %w", excerpt(line), err)
	}
	value, ok := parseNumber(number)
	if !ok {
		return fmt.Errorf("line %s: %s is not a number", excerpt(line), excerpt(number))
	}
	if set.reading == s.reading {
		if value != set.value && !(math.IsNaN(value) && math.IsNaN(set.value)) {
			return fmt.Errorf("%s occurs twice with the same labels, as %v and as %v", s.names[name], set.value, value)
		}
		return nil
	}
	set.reading, set.value = s.reading, value
	s.combine(&s.byName[name], set.part, value)
	return nil
}

// combine adds a value of a part. Of copies the largest counts: one that lags shows less. A value that cannot be true
// stays, since it makes the number unknown.
func (s *samples) combine(all *[]sample, part *labelSet, value float64) {
	if unit := part.unit; unit.combined != s.reading {
		unit.combined, unit.at = s.reading, s.units
		s.units++
	}
	if part.combined != s.reading {
		part.combined, part.at = s.reading, len(*all)
		*all = append(*all, sample{part, value})
		return
	}
	if got := &(*all)[part.at].value; plausible(*got) && (value > *got || !plausible(value)) {
		*got = value
	}
}

// setOf returns the label set that a text stands for: that of a body before, or a new one.
func (s *samples) setOf(name int, text []byte) (*labelSet, error) {
	if set := s.texts[string(text)]; set != nil {
		return set, nil
	}
	_, n := labelsLen(bytes.TrimLeft(text[len(s.names[name]):], " \t"))
	if s.parsed += perSet + n*n; s.parsed > mostParsed {
		return nil, errManySets
	}
	labels, err := s.parseLabels(name, text)
	if err != nil {
		return nil, err
	}
	set := s.intern(s.names[name], labels)
	s.texts[string(text)] = set
	s.remembered += len(text)
	return set, nil
}

// parseLabels has expfmt parse the name and labels of a sample.
func (s *samples) parseLabels(name int, text []byte) ([]label, error) {
	s.input.Reset(append(bytes.Clone(text), " 0\n"...))
	families, err := s.parser.TextToMetricFamilies(&s.input)
	if parse, ok := errors.AsType[expfmt.ParseError](err); ok {
		return nil, errors.New(parse.Msg) // its line number is that of this line by itself
	}
	if err != nil {
		return nil, err
	}
	metrics := families[s.names[name]].GetMetric()
	if len(metrics) != 1 {
		return nil, fmt.Errorf("expected one sample of %s", s.names[name])
	}
	return labelsOf(metrics[0]), nil
}

// labelsOf returns the labels of a parsed sample, sorted, without those that have the value "": these are as good as
// absent in Prometheus, too.
func labelsOf(m *dto.Metric) []label {
	var labels []label
	for _, l := range m.GetLabel() {
		if l.GetValue() != "" {
			labels = append(labels, label{l.GetName(), l.GetValue()})
		}
	}
	slices.SortFunc(labels, func(a, b label) int { return strings.Compare(a.name, b.name) })
	return labels
}

// intern returns the one label set with this name and these labels.
func (s *samples) intern(name string, labels []label) *labelSet {
	key := canonical(name, labels)
	if set := s.sets[key]; set != nil {
		return set
	}
	set := &labelSet{key: key, labels: labels}
	s.sets[key] = set
	s.remembered += len(key)
	set.part, set.unit = set, set
	if name == "" {
		return set
	}
	without := func(dropped func(string) bool) []label {
		return slices.DeleteFunc(slices.Clone(labels), func(l label) bool { return dropped(l.name) })
	}
	if part := without(func(l string) bool { return slices.Contains(s.copies, l) }); len(part) < len(labels) {
		set.part = s.intern(name, part)
	}
	set.unit = s.intern("", without(func(l string) bool { return !slices.Contains(s.parts, l) }))
	return set
}

// canonical writes a series in one of its forms: labels sorted and quoted, which makes it unambiguous.
func canonical(name string, labels []label) string {
	if len(labels) == 0 {
		return name
	}
	b := append([]byte(name), '{')
	for _, l := range labels {
		b = append(append(b, l.name...), '=')
		b = append(strconv.AppendQuote(b, l.value), ',')
	}
	b[len(b)-1] = '}'
	return string(b)
}

// label returns the value of a label, empty if it is absent.
func (m sample) label(name string) string {
	for _, l := range m.set.labels {
		if l.name == name {
			return l.value
		}
	}
	return ""
}

// parseNumber reads the value of a sample, with the same restriction as expfmt: no digits in groups, none in base 16.
func parseNumber(text []byte) (float64, bool) {
	if bytes.ContainsAny(text, "pP_") {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(text), 64)
	return v, err == nil
}
