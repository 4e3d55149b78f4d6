package simulate

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"steelyard/internal/api"
	"steelyard/sim"
	"steelyard/sim/engine"
	"steelyard/sim/trace"
)

// What an engine that batches does is emulated, and how fast it is, is fitted: all times of the emulated engine are
// divided by one number, so that the median time to the last byte under the Envoys' own policy is the measured one. The
// 99th percentile is not fitted, so it shows how good that is.
const (
	fittedIn  = 10 * time.Minute // of the recording
	fastest   = 32.0             // and slowest: times as fast as the emulated engine
	bisection = 8                // steps, to 3 %
)

// recordedEngines is the scenario of what was recorded of engines that batch. Prompts and answers are as long as in the
// built-in trace, times what makes their means those of the cluster.
func recordedEngines(v *api.Shadow) (s sim.Scenario, err error) {
	prompt, known := v.PromptTokens.Value()
	output, alsoKnown := v.OutputTokens.Value()
	if !known || !alsoKnown {
		return s, errors.New("no endpoint has known slots and answers, and no engine counts tokens: set capacity")
	}
	requests := recordedTrace(v, prompt, output)
	if len(requests.Requests) < fewestRecorded/2 {
		return s, errors.New("the arrivals are not known")
	}
	seconds := v.Seconds.Or(0)
	s = sim.Scenario{Name: v.Cluster, Seed: 1, Duration: time.Duration(seconds * float64(time.Second)),
		Envoys: len(v.Envoys), EnvoyShares: envoyShares(v), Rate: 1 / requests.Gap().Seconds(),
		Prompts: &sim.Prompts{Trace: requests}}
	s.WarmUp = min(30*time.Second, s.Duration/longestWarmUp)
	for i := range v.Endpoints {
		params := engine.Defaults()
		s.Pods = append(s.Pods, sim.PodGroup{Count: 1, Engine: &params,
			Speed: max(0.01, v.Endpoints[i].RelativeSpeed.Or(1))})
	}
	return s, s.Check()
}

// recordedTrace has the arrivals of a recording, at random within each step.
func recordedTrace(v *api.Shadow, prompt, output float64) *trace.Trace {
	random := rand.New(rand.NewPCG(1, 1))
	sizes := trace.Azure()
	meanPrompt, meanOutput := sizes.Means()
	scaled := func(tokens int32, by float64) int32 { return int32(max(1, math.Round(float64(tokens)*by))) }
	t := &trace.Trace{Name: v.Cluster}
	for i, n := range v.Arrivals {
		at := time.Duration(i) * arrivalStep
		for k := range n {
			like := sizes.Requests[random.IntN(len(sizes.Requests))]
			t.Requests = append(t.Requests, trace.Request{
				At:     at + time.Duration((float64(k)+random.Float64())/float64(n)*float64(arrivalStep)),
				Prompt: scaled(like.Prompt, prompt/meanPrompt), Output: scaled(like.Output, output/meanOutput)})
		}
	}
	return t
}

// fit sets the speed of the engines.
func fit(ctx context.Context, s *sim.Scenario, own sim.Policy, median float64) error {
	relative := make([]float64, len(s.Pods))
	for i := range s.Pods {
		relative[i] = s.Pods[i].Speed
	}
	at := func(speed float64) {
		for i := range s.Pods {
			s.Pods[i].Speed = relative[i] * speed
		}
	}
	low, high := 1/fastest, fastest
	for range bisection {
		speed := math.Sqrt(low * high)
		at(speed)
		part := *s
		part.Duration = min(s.Duration, fittedIn)
		r, err := sim.Run(ctx, part, own)
		if err != nil {
			return err
		}
		if r.EndToEnd.P50 > median {
			low = speed
		} else {
			high = speed
		}
	}
	at(math.Sqrt(low * high))
	return nil
}
