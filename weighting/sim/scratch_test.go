package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"steelyard/weighting/sim/engine"
)

func TestScratchRate(t *testing.T) {
	sv, _ := Builtin("llm")
	s := &sv
	ep := engine.Defaults()
	thr := s.throughput(&PodGroup{Count: 1, Engine: &ep})
	for _, v := range []float64{1, 0.5} {
		for _, load := range []float64{0.05, 0.2, 0.5, 0.8, 0.95} {
			for _, chunk := range []int{1, 2} {
				_ = chunk
			}
			rnd := rand.New(rand.NewPCG(1, 2))
			p := newPrompts(s)
			e := engine.New(ep)
			e.SetSpeed(0, v)
			now, nextA, nextS := time.Duration(0), time.Duration(0), time.Second
			var prev engine.Counters
			var prevRun int
			// sums for regression y = a I + b X
			var II, IX, XX, Iy, Xy float64
			var iAlt [5]float64
			var P, PT, F, itl, gen float64
			_ = iAlt
			var n float64
			for now < 300*time.Second {
				nx := nextA
				kind := 0
				if nextS < nx {
					nx, kind = nextS, 1
				}
				if at, ok := e.Next(); ok && at <= nx {
					nx, kind = at, 2
				}
				now = nx
				switch kind {
				case 0:
					r := p.take()
					e.Arrive(now, &engine.Request{Prompt: r.prompt, Cached: r.cached, Output: r.output})
					nextA = now + time.Duration(rnd.ExpFloat64()/(thr*v*load)*1e9)
				case 2:
					e.Step(now)
				case 1:
					nextS += time.Second
					c := e.Counters()
					run := e.Gauges().Running
					dI := float64(c.Iterations - prev.Iterations)
					dP := float64(c.PromptTokens - c.CachedTokens - prev.PromptTokens + prev.CachedTokens)
					dG := float64(c.GenerationTokens - prev.GenerationTokens)
					if now > 10*time.Second {
						P += dP
						PT += (c.Prefill - prev.Prefill).Seconds()
						F += float64(c.FirstTokens - prev.FirstTokens)
						itl += (c.InterToken - prev.InterToken).Seconds()
						gen += dG
					}
					if prevRun > 0 && run > 0 && dI > 0 {
						x := dP + 1.5*dG
						II += dI * dI
						IX += dI * x
						XX += x * x
						Iy += dI
						Xy += x
						n++
					}
					prev, prevRun = c, run
				}
			}
			det := II*XX - IX*IX
			a := (Iy*XX - Xy*IX) / det
			b := (II*Xy - IX*Iy) / det
			fmt.Printf("v %.1f load %.2f: n %3.0f  a %.1f ms  r %.0f | lower bound %.0f  itl %.1f ms, corrected %.0f\n", v, load, n, a*1e3, 1/b, P/PT, itl/gen*1e3, P/(PT-F*a))
		}
	}
}
