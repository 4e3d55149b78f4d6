package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"steelyard/e2e/bench/placement/stats"
	"steelyard/sim/engine"
)

// measuredAs returns a hundred requests: the k-th has k times as much of everything.
func measuredAs(policy string, first, each, end float64) LLMMeasurement {
	m := LLMMeasurement{Policy: policy, Running: []float64{9, 10, 11}}
	for k := 1; k <= 100; k++ {
		m.FirstToken = append(m.FirstToken, first*float64(k))
		m.PerToken = append(m.PerToken, each*float64(k))
		m.EndToEnd = append(m.EndToEnd, end*float64(k))
		m.Lateness = append(m.Lateness, 1e-5*float64(k))
	}
	return m
}

func llmRows(t *testing.T, all ...LLMMeasurement) []LLMRow {
	t.Helper()
	rows, err := NewLLMRows(all, stats.Bootstrap{Block: 10, Resamples: 50, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func usualConditions() LLMConditions {
	p := engine.Defaults()
	return LLMConditions{
		Trace: "azure", Source: "Azure", Load: 0.8, Envoys: 6, Engines: 12, Burst: 1,
		KVTokens: p.KVTokens, Sequences: p.MaxSequences, Lateness: 0.02,
	}
}

func TestAnLLMRowHasItsFiguresAndThoseOfTheReferences(t *testing.T) {
	m := measuredAs("steelyard", 0.01, 0.001, 0.1)
	m.Cost = Cost{
		Seconds: 10, Envoys: []float64{0.1, 0.3}, Control: true, ControlCPU: 1, ControlRSS: 1 << 20, Pushes: 300,
	}
	lr := measuredAs("least_request", 0.02, 0.001, 0.1)
	rows := llmRows(t, lr, m)
	r := rows[1]
	of := r.Of["least_request"]
	for what, tt := range map[string]struct {
		got  Number
		want float64
	}{
		"ttft p50": {r.TTFTP50, 0.5}, "ttft p90": {r.TTFTP90, 0.9}, "ttft p99": {r.TTFTP99, 0.99},
		"ttft mean": {r.TTFTMean, 0.505},
		"tpot p99":  {r.TPOTP99, 0.099}, "e2e p50": {r.E2EP50, 5}, "e2e p99": {r.E2EP99, 9.9},
		"requests": {Number(r.Requests), 100},
		"spread":   {r.RunningSpread, 0.1}, "lateness p99": {r.LatenessP99, 0.00099},
		"Envoy CPU": {r.EnvoyCPU, 0.02}, "Envoy CPU per request": {r.EnvoyCPUPerRequest, 0.004},
		"control CPU": {r.ControlCPU, 0.1}, "control RSS": {r.ControlRSS, 1 << 20}, "pushes": {r.Pushes, 30},
		"ttft p99 of LEAST_REQUEST": {of.TTFTP99, 0.5}, "ttft mean of LEAST_REQUEST": {of.TTFTMean, 0.5},
		"tpot p99 of LEAST_REQUEST": {of.TPOTP99, 1}, "e2e p50 of LEAST_REQUEST": {of.E2EP50, 1},
	} {
		if math.Abs(float64(tt.got)-tt.want) > 1e-9 {
			t.Errorf("%s is %v, want %v", what, tt.got, tt.want)
		}
	}
	if _, ok := r.Of["least_work"]; ok {
		t.Error("a ratio to a row that was not run")
	}
	if p := rows[0].Pushes; !math.IsNaN(float64(p)) {
		t.Errorf("%v pushes of a row without Steelyard, want none known", p)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"policy", "requests", "errors", "ttft_p50", "ttft_p90", "ttft_p99", "ttft_mean", "tpot_p99",
		"e2e_p50", "e2e_p99", "pushes_per_second", "envoy_cpu_per_request",
	} {
		if !strings.Contains(string(text), `"`+key+`":`) {
			t.Errorf("the JSON has no %s: %s", key, text)
		}
	}
}

func TestRowsOfOtherRequestsAreNotCompared(t *testing.T) {
	short := measuredAs("steelyard", 1, 1, 1)
	short.FirstToken = short.FirstToken[1:]
	all := []LLMMeasurement{measuredAs("least_request", 1, 1, 1), short}
	if _, err := NewLLMRows(all, stats.Bootstrap{Block: 1, Resamples: 1}); err == nil {
		t.Error("99 requests were compared with 100")
	}
}

func TestTheTargetsAreThoseOfTheConditions(t *testing.T) {
	rows := llmRows(t,
		measuredAs("least_request", 1, 1, 1), measuredAs("fewest_in_flight", 0.7, 1, 1),
		measuredAs("least_work", 0.5, 1, 1), measuredAs("steelyard", 0.54, 1, 1.04),
		measuredAs("steelyard_scrapes", 1.04, 1, 1))
	change := func(f func(*LLMConditions)) LLMConditions {
		c := usualConditions()
		f(&c)
		return c
	}
	for name, tt := range map[string]struct {
		c      LLMConditions
		missed []string // the beginnings
		all    int
	}{
		"usual": {
			usualConditions(), []string{"steelyard: TTFT mean, by that of least_work", "steelyard: end to end"}, 10,
		},
		"mixed": {
			change(func(c *LLMConditions) { c.Mixed = true }),
			[]string{"steelyard: TTFT p99", "steelyard: end to end"}, 3,
		},
		"load":  {change(func(c *LLMConditions) { c.Load = 0.95 }), []string{"steelyard: end to end"}, 5},
		"burst": {change(func(c *LLMConditions) { c.Burst = 10 }), []string{"steelyard: end to end"}, 5},
		"kv": {
			change(func(c *LLMConditions) { c.KVTokens = 30_000; c.Mixed = true }),
			[]string{"steelyard: end to end"}, 5,
		},
	} {
		d := NewLLMDocument(tt.c, rows, 0.5, nil)
		var missed []string
		for _, target := range d.Targets {
			if !target.Known() {
				t.Errorf("%s: %s is not known", name, target.Text)
			}
			if !target.Holds {
				missed = append(missed, target.Text)
			}
		}
		if len(d.Targets) != tt.all || len(missed) != len(tt.missed) {
			t.Fatalf("%s: %d targets, of which %q are missed; want %d and %q",
				name, len(d.Targets), missed, tt.all, tt.missed)
		}
		for i := range missed {
			if !strings.HasPrefix(missed[i], tt.missed[i]) {
				t.Errorf("%s: missed %q, want %q", name, missed[i], tt.missed[i])
			}
		}
	}
}

func TestTheTableSaysWhyRequestsFailed(t *testing.T) {
	m := measuredAs("steelyard", 1, 1, 1)
	m.Errors, m.FirstError = 4, "status 503 (due at 1s)"
	var out bytes.Buffer
	rows := llmRows(t, measuredAs("least_request", 1, 1, 1), m)
	if err := NewLLMDocument(usualConditions(), rows, 0.5, nil).Write(&out); err != nil {
		t.Fatal(err)
	}
	const want = "steelyard: 4 requests failed, the first with: status 503 (due at 1s)\n"
	if strings.Count(out.String(), "requests failed") != 1 || !strings.Contains(out.String(), want) {
		t.Errorf("not %q alone in\n%s", want, out.String())
	}
}

func TestATargetOfARowThatWasNotRunIsUnknown(t *testing.T) {
	d := NewLLMDocument(usualConditions(), llmRows(t, measuredAs("least_request", 1, 1, 1)), 0.5, nil)
	for _, target := range d.Targets {
		if target.Known() || target.Holds {
			t.Errorf("%+v", target)
		}
	}
	var out bytes.Buffer
	if err := d.Write(&out); err != nil || !strings.Contains(out.String(), "0 of 0 measured targets held") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestRequestsThatLeftLateAreNoResult(t *testing.T) {
	m := measuredAs("steelyard", 1, 1, 1)
	for i := range m.Lateness {
		m.Lateness[i] = 0.03
	}
	d := NewLLMDocument(usualConditions(), llmRows(t, measuredAs("least_request", 1, 1, 1), m), 0.5, nil)
	if d.Valid || len(d.Reasons) != 1 || !strings.HasPrefix(d.Reasons[0], "steelyard: the load generator was 30.0 ms") {
		t.Errorf("valid %t because of %q", d.Valid, d.Reasons)
	}
}

func TestAChoiceByPromptsIsHeldAgainstTheWeights(t *testing.T) {
	rows := llmRows(t, measuredAs("steelyard", 1, 1, 1), measuredAs("steelyard+module+prefix", 0.8, 1, 0.9))
	rows[0].CachedShare, rows[1].CachedShare = 0.1, 0.4
	c := usualConditions()
	c.Conversations = true
	var got []string
	for _, target := range NewLLMDocument(c, rows, 0.5, nil).Targets {
		got = append(got, fmt.Sprintf("%.2f %t", float64(target.Measured), target.Holds))
	}
	if want := []string{"0.80 true", "0.90 false", "4.00 true"}; !slices.Equal(got, want) {
		t.Errorf("targets %q, want %q", got, want)
	}
}
