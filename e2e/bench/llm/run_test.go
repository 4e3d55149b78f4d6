package main

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/bench/placement/report"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/sim/trace"
)

// short returns a bench of seconds: a trace of short answers.
func short(t *testing.T) Options {
	t.Helper()
	o := Default()
	tr := &trace.Trace{Name: "short"}
	for i := range 50 {
		tr.Requests = append(tr.Requests, trace.Request{
			At: time.Duration(i) * 100 * time.Millisecond, Prompt: int32(100 + 37*i%1500), Output: int32(1 + i%20),
		})
	}
	o.Policies = names()
	o.Trace, o.Envoys, o.Engines, o.Load = tr, 2, 2, 0.6
	o.WarmUp, o.Requests, o.Attempts = 200*time.Millisecond, 60, 1
	o.Place.Dir = proctest.Dir(t)
	return o
}

// It asserts that everything was measured, not how well requests were placed: sixty
// requests on a shared machine cannot tell.
func TestAllRowsAnswerEveryRequest(t *testing.T) {
	o := short(t)
	d, err := o.measureAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Rows) != len(policies()) {
		t.Fatalf("%d rows, want %d", len(d.Rows), len(policies()))
	}
	for i, r := range d.Rows {
		p := policies()[i]
		if r.Policy != p.Name || r.Requests != 60 || r.Errors != 0 {
			t.Errorf("%s: %d requests with %d errors; want %s with 60 and none", r.Policy, r.Requests, r.Errors, p.Name)
		}
		for name, v := range columnsOf(t, r) {
			ofEnvoys := strings.HasPrefix(name, "envoy_")
			ofSteelyard := strings.HasPrefix(name, "control_") || strings.HasSuffix(name, "pushes_per_second")
			missing := ofEnvoys && p.Direct || ofSteelyard && p.Control == nil
			if (v == nil) != missing {
				t.Errorf("%s: %s is %v, and is to be missing: %t", r.Policy, name, v, missing)
			}
		}
		if !(r.TTFTP50 >= 0.02) || !(r.TTFTP99 >= r.TTFTP50) || !(r.E2EP50 > r.TTFTP50) || !(r.TPOTP99 >= 0.015) {
			t.Errorf("%s: times that no engine has: %+v", r.Policy, r)
		}
		if p.Control != nil && !(r.Pushes > 0 && r.ControlRSS > 1<<20) {
			t.Errorf("%s: %v pushes/s, %v bytes", r.Policy, r.Pushes, r.ControlRSS)
		}
		for _, reference := range []string{"least_request", "fewest_in_flight", "least_work"} {
			if of := r.Of[reference]; !(of.TTFTP99 > 0 && of.TTFTMean > 0 && of.TPOTP99 > 0 && of.E2EP50 > 0) {
				t.Errorf("%s of %s: %+v", r.Policy, reference, of)
			}
		}
	}
	if busy := float64(d.MachineBusy); !(busy > 0 && busy <= 1) || d.Conditions.Envoy == "" {
		t.Errorf("machine busy for %v of the time, Envoy %q", busy, d.Conditions.Envoy)
	}
	var table bytes.Buffer
	if err := d.Write(&table); err != nil || strings.Count(table.String(), "steelyard") < 4 {
		t.Errorf("%v; the table is\n%s", err, table.String())
	}
	if err := d.WritePlot(filepath.Join(t.TempDir(), "llm.svg")); err != nil {
		t.Error(err)
	}
}

