package simulate

import (
	"testing"
	"time"

	"steelyard/sim"
)

// TestABusyEnvoysLogGivesWayAsInTheDaemon: what is simulated of the signals is what
// Steelyard would ask these Envoys for.
func TestABusyEnvoysLogGivesWayAsInTheDaemon(t *testing.T) {
	tests := []struct {
		name      string
		perSecond float64
		shares    []float64
		source    sim.Source
		delay     time.Duration
	}{
		{"each entry at once", 1900, nil, sim.AccessLog, 0},
		{"in batches", 2100, nil, sim.AccessLog, batchDelay},
		{"load reports only", 5100, nil, sim.LoadReports, 0},
		{"most of the traffic is of one that reports", 1000, []float64{11, 1, 1, 1, 1, 1, 1, 1, 1, 1}, sim.LoadReports,
			0},
		{"most of it is of others", 1500, []float64{4, 1, 1, 1, 1, 1, 1, 1, 1, 1}, sim.AccessLog, 0},
	}
	for _, tt := range tests {
		f, err := newDeployment(someConfig, "llama")
		if err != nil {
			t.Fatal(err)
		}
		got := f.policy(sim.Scenario{Envoys: 10, Rate: tt.perSecond, EnvoyShares: tt.shares},
			sim.LeastRequest).Steelyard
		if got.Source != tt.source || got.SignalDelay != tt.delay {
			t.Errorf("%s: by %s with a delay of %v, want %s and %v", tt.name, got.Source, got.SignalDelay, tt.source,
				tt.delay)
		}
	}
}
