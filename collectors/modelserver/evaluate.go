package modelserver

import (
	"fmt"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// An evaluation is one field of a body with its working.
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

// evaluateField takes the first source that the body can serve.
func evaluateField(spec *fieldSources, parsed families) evaluation {
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
func (e *evaluation) add(parsed families) bool {
	total := 0.0
	for _, s := range e.source.series {
		before := e.samples
		models := modelsOf(parsed[s.sameModelAs])
		for _, m := range parsed[s.name].GetMetric() {
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
func (e *evaluation) combine(total float64, s series, m *dto.Metric) float64 {
	v := m.GetUntyped().GetValue()
	if !plausible(v) || e.field == FieldUtilization && v > 1 {
		if e.badSeries == "" {
			e.bad, e.badSeries = v, s.name
		}
		return total
	}
	if e.field.counter() {
		e.counters = append(e.counters, counterSample{field: e.field, key: seriesKey(s.name, m), value: v / e.source.per})
	}
	if e.source.combine == maximum {
		return max(total, v)
	}
	return total + v
}

// takes reports whether the selector takes a sample of its series.
func (s series) takes(m *dto.Metric, models map[string]bool) bool {
	if s.label != "" && labelValue(m, s.label) != s.value {
		return false
	}
	return s.sameModelAs == "" || models[labelValue(m, "model")]
}

// modelsOf lists the values of the label "model" in a family.
func modelsOf(f *dto.MetricFamily) map[string]bool {
	if f == nil {
		return nil
	}
	models := make(map[string]bool)
	for _, m := range f.Metric {
		models[labelValue(m, "model")] = true
	}
	return models
}

// labelValue is the value of a label, "" where it is absent.
func labelValue(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// seriesKey hashes the identity of a series: its name and its labels, in
// whatever order they are written.
func seriesKey(name string, m *dto.Metric) uint64 {
	key := fnv1a(fnvOffset, name)
	for _, l := range m.Label {
		// 0xff is no part of a UTF-8 text, so it separates name from value.
		key += fnv1a(fnv1a(fnvOffset, l.GetName())*fnvPrime^0xff, l.GetValue())
	}
	return key
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func fnv1a(h uint64, s string) uint64 {
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
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

// problem says why there is no value; empty if there is one.
func (e evaluation) problem() string {
	switch {
	case e.value.Known:
		return ""
	case len(e.spec.sources) == 0:
		return "no series of this engine says it"
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
