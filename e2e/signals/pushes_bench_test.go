package signals

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"steelyard/e2e/rig/testbed"
	envoybootstrap "steelyard/envoy-bootstrap"
	"steelyard/weighting"
	"steelyard/weighting/push"
)

// followings are the ways in which an Envoy follows the weights.
var followings = []struct {
	name    string
	options envoybootstrap.Options
	workers int
}{
	{"failsafe", envoybootstrap.Options{}, 1},
	{"shedding", envoybootstrap.Options{Mode: envoybootstrap.ModeShedding}, 1},
	{"round_robin", envoybootstrap.Options{Policy: envoybootstrap.PolicyRoundRobin}, 1},
	{"workers=4", envoybootstrap.Options{}, 4},
}

// BenchmarkCostOfPushes measures what a push costs an Envoy that has no traffic: the
// CPU beyond that of a second without pushes, in microseconds for each push, as the
// median over the rounds. In every round each Envoy has a second of each. This is
// what weighting.PushCost counts.
//
//	go test ./e2e/signals -run '^$' -bench CostOfPushes -benchtime 10x
func BenchmarkCostOfPushes(b *testing.B) {
	for _, endpoints := range []int{20, 100, 1000} {
		pool := make([]string, endpoints)
		for i := range pool {
			pool[i] = fmt.Sprintf("127.1.%d.%d:9", i/250, i%250+1) // no request is sent there
		}
		for _, way := range followings {
			o := way.options
			if o.Mode == "" {
				o.Mode = envoybootstrap.ModeFailsafe
			}
			o.NoUpstreamLog, o.NoLoadReports, o.NoRuntime = true, true, true
			r := receive(b, pool...)
			envoy := r.envoy(o, way.workers)
			for _, rate := range []int{10, 30, 100} {
				b.Run(fmt.Sprintf("endpoints=%d/%s/pushes=%d", endpoints, way.name, rate), func(b *testing.B) {
					var cost []float64 // microseconds per push, by round
					for b.Loop() {
						idle := r.second(envoy, 0)
						cost = append(cost, 1e6*(r.second(envoy, rate)-idle).Seconds()/float64(rate))
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(median(cost), "µs/push")
				})
			}
		}
	}
}

// second pushes new weights so many times, evenly over a second, and returns the CPU
// time that an Envoy used in it.
func (r *receiver) second(e *receiverEnvoy, pushes int) time.Duration {
	b := r.t.(*testing.B)
	before := cpu(b, e.Pid())
	end := time.After(time.Second)
	if pushes > 0 {
		tick := time.NewTicker(time.Second / time.Duration(pushes))
		defer tick.Stop()
		for range pushes {
			<-tick.C
			r.streams.Publish(testbed.Cluster, push.Verdict{Decision: random(r.members), StaleAfter: 3 * time.Second})
		}
	}
	<-end
	return cpu(b, e.Pid()) - before
}

// random returns a decision with other shares each time.
func random(members []string) weighting.Decision {
	d := weighting.Decision{At: time.Now()}
	for _, m := range members {
		d.Endpoints = append(d.Endpoints,
			weighting.EndpointDecision{Address: m, Share: rand.ExpFloat64() / float64(len(members))})
	}
	return d
}
