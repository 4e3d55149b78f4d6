package simulate

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"steelyard/cmd/internal/table"
	"steelyard/internal/api"
	"steelyard/sim"
)

// A Shadow is what was recorded of a cluster whose Envoys only report, and the same requests simulated, with the
// Envoys' own policy and with Steelyard's weights.
type Shadow struct {
	Cluster   string           `json:"cluster"`
	Began     api.Time         `json:"began"`
	Seconds   float64          `json:"seconds"`
	Requests  uint64           `json:"requests"`
	Policy    string           `json:"policy"` // of the Envoys
	Envoys    int              `json:"envoys"`
	Measured  ShadowTimes      `json:"measured"`
	Own       ShadowTimes      `json:"simulated_own"`
	Steelyard ShadowTimes      `json:"simulated_steelyard"`
	Endpoints []ShadowEndpoint `json:"endpoints"`
}

// ShadowTimes are the times to the last byte, in seconds.
type ShadowTimes struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// A ShadowEndpoint is what an endpoint got, and what it would have got by the weights.
type ShadowEndpoint struct {
	Address          string     `json:"address"`
	Slots            float64    `json:"slots"`
	ServiceSeconds   api.Number `json:"service_seconds"`
	Share            float64    `json:"share"`
	ShareWeighted    float64    `json:"share_weighted"`
	InFlight         float64    `json:"in_flight"`
	InFlightWeighted float64    `json:"in_flight_weighted"`
	AnswerP99        api.Number `json:"answer_p99"`
}

// byLog is the row of Steelyard as it is by default.
const byLog = steelyardAt + "5ms"

// RunShadow simulates what was recorded. policy is that of the Envoys' own clusters.
func RunShadow(ctx context.Context, v *api.Shadow, policy string, progress io.Writer) (*Shadow, error) {
	policies, err := choose(sim.Policies(), []string{policy, byLog})
	if err != nil {
		return nil, err
	}
	s, err := recorded(v)
	if err != nil {
		return nil, err
	}
	o := Options{Err: progress}
	r, err := o.run(ctx, s, policies)
	if err != nil {
		return nil, err
	}
	own, weighted := &r.results[0], &r.results[1]
	times := func(r *sim.Result) ShadowTimes {
		mean := s.Service.Mean.Seconds()
		return ShadowTimes{P50: r.Latency.P50 * mean, P99: r.Latency.P99 * mean}
	}
	out := &Shadow{Cluster: v.Cluster, Began: v.Began, Seconds: v.Seconds.Or(0), Requests: v.Requests, Policy: policy,
		Envoys: len(v.Envoys), Own: times(own), Steelyard: times(weighted),
		Measured: ShadowTimes{P50: v.AnswerP50.Or(math.NaN()), P99: v.AnswerP99.Or(math.NaN())}}
	for i := range v.Endpoints {
		e := &v.Endpoints[i]
		out.Endpoints = append(out.Endpoints, ShadowEndpoint{
			Address: e.Address, Slots: e.Slots.Or(0), ServiceSeconds: e.ServiceSeconds, AnswerP99: e.AnswerP99,
			Share: float64(e.Requests) / float64(v.Requests), InFlight: e.InFlight.Or(0),
			ShareWeighted:    float64(weighted.Placed[i]) / float64(max(1, weighted.Requests)),
			InFlightWeighted: weighted.Loads[i],
		})
	}
	return out, nil
}

// fewestRecorded is how many requests a p99 needs.
const fewestRecorded = 1000

// recorded is the scenario of what was recorded: its arrivals, by ten seconds; Envoys with their shares; slots and
// speed of each endpoint; and the measured times of service. A request is not slower in a full endpoint.
func recorded(v *api.Shadow) (s sim.Scenario, err error) {
	seconds := v.Seconds.Or(0)
	switch {
	case v.Began.IsZero():
		return s, fmt.Errorf("nothing is recorded of %s: no Envoy reports without following, or none since Steelyard "+
			"started (steelyard bootstrap --attach --shadow)", v.Cluster)
	case v.Requests < fewestRecorded:
		return s, fmt.Errorf("%d requests of %s are recorded, and a p99 needs %d: wait", v.Requests, v.Cluster,
			fewestRecorded)
	case len(v.Service) == 0:
		return s, fmt.Errorf("no endpoint of %s has known slots and answers, and only requests to slots are "+
			"simulated: set capacity, or simulate engines that batch with --scenario llm", v.Cluster)
	}
	s = sim.Scenario{Name: v.Cluster, Seed: 1, Duration: time.Duration(seconds * float64(time.Second)),
		Envoys: len(v.Envoys), Rate: float64(v.Requests) / seconds}
	s.WarmUp = min(30*time.Second, s.Duration/longestWarmUp)
	for _, e := range v.Envoys {
		s.EnvoyShares = append(s.EnvoyShares, float64(e.Requests))
	}
	const step = 10 * time.Second // of Arrivals
	for i, n := range v.Arrivals {
		if at := time.Duration(i) * step; at+step <= s.Duration {
			factor := max(0.01, float64(n)/step.Seconds()/s.Rate)
			s.Events = append(s.Events, sim.Event{At: at, Kind: sim.FlashCrowd, Factor: factor})
		}
	}
	var mean float64 // of the measured times, which are in parts of their own
	for _, q := range v.Service {
		s.Measured = append(s.Measured, q.Or(1))
		mean += q.Or(1) / float64(len(v.Service))
	}
	for i := range s.Measured {
		s.Measured[i] /= mean
	}
	return s, recordedPods(&s, v)
}

