package modelserver

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"sync"
)

// A Reader turns the metrics bodies of one kind of server into Reports. It has no state between bodies, and is safe for
// concurrent use.
type Reader struct {
	engine  Engine
	fields  []fieldSources
	picker  picker
	scratch sync.Pool // of *samples
}

// NewReader makes a Reader for an engine; c names the series of EngineCustom
// and is zero for every other engine.
func NewReader(e Engine, c Custom) (*Reader, error) {
	if err := validate(e, c); err != nil {
		return nil, err
	}
	r := &Reader{engine: e, fields: sourcesOf(e, c)}
	r.picker = newPicker(seriesNames(r.fields))
	r.scratch.New = func() any { return newSamples(r.picker.names, e) }
	return r, nil
}

// Read reads the load from a metrics body, in the Prometheus text format or OpenMetrics. A field whose series is
// missing, has an impossible value, does not parse or occurs twice with different values is unknown in the Report; the
// others are read. It is an error if no field of load is known (the message names the series that were expected, or
// what is wrong with them), and if the body is empty, no page of metrics, or cut in mid-line. Lines of other series are
// ignored. The body is not kept.
func (r *Reader) Read(body []byte) (Report, error) {
	var report Report
	err := r.evaluate(body, func(e evaluation) {
		*report.number(e.field) = e.value
		if e.field.load() {
			report.Doubt = cmp.Or(report.Doubt, e.fault)
		}
		if e.field.counter() && e.value.Known {
			report.series = append(report.series, e.counters...)
		}
	})
	if err != nil {
		return Report{}, err
	}
	return report, nil
}

// A FieldSource shows where one field of a Report came from.
type FieldSource struct {
	Field   Field    `json:"field"`
	Value   Number   `json:"value"`
	Series  []string `json:"series"`            // the selectors of the value; without a value, all that were looked for
	Combine string   `json:"combine"`           // "sum" or "max" of the samples
	Samples int      `json:"samples"`           // how many were combined
	Problem string   `json:"problem,omitempty"` // why there is no value
}

// Explain reads a body as Read does and returns, field by field, which series gave
// the value, or why there is none. The fields come with Read's errors, so that
// a body from which nothing can be read is explained too.
func (r *Reader) Explain(body []byte) ([]FieldSource, error) {
	var fields []FieldSource
	err := r.evaluate(body, func(e evaluation) { fields = append(fields, e.explain()) })
	return fields, err
}

// evaluate passes each field to use, in turn. The error is nil if at least one field is known.
func (r *Reader) evaluate(body []byte, use func(evaluation)) error {
	if err := checkPage(r.engine, body); err != nil {
		return fmt.Errorf("reading %s metrics: %w", r.engine, err)
	}
	s := r.scratch.Get().(*samples)
	defer r.scratch.Put(s)
	s.read(&r.picker, body)
	anyKnown := false
	var problems []string
	for i := range r.fields {
		e := evaluateField(&r.fields[i], s)
		anyKnown = anyKnown || e.value.Known && e.field.load()
		if e.source != nil && !e.value.Known {
			problems = append(problems, e.problem())
		}
		use(e)
	}
	switch {
	case anyKnown:
		return nil
	case len(problems) > 0:
		return fmt.Errorf("reading %s metrics: no usable value: %s", r.engine, strings.Join(problems, "; "))
	default:
		return fmt.Errorf("reading %s metrics: %s", r.engine, r.missing(body))
	}
}

// missing returns what was expected and what the body has instead.
func (r *Reader) missing(body []byte) string {
	instead := cmp.Or(renamed(body), "it begins with "+excerpt(bytes.TrimLeft(body, " \t\n")))
	if other, err := Detect(body); err == nil && other != r.engine {
		instead = fmt.Sprintf("it has the series of engine %q", other)
	}
	return fmt.Sprintf("none of the series is in the body (expected %s); %s",
		strings.Join(r.loadSeries(), ", "), instead)
}

// loadSeries lists the selectors of the gauges: the series that a person would
// look for first.
func (r *Reader) loadSeries() []string {
	var names []string
	for _, f := range r.fields {
		if !f.field.counter() && f.field.load() || r.engine == EngineCustom {
			names = append(names, f.selectors()...)
		}
	}
	return names
}

// seriesNames lists the distinct names that the fields are made of.
func seriesNames(fields []fieldSources) []string {
	var names []string
	known := make(map[string]bool)
	add := func(name string) {
		if name != "" && !known[name] {
			known[name] = true
			names = append(names, name)
		}
	}
	for _, f := range fields {
		for _, src := range f.sources {
			for _, s := range src.series {
				add(s.name)
				add(s.sameModelAs)
			}
		}
	}
	return names
}
