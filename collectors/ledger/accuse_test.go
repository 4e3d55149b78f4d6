package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A failingEndpoint is one and its failures by the logs of Envoys, one request a tick of each.
type failingEndpoint struct {
	*world
	streams []*Stream
	rng     *rand.Rand
	n       int
}

func newFailingEndpoint(envoys int) *failingEndpoint {
	c := &failingEndpoint{world: newWorld(), rng: rand.New(rand.NewPCG(1, 2))}
	c.cluster("chat", one)
	var all []*testEnvoy
	for i := range envoys {
		all = append(all, c.envoy(fmt.Sprint("envoy-", i)))
	}
	c.watch("chat", all...)
	for _, e := range all {
		c.streams = append(c.streams, c.open(e))
	}
	return c
}

// run has each Envoy send so many requests a second, of which such shares fail, and returns how
// many failures counted.
func (c *failingEndpoint) run(length time.Duration, perSecond []float64, fail []float64) (counted int) {
	before := c.failures()
	for begun := c.now; c.now.Sub(begun) < length; c.after(tick) {
		for i, s := range c.streams {
			for at := perSecond[i] * tick.Seconds(); c.rng.Float64() < at; at-- {
				c.request(s, c.rng.Float64() < fail[i])
			}
		}
	}
	return c.failures() - before
}

func (c *failingEndpoint) request(s *Stream, fails bool) {
	o := Outcome{Status: 200, Latency: time.Millisecond}
	if fails {
		o.Status = 503
	}
	c.n++
	s.Begin(c.now, fmt.Sprint(c.n), one)
	s.End(c.now, fmt.Sprint(c.n), one, o)
}

func (c *failingEndpoint) failures() int {
	return int(c.ticked().Read("chat", c.now, nil)[0].Proxies.Failed.Value)
}

// TestFailuresThatOnlyOneEnvoyReportsDoNotCount: while the others find the endpoint well, and not
// those that all report, or the only one with requests there.
func TestFailuresThatOnlyOneEnvoyReportsDoNotCount(t *testing.T) {
	for name, c := range map[string]struct {
		perSecond, fail []float64
		least, most     float64 // of the failures, that count; about
		named           bool
	}{
		"one, a thousand times":             {[]float64{1000, 10, 10}, []float64{1, 0, 0}, 0, 0.01, true},
		"one, as often as the others":       {[]float64{10, 10, 10}, []float64{1, 0, 0}, 0, 0.01, true},
		"one, and others now and then":      {[]float64{1000, 10, 10}, []float64{1, 0.02, 0.02}, 0, 0.002, true},
		"half of those of one":              {[]float64{10, 10, 10}, []float64{0.5, 0, 0}, 0, 0.1, true},
		"one, where others rarely have any": {[]float64{10, 0.5, 0.5}, []float64{1, 0, 0}, 0, 0.1, true},

		"all of them":                          {[]float64{10, 10, 10}, []float64{1, 1, 1}, 0.98, 1, false},
		"two of three":                         {[]float64{10, 10, 10}, []float64{1, 1, 0}, 0.4, 1, false},
		"all of two":                           {[]float64{10, 10}, []float64{1, 1}, 0.98, 1, false},
		"more than half of all":                {[]float64{10, 10, 10}, []float64{0.6, 0.6, 0.6}, 0.95, 1, false},
		"some of all":                          {[]float64{10, 10, 10}, []float64{0.1, 0.1, 0.1}, 0.9, 1, false},
		"the only Envoy":                       {[]float64{10}, []float64{1}, 1, 1, false},
		"the only one that has requests there": {[]float64{10, 0, 0}, []float64{1, 0, 0}, 0.8, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			fixture := newFailingEndpoint(len(c.perSecond))
			fixture.run(10*time.Second, c.perSecond, make([]float64, len(c.fail)))
			reported := 0.0
			for i := range c.fail {
				reported += 30 * c.perSecond[i] * c.fail[i]
			}
			counted := float64(fixture.run(30*time.Second, c.perSecond, c.fail))
			if share := counted / reported; share < c.least*0.9 || share > c.most*1.2 {
				t.Errorf("%.0f of about %.0f failures count: %.3f, want %v to %v", counted, reported, share, c.least,
					c.most)
			}
			disputes := fixture.ledger.Disputes("chat", fixture.now)
			if named := len(disputes) > 0; named != c.named {
				t.Errorf("disputes %+v", disputes)
			}
			if c.named && (disputes[0].Envoy.NodeID != "envoy-0" || disputes[0].Kind != DisputedFailures ||
				fixture.now.Sub(disputes[0].Since) < 25*time.Second) {
				t.Errorf("disputes %+v, want the first Envoy, from the beginning", disputes)
			}
		})
	}
}

// TestAnEndpointThatFailsForAllIsKnownAtOnce: the first failures of Envoys that did not see one yet.
func TestAnEndpointThatFailsForAllIsKnownAtOnce(t *testing.T) {
	for _, shares := range [][]float64{{4, 4}, {2, 2, 2}, {7.6, 0.4}, {9, 0.5, 0.5}} {
		t.Run(fmt.Sprint(shares), func(t *testing.T) {
			c := newFailingEndpoint(len(shares))
			well, failing := make([]float64, len(shares)), make([]float64, len(shares))
			for i := range failing {
				failing[i] = 1
			}
			c.run(20*time.Second, shares, well)
			took := time.Duration(0)
			for counted := 0; counted < 5; took += tick {
				counted += c.run(tick, shares, failing)
			}
			t.Logf("five failures count after %v", took)
			if took > fineFor+time.Second || len(shares) > 2 && shares[0] == shares[1] && took > 2*time.Second {
				t.Errorf("five failures count after %v", took)
			}
		})
	}
}

// TestAnEnvoyThatLeavesDisputesNothing: nor does it vouch.
func TestAnEnvoyThatLeavesDisputesNothing(t *testing.T) {
	c := newFailingEndpoint(2)
	c.run(5*time.Second, []float64{10, 10}, []float64{1, 0})
	c.streams[0].Close(c.now)
	if got := c.ledger.Disputes("chat", c.now); len(got) > 0 {
		t.Errorf("disputes %+v", got)
	}
	c.ledger.SetMembers("chat", nil)
	c.mustBeSound(t)
}
