package modelserver

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// parseWhole parses a body with nothing left out: what Read is compared with,
// for its numbers and for its cost.
func parseWhole(body []byte) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(bytes.NewReader(body))
}

// wholeValues flattens parsed families to the samples that carry one of the
// names. A histogram's sum and count are looked up under the histogram's own name.
func wholeValues(parsed map[string]*dto.MetricFamily, name string) (values []float64, metrics []*dto.Metric) {
	if h := parsed[strings.TrimSuffix(name, "_sum")]; h != nil && h.GetType() == dto.MetricType_HISTOGRAM {
		for _, m := range h.Metric {
			values, metrics = append(values, m.Histogram.GetSampleSum()), append(metrics, m)
		}
		return values, metrics
	}
	if h := parsed[strings.TrimSuffix(name, "_count")]; h != nil && h.GetType() == dto.MetricType_HISTOGRAM {
		for _, m := range h.Metric {
			values, metrics = append(values, float64(m.Histogram.GetSampleCount())), append(metrics, m)
		}
		return values, metrics
	}
	for _, m := range parsed[name].GetMetric() {
		v := m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
		values, metrics = append(values, v), append(metrics, m)
	}
	return values, metrics
}

// readWhole is Read done plainly: parse everything, then look the fields up.
func readWhole(parsed map[string]*dto.MetricFamily, fields []fieldSources) map[Field]Number {
	out := make(map[Field]Number)
	for _, f := range fields {
		out[f.field] = Number{}
		for _, src := range f.sources {
			if n, served := wholeSource(parsed, f.field, src); served {
				out[f.field] = n
				break
			}
		}
	}
	return out
}

func wholeSource(parsed map[string]*dto.MetricFamily, f Field, src source) (n Number, served bool) {
	sum, worst, bad := 0.0, 0.0, false
	for _, s := range src.series {
		_, sameModelAs := wholeValues(parsed, s.sameModelAs)
		models := modelsOf(samplesOf(sameModelAs))
		values, metrics := wholeValues(parsed, s.name)
		found := false
		for i, m := range samplesOf(metrics) {
			v := values[i]
			if !s.takes(m, models) {
				continue
			}
			if s.number != "" {
				v = s.valueOf(m)
			}
			found = true
			bad = bad || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 || f == FieldUtilization && v > 1
			sum, worst = sum+v, max(worst, v)
		}
		if !found {
			return Number{}, false
		}
	}
	v := sum
	if src.combine == maximum {
		v = worst
	}
	if bad || math.IsInf(v, 0) {
		return Number{}, true
	}
	return Number{Value: v / src.per, Known: true}, true
}

// samplesOf takes over the labels of parsed metrics.
func samplesOf(metrics []*dto.Metric) []sample {
	s := newSamples([]string{"any"})
	s.take(map[string]*dto.MetricFamily{"any": {Metric: metrics}})
	return s.of("any")
}

func compareWithWhole(t *testing.T, r *Reader, report Report, whole map[Field]Number) {
	t.Helper()
	for _, f := range allFields() {
		got, want := *report.number(f), whole[f]
		if got.Known != want.Known || got.Value != want.Value {
			t.Errorf("%s %s: %v out of the picked lines, %v out of the whole body", r.engine, f, got, want)
		}
	}
}

// TestPickedLinesReadAsTheWholeBodyDoes compares with a parse of the whole
// body, types and histograms included.
func TestPickedLinesReadAsTheWholeBodyDoes(t *testing.T) {
	for _, b := range bodies(t) {
		parsed, err := parseWhole(b.text)
		if err != nil {
			if strings.Contains(b.name, "openmetrics") { // which that parser does not know
				continue
			}
			t.Fatalf("%s: %v", b.name, err)
		}
		for _, e := range Engines() {
			r := newReader(t, e)
			report, _ := r.Read(b.text) // an error leaves all unknown, and so must the whole body
			compareWithWhole(t, r, report, readWhole(parsed, r.fields))
		}
	}
}

type namedBody struct {
	name string
	text []byte
}

// bodies lists all bodies in testdata.
func bodies(t testing.TB) []namedBody {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*", "*.prom"))
	if err != nil || len(files) < 11 {
		t.Fatalf("%d bodies in testdata, error %v", len(files), err)
	}
	var all []namedBody
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, namedBody{filepath.Base(f), text})
	}
	return all
}