// columnsOf returns the keys of a row in the JSON with their values, nil for null.
func columnsOf(t *testing.T, row any) map[string]any {
	t.Helper()
	text, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTheTraceIsStretchedToTheLoad(t *testing.T) {
	o := Default()
	rate := o.rate()
	if rate < 53 || rate > 55 {
		t.Errorf("%.1f requests/s for load 0.8 of twelve engines, want about 54", rate)
	}
	n := len(o.Trace.Requests)
	all := o.completions(2*n, rate)
	if took := all[n].At.Seconds(); math.Abs(took*rate/float64(n)-1) > 1e-6 {
		t.Errorf("the trace takes %v s, want %v", took, float64(n)/rate)
	}
	if !slices.IsSortedFunc(all, func(a, b load.Completion) int { return int(a.At - b.At) }) {
		t.Error("the requests are out of order")
	}
	var bytes, tokens float64
	for _, c := range all {
		bytes, tokens = bytes+float64(c.Bytes), tokens+float64(c.Prompt)
	}
	if got := bytes / tokens; math.Abs(got-4.2) > 0.05 {
		t.Errorf("%.3f bytes a token, want 4.2", got)
	}
	o.From = 0.5
	middle := o.Trace.Requests[n/2]
	if c := o.completions(n, rate); c[0].At != 0 || c[0].Prompt != int(middle.Prompt) || c[n-1].At <= c[n-2].At {
		t.Errorf("from the middle the first one is %+v, the last ones at %v and %v", c[0], c[n-2].At, c[n-1].At)
	}
	o.Burst = 10
	if c := o.completions(n, rate); c[9].At != c[0].At || c[10].At == c[9].At || c[19].At != c[10].At {
		t.Errorf("ten at the same moment: %v, %v, %v, %v", c[0].At, c[9].At, c[10].At, c[19].At)
	}
	o.Mixed = true
	if got := o.rate() / rate; math.Abs(got-10.0/12) > 1e-9 {
		t.Errorf("with every third engine half as fast %v of the rate, want 10/12", got)
	}
}

func TestABenchThatMakesNoSenseIsRefused(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"0 Envoys":                 func(o *Options) { o.Envoys = 0 },
		"of 0 workers":             func(o *Options) { o.Workers = 0 },
		"load NaN":                 func(o *Options) { o.Load = math.NaN() },
		"from 1 of the trace":      func(o *Options) { o.From = 1 },
		"no rows":                  func(o *Options) { o.Policies = nil },
		`no row "other"`:           func(o *Options) { o.Policies = []string{"other"} },
		"steelyard is there twice": func(o *Options) { o.Policies = []string{"steelyard", "steelyard"} },
		"KV cache of 1000 tokens":  func(o *Options) { o.Engine.KVTokens = 1000 },
		"engines: sequences 0":     func(o *Options) { o.Engine.MaxSequences = 0 },
		"0 requests":               func(o *Options) { o.Requests = 0 },
		"warm-up of -1s":           func(o *Options) { o.WarmUp = -time.Second },
	} {
		o := Default()
		change(&o)
		if _, err := o.measureAll(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestOfRequestsThatFailTheFirstIsReportedWithItsCause(t *testing.T) {
	var m report.LLMMeasurement
	for _, s := range []load.Sample{
		{Arrival: load.Arrival{At: time.Second}, Status: 503},
		{Arrival: load.Arrival{At: 2 * time.Second}, Err: io.ErrUnexpectedEOF},
	} {
		take(&m, s)
	}
	if want := "status 503 (due at 1s)"; m.Errors != 2 || m.FirstError != want {
		t.Errorf("%d failed, the first with %q, want 2 and %q", m.Errors, m.FirstError, want)
	}
	var n report.LLMMeasurement
	take(&n, load.Sample{Arrival: load.Arrival{At: time.Minute}, Err: io.ErrUnexpectedEOF})
	if want := "unexpected EOF (due at 1m0s)"; n.FirstError != want {
		t.Errorf("failed with %q, want %q", n.FirstError, want)
	}
}

func TestTheBenchTakesTheTimeThatItPromises(t *testing.T) {
	// What it takes besides the requests that arrive, measured on two cores: the start of
	// 24 Envoys, and the last answers.
	const around = 75 * time.Second
	rate := func() float64 { o := Default(); return o.rate() }()
	for name, tt := range map[string]struct {
		o      Options
		atMost time.Duration
	}{"default": {Default(), 11 * time.Minute}, "quick": {Quick(), 160 * time.Second}} {
		took := around + tt.o.WarmUp + time.Duration(float64(tt.o.Requests)/rate*float64(time.Second))
		if took > tt.atMost {
			t.Errorf("%s takes %v, want at most %v", name, took, tt.atMost)
		}
	}
}

// TestConversationsFindWhatIsCached: bodies have the texts of the trace, and engines compute their beginnings once.
func TestConversationsFindWhatIsCached(t *testing.T) {
	o := short(t)
	o.Policies, o.Cached = []string{"steelyard+module+prefix"}, true
	o.converse(false)
	for i := range o.Trace.Requests {
		const blocks = 12
		o.Trace.Requests[i].Prompt = blocks*trace.BlockTokens + 1
		c := trace.Content{Ends: []int32{blocks - 2, blocks}}
		for k := range uint64(blocks) {
			c.Blocks = append(c.Blocks, k+100*uint64(i%2))
		}
		o.Trace.Contents = append(o.Trace.Contents, c)
	}
	d, err := o.measureAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r := d.Rows[0]; r.Errors != 0 || !(r.CachedShare > 0.5) {
		t.Errorf("%d errors, %v of the prompts cached, want most of them", r.Errors, r.CachedShare)
	}
}

// TestChatsThatShareBlocksBeginAlike, and their messages are as long as their blocks.
func TestChatsThatShareBlocksBeginAlike(t *testing.T) {
	first := chatOf([]uint64{1, 2, 3}, []int32{2, 3}, 7)
	second := chatOf([]uint64{1, 2, 3, 4, 5}, []int32{2, 2, 3, 5}, 7)
	if last := strings.LastIndex(first, `"}]}`); !strings.HasPrefix(second, first[:last]) {
		t.Errorf("%s\ndoes not begin as\n%s", second, first)
	}
	var body struct {
		Tokens   int `json:"max_tokens"`
		Messages []struct{ Content string }
	}
	if err := json.Unmarshal([]byte(second), &body); err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, m := range body.Messages {
		got = append(got, len(m.Content)/512)
	}
	if want := []int{2, 1, 2}; !slices.Equal(got, want) || body.Tokens != 7 {
		t.Errorf("messages of %v blocks, %d tokens to generate; want %v and 7", got, body.Tokens, want)
	}
}
