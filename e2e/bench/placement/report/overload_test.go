package report

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// overloaded returns a row of ten seconds of overload on two servers, with a second of
// calm on both sides: of ten requests a second five are served and five dropped.
func overloaded() Overloaded {
	o := Overloaded{Policy: "shedding", Title: "shedding", Capacity: 2, Seconds: 10, TargetWait: 1}
	for i := -10; i < 110; i++ {
		at := float64(i) / 10
		x := Outcome{At: at, Wait: math.NaN(), Service: math.NaN(), Latency: 0.001, Lateness: 0.002}
		if overload := i >= 0 && i < 100; overload && i%2 == 1 {
			x.Refused, x.Dropped = true, true
		} else {
			x.OK, x.Wait, x.Service, x.Latency = true, float64(i%10)/10, 0.4, 0.5
		}
		o.Outcomes = append(o.Outcomes, x)
	}
	for i := -5; i < 100; i++ { // a sample every 200 ms, and long after the last request
		t := DropSample{At: float64(i) / 5, Queue: 4}
		if i >= 0 && i < 50 {
			t.Drop = 0.5
		}
		o.DropSamples = append(o.DropSamples, t)
	}
	return o
}

func TestAnOverloadInFigures(t *testing.T) {
	o := overloaded()
	o.Outcomes[21].Dropped = false // a 503 of another cause: request 11, at 1.1 s
	r := o.Figures()
	tests := []struct {
		name      string
		got, want float64
	}{
		{"requests", float64(r.Requests), 100},
		{"accepted", float64(r.Accepted), 50},
		{"dropped", float64(r.Dropped), 49},
		{"errors", float64(r.Errors), 1},
		{"target wait", float64(r.TargetWait), 1},
		{"wait p50", float64(r.WaitP50), 0.4},
		{"wait p90", float64(r.WaitP90), 0.8},
		{"wait p99", float64(r.WaitP99), 0.8},
		{"settled p99", float64(r.SettledP99), 0.8},
		{"share dropped", float64(r.DropShare), 0.49},
		{"with header", float64(r.Headed), 0.98},
		{"latency of drops", float64(r.DropP99), 0.001},
		{"drops before", float64(r.DropsBefore), 0},
		{"released", float64(r.Released), 0},
		{"turns", float64(r.Turns), 1},
		{"lateness", float64(r.Lateness), 0.002},
	}
	for _, tt := range tests {
		if !near(tt.got, tt.want) {
			t.Errorf("%s is %v, want %v", tt.name, tt.got, tt.want)
		}
	}
	if len(r.Timeline) != 12 || r.Timeline[0].At != -1 || r.Timeline[11].At != 10 {
		t.Fatalf("a timeline of %d seconds: %+v; want 12 from -1 to 10", len(r.Timeline), r.Timeline)
	}
	third := r.Timeline[4]
	if third.At != 3 || !near(float64(third.Dropped), 0.5) || !near(float64(third.DropFraction), 0.5) ||
		!near(float64(third.WaitMax), 0.8) || !near(float64(third.Queue), 4) {
		t.Errorf("the fourth second is %+v", third)
	}
}

// Goodput is of the servers' time: work that was executed outside of the overload
// does not count, nor does work for which there was no answer.
func TestGoodputIsExecutedWorkThatWasAnswered(t *testing.T) {
	o := Overloaded{Capacity: 2, Seconds: 10, Outcomes: []Outcome{
		{At: -2, OK: true, Service: 3, Latency: 4},    // executed from -1 to 2
		{At: 1, OK: true, Service: 4, Latency: 6},     // from 3 to 7
		{At: 9, OK: true, Service: 5, Latency: 5.5},   // from 9.5 on
		{At: 1, OK: false, Service: 5, Latency: 5},    // no answer
		{At: 11, OK: true, Service: 1, Latency: 1},    // afterwards
		{At: -5, OK: true, Service: 1, Latency: 1.25}, // before
	}}
	if got, want := o.goodput(), (2+4+0.5)/20.; !near(got, want) {
		t.Errorf("goodput %v, want %v", got, want)
	}
}