// FuzzRead holds Read to three promises for any body and engine: no panic, no
// number that cannot be true, and the same numbers as a parse of the whole
// body where the whole body parses.
func FuzzRead(f *testing.F) {
	for _, b := range bodies(f) {
		if len(b.text) > 20_000 { // a mutation must hit the lines that matter
			b.text = essence(b.text)
		}
		for e := range Engines() {
			f.Add(e, b.text)
		}
	}
	// One for each reason of the quick way to leave a line to the slow one, and near it.
	for _, line := range []string{
		`{a="b\"c"} 1`, "{a=\"\xff\"} 1", `{a="b",a="c"} 1`, `{a="b",} 1`, `{a="b",,} 1`, `{,} 1`, `{} 1`,
		`{__name__="b"} 1`, `{__a="b"} 1`,
		`{1a="b"} 1`, `{a= "b"} 1`, `{a="b" } 1`, `{a="b"}1`, `{a="b"}	1`, `{a="b"} +1`, `{a="b"} 1e`,
		`{a="b"} 1e999`,
		`{a="b"} +Inf`,
		`{a="b"} 1_0`, `{a="b"} `, `{a="b" 1`, `{a="b"`, `{a="b"c="d"} 1`, `{"a"="b"} 1`, `{=""} 1`, ` 1`, `  1`, ` -`,
		` 1 1`, " 1\r",
	} {
		f.Add(5, []byte("app_running 1\napp_queue"+line+"\n"))
	}
	f.Add(5, []byte("app_queue{a=\"}\\\"\"} Nan\napp_running 0x1p4\napp_memory 1 2 # {} 3\n"))
	f.Add(5, []byte(" app_queue\t{ a = \"b\" , } 1e308\napp_queue 1e308\napp_queue_x 1\r\n"))
	f.Fuzz(func(t *testing.T, engine int, body []byte) {
		e := Engines()[uint(engine)%uint(len(Engines()))]
		r := newReader(t, e)
		report, err := r.Read(body)
		checkReport(t, report, err)
		var c Counters
		c.Observe(t0, report)

		plain := samplesWithPlainNames(body)
		parsed, wholeErr := parseWhole(plain)
		if wholeErr != nil || len(body) == 0 || body[len(body)-1] != '\n' || twice(parsed, r) {
			return
		}
		if err != nil && !strings.Contains(err.Error(), "none of the series") &&
			!strings.Contains(err.Error(), "no usable value") {
			t.Fatalf("the whole body parses, the picked lines do not: %v", err)
		}
		whole := readWhole(parsed, r.fields)
		compareWithWhole(t, r, report, whole)
	})
}

func checkReport(t *testing.T, report Report, err error) {
	t.Helper()
	anyKnown := false
	for _, f := range allFields() {
		n := *report.number(f)
		anyKnown = anyKnown || n.Known
		if n.Known && !plausible(n.Value) || !n.Known && n.Value != 0 {
			t.Errorf("%s is %+v", f, n)
		}
	}
	if report.Utilization.Value > 1 {
		t.Errorf("utilization is %v", report.Utilization.Value)
	}
	if anyKnown != (err == nil) {
		t.Errorf("report %s with error %v", line(report), err)
	}
}

// twice reports whether a wanted series occurs twice, which Read refuses.
func twice(parsed map[string]*dto.MetricFamily, r *Reader) bool {
	s := newSamples(r.picker.names)
	s.take(parsed)
	return s.checkTwice(make(map[uint64]struct{})) != nil
}

// samplesWithPlainNames drops comments, since the type of a family changes how
// the parser of whole bodies files its samples, not their values; and samples
// whose name stands within the braces, which Read does not find (a known limit)
// and that parser panics on (prometheus/common 0.67.5, "{}0" in the first line).
func samplesWithPlainNames(body []byte) []byte {
	var out []byte
	for l := range bytes.Lines(body) {
		if first := bytes.TrimLeft(l, " \t"); len(first) > 0 && first[0] != '#' && first[0] != '{' {
			out = append(out, l...)
		}
	}
	return out
}

// essence keeps the lines of a vLLM body about requests.
func essence(body []byte) []byte {
	var out []byte
	for l := range bytes.Lines(body) {
		if s := string(l); strings.Contains(s, "request") && !strings.Contains(s, "bucket") ||
			strings.Contains(s, "cache_usage") {
			out = append(out, l...)
		}
	}
	return out
}

// The cost of a read against that of parsing the whole body, in one run:
//
//	go test -run '^$' -bench 'Read|Whole' -benchmem -count 10 ./collectors/modelserver | benchstat -col .name -
func BenchmarkRead(b *testing.B) { benchmark(b, readPicked) }
func BenchmarkWhole(b *testing.B) {
	benchmark(b, func(_ *Reader, body []byte) error { _, err := parseWhole(body); return err })
}

func readPicked(r *Reader, body []byte) error {
	_, err := r.Read(body)
	return err
}

// benchmarked are the bodies that a fleet serves most: 48 to 83 KB.
var benchmarked = [][2]string{
	{"recorded", "vllm-0.32.0-idle.prom"},
	{"recorded", "vllm-0.32.0-loaded.prom"},
	{"handmade", "vllm-two-engines.prom"},
}

func benchmark(b *testing.B, parse func(*Reader, []byte) error) {
	for _, file := range benchmarked {
		body := read(b, file[0], file[1])
		b.Run(fmt.Sprintf("%s/%dKB", strings.TrimSuffix(file[1], ".prom"), len(body)/1000), func(b *testing.B) {
			r := newReader(b, EngineVLLM)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := parse(r, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestReadAllocatesATenthOfAParseOfTheWholeBody counts bytes, which do not
// depend on how busy the machine is. The ratio of the times, at least 5, is for
// the benchmark above to show.
func TestReadAllocatesATenthOfAParseOfTheWholeBody(t *testing.T) {
	for _, file := range benchmarked {
		body := read(t, file[0], file[1])
		r := newReader(t, EngineVLLM)
		picked := bytesPerRun(t, func() error { return readPicked(r, body) })
		whole := bytesPerRun(t, func() error { _, err := parseWhole(body); return err })
		t.Logf("%s: %.0f bytes allocated, %.0f by a parse of the whole body: %.0f times less", file[1], picked, whole,
			whole/picked)
		if picked*10 > whole {
			t.Errorf("%s: Read allocates %.0f bytes, a parse of the whole body %.0f: want a tenth at most", file[1],
				picked, whole)
		}
	}
}
