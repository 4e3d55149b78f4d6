package main

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/bench/placement/report"
	"steelyard/e2e/rig/load"
)

// TestAShortBenchOfWaitingAndKills has a queue, and a row whose parts are killed. Its shares say nothing.
func TestAShortBenchOfWaitingAndKills(t *testing.T) {
	place := fleet.Place{Dir: t.TempDir()}
	w := Waiting{Envoys: 2, Servers: 2, Service: 50 * time.Millisecond, Load: 2, WarmUp: 500 * time.Millisecond,
		Count: 2 * time.Second, Weights: []float64{2, 1}}
	d := &waitingDocument{}
	var err error
	if d.Classes, d.Failed, err = w.run(t.Context(), place, 1); err != nil {
		t.Fatal(err)
	}
	for _, c := range d.Classes {
		if !(c.Sent > 0 && c.Share > 0 && c.Share < 1 && c.Gap > 0 && c.Wait > 0) {
			t.Errorf("%+v", c)
		}
	}
	k := defaultKilling()
	k.Away, k.Rest = time.Second, time.Second
	got, err := k.run(t.Context(), place, killRows()[2], 1)
	if err != nil {
		t.Fatal(err)
	}
	if d.Kills = append(d.Kills, got); got.Requests < 100 || got.Failed+got.Crashes+got.Left+d.Failed > 0 {
		t.Errorf("%d of those that waited failed; of the kills %+v", d.Failed, got)
	}
	d.Targets = d.targets()
	var table bytes.Buffer
	if err := d.Write(&table); err != nil || !strings.Contains(table.String(), "class-2") {
		t.Errorf("error %v in\n%s", err, table.String())
	}
}

func TestWhatAClassGotIsCounted(t *testing.T) {
	w := Waiting{Weights: []float64{3, 1}}
	got := w.classes([]queued{{0, 1, 5}, {1, 1, 5.5}, {0, 2.5, 6}, {0, 2, 8}, {0, 1.5, 8.25}})
	want := []class{{Name: "class-1", Weight: 3, Sent: 4, Share: 0.8, Wanted: 0.75, Gap: 2, Younger: 1,
		Overtaken: 1, Wait: 6},
		{Name: "class-2", Weight: 1, Sent: 1, Share: 0.2, Wanted: 0.25, Wait: 4.5}}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("class %d got %+v, want %+v", i, got[i], want[i])
		}
	}
	d := &waitingDocument{Classes: got, Failed: 1, Kills: []killed{{Policy: "module", Requests: 9, Failed: 2}}}
	d.Conditions.Seconds = 6
	held := map[string]bool{}
	for _, target := range d.targets() {
		held[target.Text] = target.Holds
	}
	for text, holds := range map[string]bool{
		"class-1: its share is off by, of the share":            false,
		"class-1: longest time without a request sent, seconds": false,
		"class-1: a younger request went first, by, seconds":    false,
		"class-2: a younger request went first, by, seconds":    true,
		"class-2: too few were sent":                            false,
		"requests that failed while others waited":              false,
		"module: failed, not on a killed part":                  false,
		"module: Envoys that crashed":                           true,
		"module: requests counted after all ended":              true,
	} {
		if now, known := held[text]; !known || now != holds {
			t.Errorf("%s: known %v, holds %v", text, known, now)
		}
	}
	for share, holds := range map[report.Number]bool{0.75 * 1.049: true, 0.75 * 1.051: false, 0.75 * 0.949: false} {
		d.Classes[0].Share = share
		if got := d.targets()[0].Holds; got != holds {
			t.Errorf("the share %v of the 0.75 that are wanted: holds %v", share, got)
		}
	}
}

func TestAFailureIsExplainedByTheDeathOfWhereItWas(t *testing.T) {
	start := time.Now()
	after := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	deaths := []death{{after(10), -1}, {after(20), 2}}
	sample := func(sent, ended float64, envoy, status int, err error) load.Sample {
		at := after(sent).Sub(start)
		return load.Sample{Arrival: load.Arrival{At: at, Target: envoy}, Latency: after(ended).Sub(start) - at,
			Status: status, Err: err}
	}
	reset := errors.New("reset")
	got := judgeDeaths(load.Result{Start: start, Requests: 9, Samples: []load.Sample{
		sample(9, 11, 0, http.StatusOK, nil),
		sample(9, 10.01, 0, http.StatusServiceUnavailable, nil), // on the server
		sample(9, 9.9, 0, http.StatusServiceUnavailable, nil),   // before its death
		sample(10.1, 10.2, 0, 0, reset),                         // after it
		sample(19, 20.01, 2, 0, reset),                          // on the Envoy
		sample(19, 20.01, 1, 0, reset),                          // on another one
	}}, deaths)
	if want := (killed{Requests: 9, OnServer: 1, OnEnvoy: 1, Failed: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
