package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"steelyard/internal/api"
)

// A failingEndpoint is one and its failures by the logs of Envoys, one request a tick of each.
type failingEndpoint struct {
	*world
	streams []*Stream
	rng     *rand.Rand
	n       int
}

func newFailingEndpoint(envoys int) *failingEndpoint {
	return newFailingEndpointAt(envoys, hostOfEach)
}

// newFailingEndpointAt has the Envoys connect from these hosts.
func newFailingEndpointAt(envoys int, hosts func(envoy int) string) *failingEndpoint {
	c := &failingEndpoint{world: newWorld(), rng: rand.New(rand.NewPCG(1, 2))}
	c.cluster("chat", one)
	var all []*testEnvoy
	for i := range envoys {
		e := c.envoy(fmt.Sprint("envoy-", i))
		e.node.Host = hosts(i)
		all = append(all, e)
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
			if c.named && (disputes[0].Envoy.NodeID != "envoy-0" || disputes[0].Kind != api.DisputeFailures ||
				fixture.now.Sub(disputes[0].Since) < 25*time.Second) {
				t.Errorf("disputes %+v, want the first Envoy, from the beginning", disputes)
			}
		})
	}
}

// TestAFailureLongBeforeDoesNotHideARow: an Envoy with one failed request among many answered ones loses its path to
// the endpoint. Its failures are compared with the other hosts at the third, before five in a row are an outlier.
func TestAFailureLongBeforeDoesNotHideARow(t *testing.T) {
	c := newFailingEndpoint(2)
	send := func(envoy, answered, failed int) {
		for range answered {
			c.request(c.streams[envoy], false)
			c.request(c.streams[1], false)
			c.after(tick)
		}
		for range failed {
			c.request(c.streams[envoy], true)
			c.request(c.streams[1], false)
			c.after(tick)
		}
	}
	send(0, 8, 1)
	send(0, 7, 0)
	before := c.failures()
	send(0, 0, 8)
	if counted := c.failures() - before; counted > 2 {
		t.Errorf("%d failures of eight in a row count, want two at most", counted)
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
			if took > servesFor+time.Second || len(shares) > 2 && shares[0] == shares[1] && took > 2*time.Second {
				t.Errorf("five failures count after %v", took)
			}
		})
	}
}

// TestAnEnvoyThatLeavesDisputesNothing: nor do its answers count any more.
func TestAnEnvoyThatLeavesDisputesNothing(t *testing.T) {
	c := newFailingEndpoint(2)
	c.run(5*time.Second, []float64{10, 10}, []float64{1, 0})
	c.streams[0].Close()
	if got := c.ledger.Disputes("chat", c.now); len(got) > 0 {
		t.Errorf("disputes %+v", got)
	}
	c.ledger.SetMembers("chat", nil)
	c.mustBeSound(t)
}