// recordedPods sets the mean time of service to that of the requests, and the speed of each endpoint to match its own.
func recordedPods(s *sim.Scenario, v *api.Shadow) error {
	var sum, of float64
	for i := range v.Endpoints {
		if t, known := v.Endpoints[i].ServiceSeconds.Value(); known && t > 0 {
			sum += t * float64(v.Endpoints[i].Requests)
			of += float64(v.Endpoints[i].Requests)
		}
	}
	if of == 0 {
		return fmt.Errorf("no endpoint of %s has a known time of service", v.Cluster)
	}
	s.Service.Mean = time.Duration(sum / of * float64(time.Second))
	for i := range v.Endpoints {
		e := &v.Endpoints[i]
		slots, known := e.Slots.Value()
		if !known {
			return fmt.Errorf("the slots of %s are not known: set capacity", e.Address)
		}
		speed := 1.0 // of one without answers
		if t := e.ServiceSeconds.Or(0); t > 0 {
			speed = sum / of / t
		}
		s.Pods = append(s.Pods, sim.PodGroup{Count: 1, Slots: max(1, int(math.Round(slots))), Speed: speed})
	}
	return s.Check()
}

// trusted is how far a simulation may be from what was measured for its difference to be believed.
const trusted = 0.25

// Print prints the result for people.
func (r *Shadow) Print(w io.Writer) {
	length := time.Duration(r.Seconds * float64(time.Second)).Round(time.Second)
	fmt.Fprintf(w, "%s: %d requests in %s from %s, of %s to %s, by %s, without weights\n\n", table.Printable(r.Cluster),
		r.Requests, length, r.Began.UTC().Format("2006-01-02 15:04:05Z"), table.Count(r.Envoys, "Envoy"),
		table.Count(len(r.Endpoints), "endpoint"), r.Policy)
	t := table.New("TIME TO THE LAST BYTE", ">P50", ">P99", "")
	row := func(name string, v ShadowTimes, note string) { t.Add(name, inSeconds(v.P50), inSeconds(v.P99), note) }
	off := r.Own.P99/r.Measured.P99 - 1
	row("measured", r.Measured, "")
	row("simulated: "+r.Policy, r.Own, fmt.Sprintf("p99 %+.0f %% to measured", 100*off))
	row("simulated: Steelyard", r.Steelyard, fmt.Sprintf("p99 %+.0f %% to %s", 100*(r.Steelyard.P99/r.Own.P99-1),
		r.Policy))
	t.Write(w, 0)
	if !(math.Abs(off) <= trusted) {
		fmt.Fprintf(w, "\nThe simulation of what happens now is far from what was measured, so do not rely on the "+
			"difference that Steelyard makes in it. Is --envoy-policy that of your Envoys?\n")
	}
	fmt.Fprintln(w)
	t = table.New("ENDPOINT", ">SLOTS", ">SERVICE", ">SHARE", ">WEIGHTED", ">OPEN", ">WEIGHTED", ">P99")
	for i := range r.Endpoints {
		e := &r.Endpoints[i]
		t.Add(table.Printable(e.Address), table.Number(e.Slots), inSeconds(e.ServiceSeconds.Or(math.NaN())),
			percentOf(e.Share), percentOf(e.ShareWeighted), table.Number(e.InFlight), table.Number(e.InFlightWeighted),
			inSeconds(e.AnswerP99.Or(math.NaN())))
	}
	t.Write(w, 0)
	fmt.Fprintf(w, "\nSHARE, OPEN (requests there at once) and P99 are measured; WEIGHTED is the number left of it, as "+
		"simulated with Steelyard.\nSimulated with the measured arrivals, Envoys, slots and times of service; without "+
		"failures, retries and restarts.\n")
}

func inSeconds(v float64) string {
	if math.IsNaN(v) {
		return nothing
	}
	return table.Number(v) + " s"
}

func percentOf(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
