package modelserver

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// A plainSample is a sample as expfmt gives it, and a plainPage all of them by name, with what is wrong with a name.
type plainSample struct {
	labels map[string]string
	value  float64
}

type plainPage struct {
	samples map[string][]plainSample
	bad     map[string]bool
}

// add takes over parsed families. Sum and count of a histogram are samples of their own names.
func (p *plainPage) add(parsed map[string]*dto.MetricFamily) {
	for name, family := range parsed {
		for _, m := range family.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				if l.GetValue() != "" { // as good as absent
					labels[l.GetName()] = l.GetValue()
				}
			}
			if h := m.Histogram; h != nil {
				p.samples[name+"_sum"] = append(p.samples[name+"_sum"], plainSample{labels, h.GetSampleSum()})
				p.samples[name+"_count"] = append(p.samples[name+"_count"],
					plainSample{labels, float64(h.GetSampleCount())})
				continue
			}
			v := m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
			p.samples[name] = append(p.samples[name], plainSample{labels, v})
		}
	}
}

func newPlainPage(parsed map[string]*dto.MetricFamily) *plainPage {
	p := &plainPage{map[string][]plainSample{}, map[string]bool{}}
	p.add(parsed)
	return p
}

// doubtful reports whether samples of a name do not parse, or one of its label sets has two values.
func (p *plainPage) doubtful(name string) bool {
	seen := map[string]float64{}
	for _, m := range p.samples[name] {
		set := fmt.Sprint(m.labels) // sorted by name
		if v, twice := seen[set]; twice && v != m.value && !(math.IsNaN(v) && math.IsNaN(m.value)) {
			return true
		}
		seen[set] = m.value
	}
	return p.bad[name]
}

// of returns what a series of an engine selects: one value for each label set without the labels of copies, the largest
// of these. It is not ok where one is in doubt.
func (p *plainPage) of(e Engine, f Field, s series) (values []float64, ok bool) {
	copies, _ := labelsOfEngine(e)
	parts := map[string]float64{}
	ok = !p.doubtful(s.name) && !p.doubtful(s.sameModelAs)
	var models []string
	for _, m := range p.samples[s.sameModelAs] {
		models = append(models, m.labels["model"])
	}
	for _, m := range p.samples[s.name] {
		if s.label != "" && (s.except == "" && m.labels[s.label] != s.value || s.except != "" &&
			m.labels[s.label] == s.except) || s.sameModelAs != "" && !slices.Contains(models, m.labels["model"]) {
			continue
		}
		v := m.value
		if s.number != "" {
			if n, err := strconv.ParseFloat(m.labels[s.number], 64); err == nil {
				v = n
			} else {
				v = math.NaN()
			}
		}
		ok = ok && v >= 0 && v <= f.atMost()
		part := maps.Clone(m.labels)
		maps.DeleteFunc(part, func(name, _ string) bool { return slices.Contains(copies, name) })
		parts[fmt.Sprint(part)] = max(parts[fmt.Sprint(part)], v)
	}
	return slices.Collect(maps.Values(parts)), ok
}

// readWhole is Read done plainly: parse everything, then look the fields up. Without a field of load, none is known.
func (p *plainPage) readWhole(r *Reader) map[Field]Number {
	out, anyKnown := make(map[Field]Number), false
	for _, f := range r.fields {
		for _, src := range f.sources {
			if n, served := p.source(r.engine, f.field, src); served {
				out[f.field], anyKnown = n, anyKnown || n.Known && f.field.load()
				break
			}
		}
	}
	if !anyKnown {
		return nil
	}
	return out
}

func (p *plainPage) source(e Engine, f Field, src source) (n Number, served bool) {
	var all []float64
	fine := true
	for _, s := range src.series {
		values, ok := p.of(e, f, s)
		if len(values) == 0 && !p.doubtful(s.name) && !p.doubtful(s.sameModelAs) && !s.optional {
			return Number{}, false
		}
		all, fine = append(all, values...), fine && ok
	}
	if !fine || len(all) == 0 {
		return Number{}, true
	}
	switch src.combine {
	case maximum:
		return known(slices.Max(all) / src.per), true
	case minimum:
		return known(slices.Min(all) / src.per), true
	}
	total := 0.0
	for _, v := range all {
		total += v
	}
	return known(total / src.per), true
}

