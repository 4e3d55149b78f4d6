package matrix_test

import (
	"fmt"
	"slices"
	"time"

	"steelyard/sim"
	"steelyard/sim/engine"
	"steelyard/sim/trace"
)

// matrix is every combination of service time, slots, load, speeds and shares of
// the Envoys in which least request must not win. Each has about as many requests
// as its tail needs.
func matrix() []sim.Scenario {
	const envoys, pods = 10, 20
	var all []sim.Scenario
	for _, mean := range []time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 5 * time.Second} {
		for _, slots := range []int{1, 4, 16} {
			for _, load := range []float64{0.5, 0.8, 0.95} {
				for _, slow := range []int{0, pods / 4} {
					for _, big := range []bool{false, true} {
						all = append(all, cell(envoys, pods, mean, slots, load, slow, big))
					}
				}
			}
		}
	}
	return all
}

// cell is one scenario of the matrix.
func cell(envoys, pods int, mean time.Duration, slots int, load float64, slow int, big bool) sim.Scenario {
	const counted, warm = 20_000, 2_000 // requests
	s := sim.Scenario{
		Name: fmt.Sprintf("service=%v slots=%d load=%v", mean, slots, load), Seed: 1,
		Envoys: envoys, Pods: []sim.PodGroup{{Count: pods - slow, Slots: slots}}, Load: load,
		Service: sim.Service{Kind: sim.Exponential, Mean: mean},
	}
	if slow > 0 {
		s.Name += " slow"
		s.Pods = append(s.Pods, sim.PodGroup{Count: slow, Slots: slots, Speed: 1.0 / 3})
	}
	if big {
		s.Name += " big"
		s.EnvoyShares = oneBig(envoys)
	}
	rate := s.ArrivalRate()
	span := func(requests float64) time.Duration {
		return max(40*mean, time.Duration(requests/rate*float64(time.Second))).Round(time.Second)
	}
	s.WarmUp = max(20*time.Second, span(warm))
	s.Duration = s.WarmUp + span(counted)
	return s
}

// engineMatrix is the counterpart of matrix for engines that batch continuously: every combination of load,
// speeds and shares of the Envoys, with the built-in trace.
func engineMatrix() []sim.Scenario {
	const envoys, count = 6, 12
	constants := engine.Defaults()
	var all []sim.Scenario
	for _, load := range []float64{0.5, 0.8, 0.95} {
		for _, slow := range []int{0, count / 3} {
			for _, big := range []bool{false, true} {
				group := sim.PodGroup{Count: count - slow, Engine: &constants}
				s := sim.Scenario{
					Name: fmt.Sprintf("engines load=%v", load), Seed: 1, Duration: 5 * time.Minute, WarmUp: time.Minute,
					Envoys: envoys, Pods: []sim.PodGroup{group}, Load: load,
					Prompts: &sim.Prompts{Trace: trace.Azure()},
				}
				if slow > 0 {
					s.Name += " slow"
					group.Count, group.Speed = slow, 0.5
					s.Pods = append(s.Pods, group)
				}
				if big {
					s.Name += " big"
					s.EnvoyShares = oneBig(envoys)
				}
				all = append(all, s)
			}
		}
	}
	return all
}

// oneBig gives the first Envoy half of the traffic.
func oneBig(envoys int) []float64 {
	shares := slices.Repeat([]float64{1}, envoys)
	shares[0] = float64(envoys - 1)
	return shares
}