// TestFailuresOfAFewHostsDoNotCount: where at least as many others get answers, however few, and whatever node ids
// the failures are reported under. The first three Envoys are fine; the others report 200 failures a second.
func TestFailuresOfAFewHostsDoNotCount(t *testing.T) {
	for name, c := range map[string]struct {
		answers float64 // requests a second of each of the three
		liars   int
		hosts   func(envoy int) string
		named   int
	}{
		"one, and three with few requests":       {0.125, 1, hostOfEach, 1},
		"one, and three with hardly any":         {0.03, 1, hostOfEach, 1},
		"two node ids of one host":               {5, 2, hostOf("a", "b", "c", "liar"), 2},
		"two of one host, and few requests":      {0.125, 2, hostOf("a", "b", "c", "liar"), 2},
		"forty node ids of one host":             {5, 40, hostOf("a", "b", "c", "liar"), maxDiscounted},
		"two node ids of the only host":          {5, 2, hostOf("a"), 2},
		"forty of the only host, few requests":   {0.125, 40, hostOf("a"), maxDiscounted},
		"two hosts of five":                      {5, 2, hostOfEach, 2},
		"two hosts of five, with few requests":   {0.125, 2, hostOfEach, 2},
		"one, and three behind one other":        {0.125, 1, hostOf("a", "a", "a", "liar"), 1},
		"ten of one host, three of another host": {0.125, 10, hostOf("a", "a", "a", "liar"), maxDiscounted},
	} {
		t.Run(name, func(t *testing.T) {
			fixture := newFailingEndpointAt(3+c.liars, c.hosts)
			perSecond, fail := make([]float64, 3+c.liars), make([]float64, 3+c.liars)
			for i := range 3 {
				perSecond[i] = c.answers
			}
			fixture.run(time.Duration(60/c.answers)*time.Second/10, perSecond, fail)
			for i := range c.liars {
				perSecond[3+i], fail[3+i] = 200/float64(c.liars), 1
			}
			if counted := fixture.run(5*time.Minute, perSecond, fail); counted > 4 {
				t.Errorf("%d of some 60,000 failures count", counted)
			}
			if disputes := fixture.ledger.Disputes("chat", fixture.now); len(disputes) != c.named {
				t.Errorf("%d disputes %+v, want %d", len(disputes), disputes, c.named)
			}
			fixture.mustBeSound(t)
		})
	}
}

func hostOfEach(envoy int) string { return fmt.Sprint("10.0.0.", envoy) }

// hostOf names the hosts of the first Envoys; all others are at the last of them.
func hostOf(names ...string) func(int) string {
	return func(envoy int) string { return names[min(envoy, len(names)-1)] }
}

// TestFailuresOfMostHostsCount: also where there are few requests, or many Envoys behind one address.
func TestFailuresOfMostHostsCount(t *testing.T) {
	for name, c := range map[string]struct {
		envoys    int
		perSecond float64 // requests of each
		hosts     func(envoy int) string
		most      time.Duration // until five failures count
	}{
		"three with few requests":            {3, 0.125, hostOfEach, time.Minute},
		"three with few, behind one":         {3, 0.125, hostOf("a"), time.Minute},
		"a hundred with few requests":        {100, 0.1, hostOfEach, 2 * time.Second},
		"a hundred with few, behind one":     {100, 0.1, hostOf("a"), 2 * time.Second},
		"three with many, behind one":        {3, 20, hostOf("a"), time.Second},
		"a hundred with many":                {100, 10, hostOfEach, time.Second},
		"one with many, without any other's": {1, 20, hostOfEach, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			fixture := newFailingEndpointAt(c.envoys, c.hosts)
			perSecond, fail := make([]float64, c.envoys), make([]float64, c.envoys)
			for i := range perSecond {
				perSecond[i] = c.perSecond
			}
			fixture.run(2*time.Minute, perSecond, fail)
			for i := range fail {
				fail[i] = 1
			}
			took := time.Duration(0)
			for counted := 0; counted < 5 && took < 10*c.most; took += tick {
				counted += fixture.run(tick, perSecond, fail)
			}
			t.Logf("five failures count after %v", took)
			if took > c.most {
				t.Errorf("five failures count after %v", took)
			}
		})
	}
}

// TestLoadReportsAreAnswers: of Envoys without a log.
func TestLoadReportsAreAnswers(t *testing.T) {
	c := newFailingEndpoint(1)
	liar, other := c.envoys[0], c.envoy("reports")
	other.node.Host = "10.0.0.9"
	c.watch("chat", liar, other)
	r := c.ledger.Reporting(other.node, time.Second, c.now)
	counted := 0
	for range 60 {
		r.Report(c.now, []ClusterLoad{{Cluster: "chat",
			Endpoints: []EndpointLoad{{Address: one, Issued: 5, Succeeded: 5}}}})
		counted += c.run(time.Second, []float64{100}, []float64{1})
	}
	if disputes := c.ledger.Disputes("chat", c.now); counted > 250 || len(disputes) != 1 {
		t.Errorf("%d of 6000 failures count, disputes %+v", counted, disputes)
	}
}
