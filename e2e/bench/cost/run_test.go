package main

import (
	"testing"
	"time"

	"steelyard/e2e/rig/proc"
)

// TestTheRealProcessIsMeasured runs a small setting of each kind. It holds the bench to
// measure at all, not the process to be fast.
func TestTheRealProcessIsMeasured(t *testing.T) {
	binary, err := proc.BuildSteelyard()
	if err != nil {
		t.Fatal(err)
	}
	r := run{binary: binary, warmUp: time.Second, window: 2500 * time.Millisecond}
	for _, s := range []Setting{
		{Name: "moving", Endpoints: 8, Streams: 2},
		{Name: "resting", Endpoints: 8, Streams: 3, Changes: true},
	} {
		t.Run(s.Name, func(t *testing.T) {
			row, err := r.measure(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if row.Seconds < r.window.Seconds() || row.Cores <= 0 || row.BenchCores <= 0 || row.RSS <= 0 ||
				row.Scrapes <= 0 || row.Steps <= 0 || row.Lateness.N == 0 {
				t.Errorf("%+v", row)
			}
			if !s.Changes {
				return
			}
			if a := row.Acks; a.Changes == 0 || a.Missing != 0 || a.All.N != a.Changes*s.Streams ||
				a.Last.N != a.Changes || a.Scraped.N != a.Changes || row.ACKs <= 0 {
				t.Errorf("%+v", a)
			}
		})
	}
}
