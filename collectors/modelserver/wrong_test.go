package modelserver

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"steelyard/weighting"
)

// A madePage is a page of an engine with all that it exports, of which the counters rise at every reading.
type madePage struct {
	gauges   string
	counters []string // name and labels
}

func makePage(e Engine, c Custom) (p madePage) {
	seen := map[string]bool{}
	for _, f := range sourcesOf(e, c) {
		if len(f.sources) == 0 {
			continue
		}
		for _, s := range f.sources[0].series {
			line := s.name
			switch {
			case s.except != "":
				line += fmt.Sprintf(`{%s="other"}`, s.label)
			case s.label != "":
				line += fmt.Sprintf(`{%s=%q,model="m"}`, s.label, s.value)
			case s.number != "":
				line += fmt.Sprintf(`{%s="16"}`, s.number)
			default:
				line += `{model="m"}`
			}
			if seen[line] {
				continue
			}
			seen[line] = true
			if f.field.counter() {
				p.counters = append(p.counters, line)
			} else {
				p.gauges += line + " 0\n"
			}
		}
	}
	return p
}

// with is the page with these values of the counters.
func (p madePage) with(value func(counter int) float64) []byte {
	var b strings.Builder
	b.WriteString(p.gauges)
	for i, line := range p.counters {
		fmt.Fprintf(&b, "%s %v\n", line, value(i))
	}
	return []byte(b.String())
}

// at is the page at a reading: counter i has been rising by i+1 a reading. alter changes the value of one.
func (p madePage) at(reading, altered int, alter func(reading int, v float64) float64) []byte {
	return p.with(func(i int) float64 {
		v := 1000 + float64(i+1)*float64(reading)
		if i == altered {
			return alter(reading, v)
		}
		return v
	})
}

// fieldsOf are the fields that a counter is a part of.
func (p madePage) fieldsOf(t *testing.T, r *Reader, counter int) map[Field]bool {
	t.Helper()
	own := make(map[Field]bool)
	zero, one := readPage(t, r, p.with(func(int) float64 { return 0 })), readPage(t, r, p.with(func(i int) float64 {
		if i == counter {
			return 1
		}
		return 0
	}))
	for _, f := range counters {
		if *zero.number(f) != *one.number(f) {
			own[f] = true
		}
	}
	return own
}