func compareWithWhole(t *testing.T, r *Reader, report Report, whole map[Field]Number) {
	t.Helper()
	for _, f := range allFields() {
		got, want := *report.number(f), whole[f]
		// Sums in another order differ in their last digits.
		if got.Known != want.Known || math.Abs(got.Value-want.Value) > 1e-9*want.Value {
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
			compareWithWhole(t, r, report, newPlainPage(parsed).readWhole(r))
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

// FuzzRead holds Read to three promises for any body and engine: no panic, no number that cannot be true, and the same
// numbers as a parse of its lines by expfmt, of which one that does not parse makes its own name unusable.
func FuzzRead(f *testing.F) {
	for _, b := range bodies(f) {
		if len(b.text) > 20_000 { // a mutation must hit the lines that matter
			b.text = essence(b.text)
		}
		for e := range Engines() {
			f.Add(e, b.text)
		}
	}
	// Forms that are valid or near it.
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
	// The key of one is the text of the other.
	f.Add(5, []byte("app_running{a=\"\x01\"} 1\napp_running{a=\"\\x01\"} 1\n"))
	f.Add(5, []byte("app_queue{a=\"}\\\"\"} Nan\napp_running 0x1p4\napp_memory 1 2 # {} 3\n"))
	f.Add(5, []byte(" app_queue\t{ a = \"b\" , } 1e308\napp_queue 1e308\napp_queue_x 1\r\n"))
	f.Fuzz(func(t *testing.T, engine int, body []byte) {
		e := Engines()[uint(engine)%uint(len(Engines()))]
		r := newReader(t, e)
		report, err := r.Read(body)
		checkReport(t, report, err)
		var c Counters
		c.Observe(t0, report)

		if len(body) == 0 || checkPage(e, body) != nil {
			return
		}
		if page, ok := parseLines(r, body); ok {
			compareWithWhole(t, r, report, page.readWhole(r))
		}
	})
}

// sampleName is the name of a sample; of one whose name stands within the braces, which Read does not find (a known
// limit), there is none.
var sampleName = regexp.MustCompile(`^[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t{]`)

// parseLines has expfmt parse each line by itself, so that one that is malformed makes its own name unusable. It is not
// ok for a line that OpenMetrics allows and the text format does not: with an exemplar, or a timestamp with decimals.
func parseLines(r *Reader, body []byte) (page *plainPage, ok bool) {
	page = newPlainPage(nil)
	for line := range bytes.Lines(body) {
		if string(line) == eof+"\n" {
			break
		}
		name := sampleName.FindSubmatch(line)
		if name == nil || !bytes.HasSuffix(line, []byte("\n")) || !slices.Contains(r.picker.names, string(name[1])) {
			continue
		}
		line = bytes.Trim(bytes.TrimSuffix(line, []byte("\n")), " \t") // blanks at the end are no error here
		parsed, err := parseWhole(append(bytes.Clone(line), '\n'))
		series, value, split := splitSample(line, len(name[1]))
		if err == nil && !errors.Is(split, errManyLabels) && !errors.Is(split, errLongSeries) {
			page.add(parsed)
			continue
		}
		page.bad[string(name[1])] = true
		if split == nil &&
			len(bytes.TrimLeft(line[len(series):], " \t")) > len(value) {
			return nil, false
		}
	}
	return page, true
}

func checkReport(t *testing.T, report Report, err error) {
	t.Helper()
	anyKnown := false
	for _, f := range allFields() {
		n := *report.number(f)
		anyKnown = anyKnown || n.Known && f.load()
		if n.Known && !plausible(n.Value) || !n.Known && n.Value != 0 {
			t.Errorf("%s is %+v", f, n)
		}
	}
	if report.Utilization.Value > 1 || report.Awake.Value > 1 {
		t.Errorf("utilization is %v, awake %v", report.Utilization.Value, report.Awake.Value)
	}
	if anyKnown != (err == nil) {
		t.Errorf("report %s with error %v", line(report), err)
	}
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
