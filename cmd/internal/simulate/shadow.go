package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"steelyard/cmd/internal/table"
	"steelyard/controlplane/config"
	"steelyard/internal/api"
	"steelyard/sim"
)

// A Shadow is what was recorded of a cluster whose Envoys only report, and the same requests simulated, with the
// Envoys' own policy and with Steelyard's weights.
type Shadow struct {
	Cluster      string           `json:"cluster"`
	Began        api.Time         `json:"began"`
	Seconds      api.Number       `json:"seconds"`
	Requests     uint64           `json:"requests"`
	Policy       string           `json:"policy"` // of the Envoys
	Envoys       int              `json:"envoys"`
	NotSimulated string           `json:"not_simulated"` // why not; empty: it was
	Fitted       bool             `json:"fitted"`        // the speed of engines to the measured median
	Measured     ShadowTimes      `json:"measured"`
	Own          ShadowTimes      `json:"simulated_own"`
	Steelyard    ShadowTimes      `json:"simulated_steelyard"`
	Endpoints    []ShadowEndpoint `json:"endpoints"`
}

// ShadowTimes are the times to the last byte, in seconds.
type ShadowTimes struct {
	P50 api.Number `json:"p50"`
	P99 api.Number `json:"p99"`
}

// A ShadowEndpoint is an endpoint with the share of the requests that it got and would have got by the weights, and the
// requests there at once.
type ShadowEndpoint struct {
	api.ShadowEndpoint
	Share            float64    `json:"share"`
	ShareWeighted    api.Number `json:"share_weighted"`
	InFlightWeighted api.Number `json:"in_flight_weighted"`
}

// byLog is the row of Steelyard as it is by default.
const byLog = steelyardAt + "5ms"

// RunShadow simulates what was recorded. policy is that of the Envoys' own clusters.
func RunShadow(ctx context.Context, v *api.Shadow, policy string, progress io.Writer) (*Shadow, error) {
	if v.Began.IsZero() && v.Recording {
		return nil, fmt.Errorf("nothing is recorded of %s: Envoys report without following, and none of their "+
			"requests went to one of its endpoints. Look at where their own cluster sends them: behind the address "+
			"of a Service (ClusterIP) the Pods are not seen, so make it a headless one", v.Cluster)
	}
	if v.Began.IsZero() {
		return nil, fmt.Errorf("nothing is recorded of %s: no Envoy reports without following, or none did since "+
			"Steelyard started (steelyard bootstrap --attach --shadow)", v.Cluster)
	}
	out := &Shadow{Cluster: v.Cluster, Began: v.Began, Seconds: v.Seconds, Requests: v.Requests, Policy: policy,
		Envoys: len(v.Envoys), Measured: ShadowTimes{P50: v.AnswerP50, P99: v.AnswerP99}}
	for _, e := range v.Endpoints {
		out.Endpoints = append(out.Endpoints, ShadowEndpoint{ShadowEndpoint: e,
			Share: float64(e.Requests) / float64(max(1, v.Requests))})
	}
	known, recorded := sim.Policies(), recordedSlots
	if len(v.Service) == 0 {
		known, recorded = sim.EnginePolicies(), recordedEngines
	}
	s, err := recorded(v)
	if err == nil && v.Requests < fewestRecorded {
		err = fmt.Errorf("%d requests are few, and a p99 needs %d: wait", v.Requests, fewestRecorded)
	}
	if err != nil {
		out.NotSimulated = err.Error()
		return out, nil
	}
	policies, err := choose(known, []string{policy, byLog})
	if err != nil {
		return nil, err
	}
	return out, out.simulate(ctx, s, policies, progress)
}

// simulate fills in what follows from a scenario.
func (r *Shadow) simulate(ctx context.Context, s sim.Scenario, policies []sim.Policy, progress io.Writer) error {
	if s.Prompts != nil {
		r.Fitted = true
		if err := fit(ctx, &s, policies[0], r.Measured.P50.Or(0)); err != nil {
			return err
		}
	}
	o := Options{Err: progress}
	ran, err := o.run(ctx, s, policies)
	if err != nil {
		return err
	}
	times := func(r *sim.Result) ShadowTimes {
		if s.Prompts != nil {
			return ShadowTimes{P50: api.Num(r.EndToEnd.P50), P99: api.Num(r.EndToEnd.P99)}
		}
		mean := s.Service.Mean.Seconds()
		return ShadowTimes{P50: api.Num(r.Latency.P50 * mean), P99: api.Num(r.Latency.P99 * mean)}
	}
	weighted := &ran.results[1]
	r.Own, r.Steelyard = times(&ran.results[0]), times(weighted)
	for i := range r.Endpoints {
		r.Endpoints[i].ShareWeighted = api.Num(float64(weighted.Placed[i]) / float64(max(1, weighted.Requests)))
		r.Endpoints[i].InFlightWeighted = api.Num(weighted.Loads[i])
	}
	return nil
}

// fewestRecorded is how many requests a p99 needs.
const fewestRecorded = 1000