func readPage(t *testing.T, r *Reader, body []byte) Report {
	t.Helper()
	report, err := r.Read(body)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// readAll observes as many readings, four in a second.
func readAll(t *testing.T, r *Reader, readings int, page func(reading int) []byte) (all []weighting.ServerReport,
	wrong map[Field]bool, c *Counters) {
	t.Helper()
	c, wrong = new(Counters), make(map[Field]bool)
	for i := range readings {
		seen, fields := c.Observe(readingAt(i), readPage(t, r, page(i)))
		all = append(all, seen)
		for _, w := range fields {
			wrong[w.Field] = true
		}
	}
	return all, wrong, c
}

func readingAt(i int) time.Time { return t0.Add(time.Duration(i) * 250 * time.Millisecond) }

// Whatever one counter of an engine does, the numbers of the others are as they would be, it is no restart, and its own
// number is back when it counts again. And a restart is one: when all begin again, whatever that one has done before.
func TestACounterThatIsWrongCostsNoOther(t *testing.T) {
	const from, until, end = 40, 120, 200 // readings: it is wrong for 20 s
	ways := map[string]struct {
		alter func(reading int, v float64) float64
		found bool // as wrong
	}{
		"steps back a little": {func(n int, v float64) float64 {
			if n%20 == 0 {
				return 1000 + (v-1000)*float64(n-1)/float64(n) - 0.004
			}
			return v
		}, true},
		"steps back a lot": {func(_ int, v float64) float64 { return v - 800 }, true},
		"falls to zero":    {func(int, float64) float64 { return 0 }, true},
		"sticks":           {func(n int, v float64) float64 { return 1000 + (v-1000)*from/float64(n) }, false},
		"leaps":            {func(_ int, v float64) float64 { return v + 1e14 }, true},
		"alternates": {func(n int, v float64) float64 {
			if n%2 == 0 {
				return v / 3
			}
			return v
		}, true},
		"is no number at times": {func(n int, v float64) float64 {
			if n%2 == 0 {
				return math.NaN()
			}
			return v
		}, false},
		"is no number": {func(int, float64) float64 { return math.NaN() }, false},
	}
	for _, e := range Engines() {
		custom := Custom{}
		if e == EngineCustom {
			custom = Custom{Queue: "q", Running: "r", Completions: "c"}
		}
		r, err := NewReader(e, custom)
		if err != nil {
			t.Fatal(err)
		}
		p := makePage(e, custom)
		honest, _, _ := readAll(t, r, end, func(n int) []byte { return p.at(n, -1, nil) })
		for k, line := range p.counters {
			own := p.fieldsOf(t, r, k)
			for name, way := range ways {
				if e == EngineCustom && name != "steps back a little" {
					continue // the only counter there is: a deep fall is a restart
				}
				t.Run(fmt.Sprintf("%s %s %s", e, line, name), func(t *testing.T) {
					alter := func(n int, v float64) float64 {
						if n < from || n >= until {
							return v
						}
						return way.alter(n, v)
					}
					got, wrong, c := readAll(t, r, end, func(n int) []byte { return p.at(n, k, alter) })
					for n := range got {
						compareOthers(t, n, got[n], honest[n], own)
						if got[n].Restarts != 0 {
							t.Fatalf("reading %d: a restart", n)
						}
					}
					for f := range wrong {
						if !own[f] {
							t.Errorf("%s is found to be wrong, too", f)
						}
					}
					if (len(wrong) > 0) != way.found {
						t.Errorf("wrong are %v", wrong)
					}
					for f := range own {
						if last := &got[end-1]; !isKnown(last, f) {
							t.Errorf("%s is unknown 20 s later", f)
						}
					}
					fresh := readPage(t, r, p.with(func(int) float64 { return 5 }))
					if seen, _ := c.Observe(readingAt(end), fresh); seen.Restarts != 1 {
						t.Errorf("%d restarts after one", seen.Restarts)
					}
				})
			}
		}
	}
}

// compareOthers compares what is not of these fields.
func compareOthers(t *testing.T, n int, got, want weighting.ServerReport, own map[Field]bool) {
	t.Helper()
	for _, f := range counters {
		if own[f] {
			setSum(&got, f, 0)
			setSum(&want, f, 0)
		}
	}
	if ofTokens(own) && got.Tokens.At.IsZero() {
		got.Tokens, want.Tokens = weighting.TokenCounts{}, weighting.TokenCounts{} // they come as one
	}
	if own[FieldIterations] || own[FieldGeneratedTokens] {
		got.Tokens.Live = want.Tokens.Live
	}
	got.Implausible, got.Restarts = 0, 0
	if got != want {
		t.Fatalf("reading %d:\ngot  %+v\nwant %+v", n, got, want)
	}
}

func ofTokens(fields map[Field]bool) bool {
	return fields[FieldPromptTokens] || fields[FieldCachedTokens] || fields[FieldGeneratedTokens] ||
		fields[FieldFirstTokens] || fields[FieldIterations]
}

// setSum sets a cumulative field, at no time.
func setSum(r *weighting.ServerReport, f Field, v float64) {
	switch f {
	case FieldCompletions:
		r.Completions = weighting.Reading{Value: v}
	case FieldQueueSeconds:
		r.QueueSeconds = weighting.Reading{Value: v}
	case FieldBusySeconds:
		r.BusySeconds = weighting.Reading{Value: v}
	case FieldPromptTokens:
		r.Tokens.Prompt = v
	case FieldCachedTokens:
		r.Tokens.Cached = v
	case FieldGeneratedTokens:
		r.Tokens.Generated = v
	case FieldFirstTokens:
		r.Tokens.First = v
	case FieldIterations:
		r.Tokens.Iterations = v
	}
}

// isKnown reports whether a field is known, or the tokens that it belongs to.
func isKnown(r *weighting.ServerReport, f Field) bool {
	if ofTokens(map[Field]bool{f: true}) {
		return !r.Tokens.At.IsZero()
	}
	return map[Field]bool{FieldCompletions: r.Completions.Known(), FieldQueueSeconds: r.QueueSeconds.Known(),
		FieldBusySeconds: r.BusySeconds.Known()}[f]
}

// One counter of every engine of a pool steps back three times a minute: the unit of load stays, and no restart is
// counted, for which pickers would forget the routes. It is named.
func TestACounterThatStepsBackKeepsTheUnitAndTheRoutes(t *testing.T) {
	r := newReader(t, EngineVLLM)
	p := makePage(EngineVLLM, Custom{})
	perReading := map[string]float64{
		"vllm:request_success_total": 1, "vllm:request_queue_time_seconds_sum": 0.1,
		"vllm:request_inference_time_seconds_sum": 0.5, "vllm:prompt_tokens_total": 1000,
		"vllm:prompt_tokens_cached_total": 100, "vllm:generation_tokens_total": 200,
		"vllm:time_to_first_token_seconds_count": 1, "vllm:iteration_tokens_total_count": 10,
	}
	for k, line := range p.counters {
		name, _, _ := strings.Cut(line, "{")
		t.Run(name, func(t *testing.T) {
			const endpoints, every, end = 3, 80, 400 // readings
			law, pages := weighting.NewLaw(weighting.DefaultParams()), [endpoints]Counters{}
			named := false
			for n := range end {
				body := p.with(func(i int) float64 {
					of, _, _ := strings.Cut(p.counters[i], "{")
					v := perReading[of] * float64(n)
					if i == k && n > 0 && n%every == 0 {
						v -= perReading[of] + 0.004
					}
					return v
				})
				report, now := readPage(t, r, body), readingAt(n)
				s := weighting.Snapshot{ScrapeInterval: 250 * time.Millisecond}
				for i := range pages {
					seen, wrong := pages[i].Observe(now, report)
					if wrong != nil {
						what := r.Describe(body, wrong)
						named = named || strings.HasPrefix(what, name) &&
							strings.HasSuffix(what, " fell, and the server has not restarted")
					}
					address := fmt.Sprint("10.0.0.", i, ":8000")
					s.Endpoints = append(s.Endpoints, weighting.Endpoint{Address: address, Server: seen})
				}
				d := law.Step(now, s)
				if n > 60 && (d.Work == nil || d.Work.Engines != endpoints) {
					t.Fatalf("reading %d: the unit is the request: %+v", n, d.Work)
				}
				for _, e := range d.Endpoints {
					if e.Restarts != 0 || e.CountersGoBack {
						t.Fatalf("reading %d: %d restarts, counters go back %v", n, e.Restarts, e.CountersGoBack)
					}
				}
			}
			if !named {
				t.Error("it is not named")
			}
		})
	}
}
