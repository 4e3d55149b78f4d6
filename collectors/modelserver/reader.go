package modelserver

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// A Reader turns the metrics bodies of one kind of server into Reports. It has no state between bodies, and is safe for
// concurrent use.
type Reader struct {
	engine  Engine
	fields  []fieldSources
	picker  picker
	scratch sync.Pool // of *scratch
}

// A scratch is the memory of one reading, reused by the next.
type scratch struct {
	samples samples
	seen    map[uint64]struct{}

	// Used by parseSlowly only.
	picked []byte
	input  bytes.Reader
	parser expfmt.TextParser
}

// NewReader makes a Reader for an engine; c names the series of EngineCustom
// and is zero for every other engine.
func NewReader(e Engine, c Custom) (*Reader, error) {
	if err := validate(e, c); err != nil {
		return nil, err
	}
	r := &Reader{engine: e, fields: sourcesOf(e, c)}
	r.picker = newPicker(seriesNames(r.fields))
	r.scratch.New = func() any {
		return &scratch{
			samples: newSamples(r.picker.names),
			seen:    make(map[uint64]struct{}),
			parser:  expfmt.NewTextParser(model.LegacyValidation),
		}
	}
	return r, nil
}

// Read reads the load from a metrics body, in the Prometheus text format or OpenMetrics. A field whose series is
// missing, or has an impossible value, is unknown in the Report. It is an error if no field at all is known (the
// message names the series that were expected), if a line of a wanted series does not parse or occurs twice, and if the
// body is empty or cut in mid-line. Lines of other series are ignored. The body is not kept.
func (r *Reader) Read(body []byte) (Report, error) {
	var report Report
	err := r.evaluate(body, func(e evaluation) {
		*report.number(e.field) = e.value
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
	s := r.scratch.Get().(*scratch)
	defer r.scratch.Put(s)
	if err := r.parse(s, body); err != nil {
		return fmt.Errorf("reading %s metrics: %w", r.engine, err)
	}
	anyKnown := false
	var problems []string
	for i := range r.fields {
		e := evaluateField(&r.fields[i], &s.samples)
		anyKnown = anyKnown || e.value.Known && e.field != FieldBlockTokens // which is no load
		if e.samples > 0 && !e.value.Known {
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

// parse finds the samples of the wanted series. A sample as servers write it is read
// by parseSample. A body with any other line of a wanted series goes through the
// parser of prometheus/common instead, which decides what is allowed and reports what is wrong.
func (r *Reader) parse(s *scratch, body []byte) error {
	s.samples.clear()
	plain := true
	err := r.picker.each(body, func(name int, sample []byte) bool {
		plain = s.samples.parse(name, sample)
		return plain
	})
	if err != nil {
		return err
	}
	if !plain {
		if err := r.parseSlowly(s, body); err != nil {
			return err
		}
	}
	return s.samples.checkTwice(s.seen)
}

// parseSlowly picks the wanted lines and has them parsed.
func (r *Reader) parseSlowly(s *scratch, body []byte) error {
	var err error
	if s.picked, err = r.picker.pick(s.picked[:0], body); err != nil {
		return err
	}
	s.input.Reset(s.picked)
	parsed, err := s.parser.TextToMetricFamilies(&s.input)
	if err != nil {
		return inLine(s.picked, err)
	}
	s.samples.clear()
	s.samples.take(parsed)
	return nil
}

// inLine quotes the line that the parser failed at. Its number would not help, because the parser reads only a part of
// the body.
func inLine(picked []byte, err error) error {
	var p expfmt.ParseError
	if !errors.As(err, &p) || p.Line < 1 {
		return err
	}
	lines := bytes.SplitN(picked, []byte("\n"), p.Line+1)
	return fmt.Errorf("line %s: %s", excerpt(lines[min(p.Line, len(lines))-1]), p.Msg)
}

// missing returns what was expected and what the body has instead.
func (r *Reader) missing(body []byte) string {
	instead := "it begins with " + excerpt(bytes.TrimLeft(body, " \t\n"))
	if other := Detect(body); other != "" && other != r.engine {
		instead = fmt.Sprintf("its series are those of engine %q", other)
	}
	return fmt.Sprintf("none of the series is in the body (expected %s); %s",
		strings.Join(r.loadSeries(), ", "), instead)
}

// loadSeries lists the selectors of the gauges: the series that a person would
// look for first.
func (r *Reader) loadSeries() []string {
	var names []string
	for _, f := range r.fields {
		if !f.field.counter() && f.field != FieldBlockTokens || r.engine == EngineCustom {
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