// recordedSlots is the scenario of what was recorded of endpoints with slots: its arrivals, by ten seconds; Envoys with
// their shares; slots and speed of each endpoint; and the measured times of service. A request is not slower in a full
// endpoint.
func recordedSlots(v *api.Shadow) (s sim.Scenario, err error) {
	seconds := v.Seconds.Or(0)
	s = sim.Scenario{Name: v.Cluster, Seed: 1, Duration: time.Duration(seconds * float64(time.Second)),
		Envoys: len(v.Envoys), EnvoyShares: envoyShares(v), Rate: float64(v.Requests) / seconds}
	s.WarmUp = min(30*time.Second, s.Duration/longestWarmUp)
	for i, n := range v.Arrivals {
		if at := time.Duration(i) * arrivalStep; at+arrivalStep <= s.Duration {
			factor := max(0.01, float64(n)/arrivalStep.Seconds()/s.Rate)
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

// arrivalStep is the time between two of Shadow.Arrivals.
const arrivalStep = 10 * time.Second

func envoyShares(v *api.Shadow) (shares []float64) {
	for _, e := range v.Envoys {
		shares = append(shares, float64(e.Requests))
	}
	return shares
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
		return errors.New("no endpoint has a known time of service")
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

// trusted is how far a simulation may be from what was measured before its difference is in doubt.
const trusted = 0.25

// Print prints the result for people.
func (r *Shadow) Print(w io.Writer) {
	length := time.Duration(r.Seconds.Or(0) * float64(time.Second)).Round(time.Second)
	fmt.Fprintf(w, "%s: %d requests in %s from %s, of %s to %s, without weights\n\n", table.Printable(r.Cluster),
		r.Requests, config.DurationText(length), r.Began.UTC().Format("2006-01-02 15:04:05Z"),
		table.Count(r.Envoys, "Envoy"), table.Count(len(r.Endpoints), "endpoint"))
	r.printTimes(w)
	fmt.Fprintln(w)
	r.printEndpoints(w)
	fmt.Fprint(w, "\nSHARE of the requests, OPEN (there at once) and P99 are measured; CAP% is the part of the pool's "+
		"capacity now.\n")
	if r.NotSimulated != "" {
		return
	}
	with := "slots and times of service;"
	if r.Fitted {
		with = "mean tokens and relative speeds, and with a speed of all engines " +
			"by which its P50 is the measured one;\n"
	}
	fmt.Fprintf(w, "WEIGHTED is the number left of it with Steelyard's weights. Simulated with the measured arrivals, "+
		"Envoys,\n%s without failures, retries and restarts.\n", with)
}

func (r *Shadow) printTimes(w io.Writer) {
	t := table.New("TIME TO THE LAST BYTE", ">P50", ">P99", "")
	row := func(name string, v ShadowTimes, to string, base ShadowTimes) {
		note := ""
		if to != "" {
			note = fmt.Sprintf("p99 %+.0f %% to %s", 100*(v.P99.Or(0)/base.P99.Or(math.NaN())-1), to)
		}
		t.Add(name, inSeconds(v.P50), inSeconds(v.P99), note)
	}
	row("measured", r.Measured, "", r.Measured)
	if r.NotSimulated == "" {
		row("simulated: "+r.Policy, r.Own, "measured", r.Measured)
		row("simulated: Steelyard", r.Steelyard, r.Policy, r.Own)
	}
	t.Write(w, 0)
	switch off := r.Own.P99.Or(0)/r.Measured.P99.Or(math.NaN()) - 1; {
	case r.NotSimulated != "":
		fmt.Fprintf(w, "\nNot simulated: %s.\n", r.NotSimulated)
	case !(math.Abs(off) <= trusted):
		fmt.Fprint(w, "\nThe simulation of what happens now is far from what was measured, so do not rely on the "+
			"difference that\nSteelyard makes in it. Have your Envoys the policy of --envoy-policy?\n")
	}
}

func (r *Shadow) printEndpoints(w io.Writer) {
	head := []string{"ENDPOINT", ">SLOTS", ">SERVICE", ">CAP%", ">P99", ">SHARE", ">OPEN"}
	if r.NotSimulated == "" {
		head = []string{"ENDPOINT", ">SLOTS", ">SERVICE", ">CAP%", ">P99", ">SHARE", ">WEIGHTED", ">OPEN", ">WEIGHTED"}
	}
	t := table.New(head...)
	for i := range r.Endpoints {
		e := &r.Endpoints[i]
		cells := []string{table.Printable(cmp.Or(e.Pod, e.Address)), numberOf(e.Slots), inSeconds(e.ServiceSeconds),
			percentOf(e.CapacityShare), inSeconds(e.AnswerP99), percentOf(api.Num(e.Share))}
		if r.NotSimulated == "" {
			cells = append(cells, percentOf(e.ShareWeighted), numberOf(e.InFlight), numberOf(e.InFlightWeighted))
		} else {
			cells = append(cells, numberOf(e.InFlight))
		}
		t.Add(cells...)
	}
	t.Write(w, 0)
}

func numberOf(n api.Number) string {
	if v, known := n.Value(); known {
		return table.Number(v)
	}
	return nothing
}

func inSeconds(n api.Number) string {
	if v, known := n.Value(); known {
		return table.Number(v) + " s"
	}
	return nothing
}

func percentOf(n api.Number) string {
	if v, known := n.Value(); known {
		return fmt.Sprintf("%.1f %%", 100*v)
	}
	return nothing
}