func TestTurnsAreRisesThatFellAgain(t *testing.T) {
	tests := []struct {
		name    string
		samples []float64
		want    int
	}{
		{"never", []float64{0, 0, 0}, 0},
		{"up", []float64{0, 0.3, 0.6}, 0},
		{"up and down", []float64{0, 0.3, 0.6, 0.4, 0.1, 0}, 1},
		{"small waves", []float64{0, 0.5, 0.45, 0.5, 0.44, 0.52}, 0},
		{"flapping", []float64{0, 0.5, 0, 0.5, 0, 0.5}, 2},
	}
	for _, tt := range tests {
		var samples []DropSample
		for _, d := range tt.samples {
			samples = append(samples, DropSample{Drop: d})
		}
		if got := turns(samples); got != tt.want {
			t.Errorf("%s: %d turns, want %d", tt.name, got, tt.want)
		}
	}
}

func TestAnOverloadIsHeldToItsTargets(t *testing.T) {
	without := overloaded()
	without.Policy, without.TargetWait, without.DropSamples = "no_shedding", 0, nil
	d := NewOverloadDocument(Conditions{Lateness: 0.05}, 0.5, 2, 10,
		[]OverloadRow{overloaded().Figures(), without.Figures()})
	want := []struct {
		text     string
		measured float64
		holds    bool
	}{
		{"shedding: p99 of the wait of accepted requests", 0.8, true},
		{"shedding: goodput", 1.03, true},
		{"shedding: 503s with Envoy's header", 1, true},
		{"shedding: p99 of the latency of a drop", 0.001, true},
		{"shedding: drops before", 0, true},
	}
	if !d.Valid || len(d.Targets) != len(want) {
		t.Fatalf("valid %t, targets %v; want true and %d", d.Valid, d.Targets, len(want))
	}
	for i, w := range want {
		got := d.Targets[i]
		if !strings.HasPrefix(got.Text, w.text) || math.Abs(float64(got.Measured)-w.measured) > 0.02 ||
			got.Holds != w.holds {
			t.Errorf("target %d is %v, want %s %v, holds %t", i, got, w.text, w.measured, w.holds)
		}
	}
	var b bytes.Buffer
	if err := d.Write(&b); err != nil || !strings.Contains(b.String(), "Overload 2x for 10 s") ||
		!strings.Contains(b.String(), "at least 0.95") {
		t.Errorf("%v\n%s", err, b.String())
	}
	late := NewOverloadDocument(Conditions{Lateness: 0.001}, 0.5, 2, 10, d.Rows)
	if late.Valid || len(late.Reasons) != 2 {
		t.Errorf("2 ms of half a second are no result at a limit of 0.1 %%: %v", late.Reasons)
	}
	file := filepath.Join(t.TempDir(), "overload.json")
	if err := WriteJSON(file, d); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(file)
	var got struct{ Rows []map[string]any }
	if err := json.Unmarshal(text, &got); err != nil || len(got.Rows) != 2 || got.Rows[1]["target_wait"] != nil ||
		got.Rows[0]["goodput"] == nil {
		t.Errorf("%v: rows %v", err, got.Rows)
	}
}

func TestThePlotsOfOverloadAndKneeAreDrawn(t *testing.T) {
	dir := t.TempDir()
	d := NewOverloadDocument(Conditions{Lateness: 1}, 0.5, 2, 10, []OverloadRow{overloaded().Figures()})
	if err := d.WritePlot(filepath.Join(dir, "overload.svg")); err != nil {
		t.Fatal(err)
	}
	s := someSection(t, time.Second)
	sweeps := []Sweep{{Title: "min_interval", Policies: []string{"steelyard_access_log"}},
		{Title: "deadband", Policies: []string{"not run"}}}
	if err := WriteKnee(filepath.Join(dir, "knee.svg"), []Section{s}, sweeps); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"overload.svg": "shedding: refused", "knee.svg": "min_interval", "overload.png": "PNG", "knee.png": "PNG",
	} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s of %d bytes does not hold %q: %v", file, len(text), want, err)
		}
	}
}
