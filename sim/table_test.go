package sim

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// What Envoy's own policies, and the bound, come to: p99 of the wait in mean
// services, by a simulation of another hand. Both are chance: in an hour p99 is good
// to a tenth or two.
func TestBlindPoliciesAgreeWithAnotherSimulation(t *testing.T) {
	t.Parallel()
	columns := []struct {
		name                string
		envoys, pods, slots int
		load                float64
		duration            time.Duration
		p99                 map[Balancer]float64
	}{
		{"10 x 20, 1 slot, load 0.8", 10, 20, 1, 0.8, time.Hour, map[Balancer]float64{
			Random: 23.3, RoundRobin: 13.2, LeastRequest: 10.0, FreeSlots: 11.2, ShortestQueue: 2.9}},
		{"10 x 20, 4 slots, load 0.9", 10, 20, 4, 0.9, 30 * time.Minute, map[Balancer]float64{
			Random: 10.8, RoundRobin: 5.40, LeastRequest: 2.90, FreeSlots: 7.19, ShortestQueue: 0.87}},
		{"10 x 20, 16 slots, load 0.9", 10, 20, 16, 0.9, 10 * time.Minute, map[Balancer]float64{
			Random: 2.22, RoundRobin: 1.38, LeastRequest: 0.61, FreeSlots: 3.93}},
		{"100 x 200, 1 slot, load 0.9", 100, 200, 1, 0.9, 8 * time.Minute, map[Balancer]float64{
			Random: 41, RoundRobin: 22.6, LeastRequest: 24.0}},
	}
	for _, c := range columns {
		s := small()
		s.Envoys, s.Pods, s.Load = c.envoys, []PodGroup{{Count: c.pods, Slots: c.slots}}, c.load
		s.WarmUp, s.Duration = 3*time.Minute, c.duration
		for balancer, p99 := range c.p99 {
			r := run(t, s, Policy{Balancer: balancer})
			t.Logf("%s: %s %.2f, %v by the other", c.name, balancer, r.Wait.P99, p99)
			wantNear(t, fmt.Sprintf("%s: p99 of %s", c.name, balancer), r.Wait.P99, p99, 0.3)
		}
	}
}

// The standard table of a short photoroom, as text, and what must hold of it
// whatever the law becomes.
func TestPhotoroom(t *testing.T) {
	t.Parallel()
	s := photoroom()
	s.Duration = 11 * time.Minute
	results := runAll(t, s, Policies())
	golden(t, "photoroom.txt", table(results))

	p99, spread := map[string]float64{}, map[string]float64{}
	for _, r := range results {
		p99[r.Policy], spread[r.Policy] = r.Wait.P99, r.Spread
		want(t, "requests under "+r.Policy, r.Requests, results[0].Requests)
		wantNear(t, "utilization under "+r.Policy, r.Utilization, results[0].Utilization, 0.02)
	}
	bound, least := p99["shortest_queue"], p99["least_request"]
	for _, c := range []struct {
		policy           string
		ofBound, ofLeast float64 // at most
		ofRandom         float64 // of the spread of the queues, at most
	}{
		{"steelyard@5ms", 1.15, 0.3, 0.3},
		{"steelyard@50ms", 1.5, 0.45, 0.35},
		{"steelyard@250ms", 2.2, 0.55, 0.4},
		{"steelyard@1s", 3, 0.75, 0.55},
	} {
		if part := spread[c.policy] / spread["random"]; part > c.ofRandom {
			t.Errorf("the queues under %s are %.2f as far apart as by chance, at most %v", c.policy, part, c.ofRandom)
		}
		if got := p99[c.policy]; got > c.ofBound*bound || got > c.ofLeast*least {
			t.Errorf("p99 of the wait under %s is %.2f: %.2f of the bound, at most %v, and %.2f of least request, at "+
				"most %v",
				c.policy, got, got/bound, c.ofBound, got/least, c.ofLeast)
		}
	}
	const allowed = 36 // pushes a second: 2 % of a core at 20 endpoints
	for _, r := range results {
		if rate := float64(r.Pushes) / s.Duration.Seconds(); rate > allowed {
			t.Errorf("%s pushes %.1f times a second, more than %v", r.Policy, rate, allowed)
		}
	}
}

func table(results []Result) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%-16s %8s %7s %7s %7s %7s %7s %7s %8s %8s\n", "policy", "requests", "p50", "p90", "p99", "mean",
		"spread", "hunting", "steps", "pushes")
	for _, r := range results {
		fmt.Fprintf(&b, "%-16s %8d %7.2f %7.2f %7.2f %7.2f %7.2f %7.2f %8d %8d\n", r.Policy, r.Requests,
			r.Wait.P50, r.Wait.P90, r.Wait.P99, r.Wait.Mean, r.Spread, r.Hunting, r.Steps, r.Pushes)
	}
	return b.Bytes()
}

// golden compares with a file of testdata. Rewrite it with -update, and only when
// you can say why each line changed.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	wanted, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, wanted) {
		t.Errorf("%s is no longer\n%sbut\n"+
			"%sIf the law changed and each line is as it should be, rewrite it with -update.", path, wanted, got)
	}
}

// The fleets where winning is hardest, with the shortest services, on single slots, where late weights do worst:
// Steelyard by the access log is no worse than least request in any of them.
func TestNeverWorseThanLeastRequest(t *testing.T) {
	t.Parallel()
	seeing := steelyard("steelyard", Steelyard{Source: AccessLog, ScrapeInterval: time.Second})
	slow := []PodGroup{{Count: 15, Slots: 1}, {Count: 5, Slots: 1, Speed: 1.0 / 3}}
	big := []float64{9, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	for _, load := range sampled(2, []float64{0.5, 0.8, 0.95}) {
		for _, pods := range [][]PodGroup{{{Count: 20, Slots: 1}}, slow} {
			for _, shares := range [][]float64{nil, big} {
				s := photoroom()
				s.Service.Mean, s.Load, s.Pods, s.EnvoyShares = 50*time.Millisecond, load, pods, shares
				requests := func(n float64) time.Duration { return time.Duration(n / s.ArrivalRate() * 1e9) }
				s.WarmUp = max(20*time.Second, requests(2000))
				s.Duration = s.WarmUp + requests(5000)
				least, law := run(t, s, Policy{Balancer: LeastRequest}), run(t, s, seeing)
				what := fmt.Sprintf("load %v, %d kinds of pods, shares %v", load, len(pods), shares)
				t.Logf("%s: p99 %.2f, least request %.2f", what, law.Wait.P99, least.Wait.P99)
				if law.Wait.P99 > least.Wait.P99 {
					t.Errorf("%s: p99 of the wait is %.2f, of least request %.2f", what, law.Wait.P99, least.Wait.P99)
				}
			}
		}
	}
}

// go test -run '^$' -bench Hour ./sim
func BenchmarkHour(b *testing.B) {
	s := photoroom()
	s.Duration = 10 * time.Minute
	for _, p := range Policies() {
		b.Run(p.Name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Run(context.Background(), s, p); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*s.Duration.Hours()/b.Elapsed().Seconds(), "simulated-hours/s")
		})
	}
}
