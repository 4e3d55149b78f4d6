package modelsim

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

// orca reads a report as its reader does.
func orca(t *testing.T, header string) map[string]float64 {
	t.Helper()
	text, ok := strings.CutPrefix(header, "TEXT ")
	if !ok {
		t.Fatalf("report %q does not begin with its format, TEXT", header)
	}
	out := make(map[string]float64)
	for pair := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(pair, "=")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("report %q: %v", header, err)
		}
		out[key] = v
	}
	return out
}

func TestUsageAveragesWithForgetting(t *testing.T) {
	u := usage{window: 100 * time.Second}
	at := time.Unix(0, 0)
	u.advance(at, 0, 0)
	// One of two slots is busy, three requests wait, and each second one
	// request ends, every fourth of them with a failure.
	for i := range 1000 {
		at = at.Add(time.Second)
		u.advance(at, 1, 3)
		u.count(i%4 == 0)
	}
	tests := []struct {
		kind ORCA
		want map[string]float64
	}{
		{ORCASlots, map[string]float64{"cpu_utilization": 0.5, "rps_fractional": 1000, "eps": 250}},
		{ORCAQueue, map[string]float64{"cpu_utilization": 0.5, "application_utilization": 2, "rps_fractional": 1000,
			"eps": 250}},
	}
	for _, tt := range tests {
		t.Run(string(tt.kind), func(t *testing.T) {
			got := orca(t, u.header(2, tt.kind))
			if len(got) != len(tt.want) {
				t.Errorf("report %v, want the keys of %v", got, tt.want)
			}
			for key, want := range tt.want {
				if math.Abs(got[key]-want) > 0.06*want { // a completion just now weighs a little more
					t.Errorf("%s is %v, want %v", key, got[key], want)
				}
			}
		})
	}
	u.advance(at.Add(1000*time.Second), 0, 0)
	if got := orca(t, u.header(2, ORCAQueue)); got["cpu_utilization"] > 0.001 || got["rps_fractional"] > 1 ||
		got["application_utilization"] > 0.001 {
		t.Errorf("after ten windows of idleness it still says %v", got)
	}
}

func TestAnswersCarryALoadReportWhenAsked(t *testing.T) {
	for _, kind := range []ORCA{ORCANone, ORCASlots, ORCAQueue} {
		t.Run("kind "+string(kind), func(t *testing.T) {
			s := start(t, Options{ORCA: kind, ORCAWindow: 100 * time.Millisecond})
			var header string
			for range 3 {
				resp, err := infer(t.Context(), s, "0.05")
				if err != nil {
					t.Fatal(err)
				}
				header = resp.Header.Get("endpoint-load-metrics")
			}
			if kind == ORCANone {
				if header != "" {
					t.Errorf("a report that nobody asked for: %q", header)
				}
				return
			}
			if got := orca(t, header); !(got["cpu_utilization"] > 0.1) || !(got["rps_fractional"] > 1000) {
				t.Errorf("after three requests in a row the report is %v, want a busy server", got)
			}
		})
	}
	if _, err := Start(Options{ORCA: "other"}); err == nil {
		t.Error("a kind of report that there is not was accepted")
	}
}
