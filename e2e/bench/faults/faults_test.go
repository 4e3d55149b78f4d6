package main

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/bench/placement/report"
	"steelyard/e2e/rig/load"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var began = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// each returns arrivals from one time to another, so many a second.
func each(from, to, perSecond float64) []time.Time {
	var all []time.Time
	for at := from; at < to; at += 1 / perSecond {
		all = append(all, began.Add(time.Duration(at*float64(time.Second))))
	}
	return all
}

func TestAServerIsLeftWhenItGetsNoMoreThanTries(t *testing.T) {
	o := defaults() // 8 requests a second are fair
	if o.fair() != 8 {
		t.Fatalf("a fair share is %v", o.fair())
	}
	for name, c := range map[string]struct {
		seen []time.Time
		want float64
	}{
		"nothing comes":                   {nil, 0},
		"it is left after three":          {each(-10, 3, 8), 2.875}, // at the last of them
		"tries do not count":              {append(each(-10, 3, 8), each(5, 60, 0.4)...), 2.875},
		"it comes back after an ejection": {append(each(-10, 3, 8), each(33, 35, 8)...), 34.875},
		"it is never left":                {each(-10, 60, 8), math.NaN()},
	} {
		t.Run(name, func(t *testing.T) {
			if got := o.until(c.seen, began); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
				t.Errorf("until %v, want %v", got, c.want)
			}
		})
	}
}

func TestOnlyRequestsAfterTheFaultAreJudged(t *testing.T) {
	o := defaults()
	at := func(seconds float64, status int) load.Sample {
		return load.Sample{Arrival: load.Arrival{At: time.Duration(seconds * float64(time.Second))}, Status: status,
			Latency: time.Second}
	}
	r := load.Result{Start: began.Add(-10 * time.Second), Samples: []load.Sample{
		at(1, 500), at(9, 200), at(11, 200), at(12, 503), at(13, 0),
	}}
	got := o.judge(r, each(-10, 30, 8), began)
	want := cell{Until: report.Number(29.875), Lost: 2, Requests: 3, Share: 0.5, Latency: 1}
	if got != want {
		t.Errorf("judged %+v, want %+v", got, want)
	}
}

func TestTheTableHasTheMedianAndTheSpread(t *testing.T) {
	d := document{Servers: 8}
	rows := []fleet.Policy{{Name: "a", Title: "A"}}
	for _, c := range []cell{{Until: 3, Lost: 1}, {Until: 5, Lost: 1}, {Until: report.Number(math.NaN()), Lost: 1}} {
		d.add(fault{name: "hang", title: "hangs"}, rows, []cell{c})
	}
	d.add(fault{name: "dead_page", title: "has no page", serves: true}, rows, []cell{{Share: 0.97}})
	var b bytes.Buffer
	if err := d.Write(&b); err != nil {
		t.Fatal(err)
	}
	want := "| one server of 8 | A |\n|---|---|\n| hangs | 5.0 s (3.0 s to never), 1 lost |\n" +
		"| has no page | keeps 0.97 of its share, 0 lost |\n"
	if b.String() != want {
		t.Errorf("table\n%s\nwant\n%s", &b, want)
	}
}

func TestABenchThatMakesNoSenseIsRefused(t *testing.T) {
	for want, change := range map[string]func(*options){
		"there is no fault": func(o *options) { o.faults = []string{"fire"} },
		"two servers":       func(o *options) { o.servers = 1 },
		"at least 10s":      func(o *options) { o.length = time.Second },
		"there is no row":   func(o *options) { o.policies = []string{"luck"} },
	} {
		o := defaults()
		o.log = io.Discard
		change(&o)
		if _, err := o.run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}

// TestTheBenchMeasuresFaultsOnRealEnvoys: one of each kind, for a short time.
func TestTheBenchMeasuresFaultsOnRealEnvoys(t *testing.T) {
	for _, name := range []string{"hang", "fast_5xx", "restarts", "stuck_page"} {
		t.Run(name, func(t *testing.T) {
			f, err := faultOf(name)
			if err != nil {
				t.Fatal(err)
			}
			t.Parallel()
			o := defaults()
			o.policies, o.faults = []string{"steelyard_access_log"}, []string{f.name}
			o.runs, o.envoys, o.servers = 1, 1, 3
			o.warmUp, o.length, o.drain = 3*time.Second, 15*time.Second, 2*time.Second
			o.log, o.place.Dir = io.Discard, t.TempDir()
			d, err := o.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c := d.Faults[0].Rows[0].Runs[0]
			if c.Requests < 250 || !(c.Latency > 0) {
				t.Errorf("%+v, want the requests of 15 s and their latency", c)
			}
			if f.serves && (c.Lost > 0 || c.Share < 0.3) {
				t.Errorf("%+v, want a server that goes on serving", c)
			}
			if !f.serves && c.Share > 0.8 {
				t.Errorf("%+v, want a server that is left", c)
			}
		})
	}
}
