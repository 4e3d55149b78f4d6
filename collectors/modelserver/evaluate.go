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
	parsed   *samples
	source   *source // the one that the body serves; nil if there is none
	samples  int
	value    Number
	counters []counterSample // the samples, of a counter

	fault string // why there is no value although its series are there: the first reason found
}

// evaluateField uses the first source that the body has.
func evaluateField(spec *fieldSources, parsed *samples) evaluation {
	for i := range spec.sources {
		e := evaluation{field: spec.field, spec: spec, source: &spec.sources[i], parsed: parsed}
		if e.combineSource() {
			return e
		}
	}
	return evaluation{field: spec.field, spec: spec}
}

// combineSource combines the samples of the source, and reports whether each series that is not optional has one.
func (e *evaluation) combineSource() bool {
	var total float64
	for _, s := range e.source.series {
		before := e.samples
		all, fault := e.parsed.of(s.name)
		among, doubt := e.parsed.of(s.sameModelAs)
		if fault == nil {
			fault = doubt
		}
		models := modelsOf(among)
		for _, m := range all {
			if !s.takes(m, models) {
				continue
			}
			total = e.combine(total, s, m)
			e.samples++
		}
		if fault != nil && e.fault == "" {
			e.fault = fault.Error()
		}
		if e.samples == before && fault == nil && !s.optional {
			return false
		}
	}
	if e.fault == "" {
		e.value = known(total / e.source.per)
	}
	return true
}

// combine adds a sample to what came before it.
func (e *evaluation) combine(total float64, s series, m sample) float64 {
	v := s.valueOf(m)
	if most := e.field.atMost(); !plausible(v) || v > most {
		if e.fault == "" {
			e.fault = fmt.Sprintf("%s is %v: expected %s", s.name, v, e.field.expected())
		}
		return total
	}
	if e.field.counter() {
		e.counters = append(e.counters, counterSample{field: e.field, key: m.set.key, value: v / e.source.per,
			unit: m.set.unit.at})
	}
	switch {
	case e.source.combine == minimum && e.samples > 0:
		return min(total, v)
	case e.source.combine == maximum:
		return max(total, v)
	}
	return total + v
}

// valueOf is the value of a sample; NaN where it is in a label, and no number.
func (s series) valueOf(m sample) float64 {
	if s.number == "" {
		return m.value
	}
	if v, ok := parseNumber([]byte(m.label(s.number))); ok {
		return v
	}
	return math.NaN()
}

// takes reports whether the selector takes a sample of its series.
func (s series) takes(m sample, models map[string]bool) bool {
	if s.label != "" && !s.matches(m.label(s.label)) {
		return false
	}
	return s.sameModelAs == "" || models[m.label("model")]
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
		models[m.label("model")] = true
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
		if all, _ := e.parsed.of(s.name); len(all) > 0 || !s.optional {
			f.Series = append(f.Series, s.String())
		}
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
	case e.fault == "":
		return "the sum is out of range"
	default:
		return e.fault
	}
}

// selectors lists every series that could give the field.
func (f fieldSources) selectors() []string {
	var all []string
	for _, src := range f.sources {
		var parts []string
		for _, s := range src.series {
			if !s.optional {
				parts = append(parts, s.String())
			}
		}
		all = append(all, strings.Join(parts, " + "))
	}
	return all
}
