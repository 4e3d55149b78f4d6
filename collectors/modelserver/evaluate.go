package modelserver

import (
	"fmt"
	"math"
	"strings"
)

// An evaluation is one field of a body, with its calculation.
type evaluation struct {
	field    Field
	spec     *fieldSources
	source   *source // the one that the body serves; nil if there is none
	samples  int
	value    Number
	counters []counterSample // the samples, of a counter

	// The first value that cannot be true, with the series it stands in.
	bad       float64
	badSeries string
}

// evaluateField uses the first source that the body has.
func evaluateField(spec *fieldSources, parsed *samples) evaluation {
	for i := range spec.sources {
		e := evaluation{field: spec.field, spec: spec, source: &spec.sources[i]}
		if e.add(parsed) {
			return e
		}
	}
	return evaluation{field: spec.field, spec: spec}
}

// add combines the samples of the source, and reports whether each of its
// series has one.
func (e *evaluation) add(parsed *samples) bool {
	total := 0.0
	for _, s := range e.source.series {
		before := e.samples
		models := modelsOf(parsed.of(s.sameModelAs))
		for _, m := range parsed.of(s.name) {
			if !s.takes(m, models) {
				continue
			}
			e.samples++
			total = e.combine(total, s, m)
		}
		if e.samples == before {
			return false
		}
	}
	if e.badSeries == "" {
		e.value = known(total / e.source.per)
	}
	return true
}

// combine adds a sample to what came before it.
func (e *evaluation) combine(total float64, s series, m sample) float64 {
	v := s.valueOf(m)
	if !plausible(v) || e.field == FieldUtilization && v > 1 {
		if e.badSeries == "" {
			e.bad, e.badSeries = v, s.name
		}
		return total
	}
	if e.field.counter() {
		e.counters = append(e.counters, counterSample{field: e.field, key: m.key, value: v / e.source.per})
	}
	if e.source.combine == maximum {
		return max(total, v)
	}
	return total + v
}

// valueOf is the value of a sample; NaN where it is in a label, and no number.
func (s series) valueOf(m sample) float64 {
	if s.number == "" {
		return m.value
	}
	if v, ok := parseNumber(m.label(s.number)); ok {
		return v
	}
	return math.NaN()
}

// takes reports whether the selector takes a sample of its series.
func (s series) takes(m sample, models map[string]bool) bool {
	if s.label != "" && !s.matches(string(m.label(s.label))) {
		return false
	}
	return s.sameModelAs == "" || models[string(m.label("model"))]
}

// matches reports whether the selector takes samples whose label has this value.
func (s series) matches(value string) bool {
	if s.except != "" {
		return value != s.except
	}
	return value == s.value
}

// modelsOf lists the values of the label "model"; nil without samples.
func modelsOf(all []sample) map[string]bool {
	if len(all) == 0 {
		return nil
	}
	models := make(map[string]bool)
	for _, m := range all {
		models[string(m.label("model"))] = true
	}
	return models
}

// explain puts the evaluation in words.
func (e evaluation) explain() FieldSource {
	f := FieldSource{Field: e.field, Value: e.value, Samples: e.samples, Problem: e.problem()}
	if e.source == nil {
		f.Series = e.spec.selectors()
		return f
	}
	f.Combine = string(e.source.combine)
	for _, s := range e.source.series {
		f.Series = append(f.Series, s.String())
	}
	return f
}

// problem returns why there is no value; empty if there is one.
func (e evaluation) problem() string {
	switch {
	case e.value.Known:
		return ""
	case len(e.spec.sources) == 0:
		return "no series of this engine shows it"
	case e.source == nil:
		return "not in the body"
	case e.badSeries == "":
		return "the sum is out of range"
	case e.field == FieldUtilization && e.bad > 1:
		return fmt.Sprintf("%s is %v: expected a share, 0 to 1", e.badSeries, e.bad)
	default:
		return fmt.Sprintf("%s is %v: expected a number, 0 or more", e.badSeries, e.bad)
	}
}

// selectors lists every series that could give the field.
func (f fieldSources) selectors() []string {
	var all []string
	for _, src := range f.sources {
		parts := make([]string, len(src.series))
		for i, s := range src.series {
			parts[i] = s.String()
		}
		all = append(all, strings.Join(parts, " + "))
	}
	return all
}
