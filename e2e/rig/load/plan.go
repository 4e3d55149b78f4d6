package load

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"
)

// Process is how gaps between arrivals are distributed.
type Process string

// The arrival processes.
const (
	Poisson Process = "poisson" // exponential gaps
	Fixed   Process = "fixed"   // equal gaps
)

// Shape is how work is distributed around its mean.
type Shape string

// The shapes of work.
const (
	Exponential   Shape = "exponential"   // coefficient of variation 1
	Deterministic Shape = "deterministic" // always the mean
	LogNormal     Shape = "log-normal"    // Spread is the sigma of the logarithm
	TwoClass      Shape = "two-class"     // one in ten requests is Spread times as long as the others
)

// Work is the distribution of the requested service times, at speed 1.
type Work struct {
	Mean   time.Duration // over all requests, whatever the shape; 0 leaves it to the server
	Shape  Shape         // default Exponential
	Spread float64       // of LogNormal (default 1) and TwoClass (default 10)
}

// A Plan is the load to generate.
type Plan struct {
	Targets []string  // URLs, one for each proxy
	Shares  []float64 // of the targets, any positive scale; default equal
	Host    string    // Host header; default from the URL

	Header http.Header // of all requests, in addition to the generator's own; default none

	Process  Process       // default Poisson
	Rate     float64       // requests per second, over all targets
	Duration time.Duration // after which no request arrives; 0 is no bound
	Count    int           // after which no request arrives; 0 is no bound
	Work     Work
	Seed     uint64

	// Completions, if not empty, lists the requests, each with its own time. Process, Rate, Duration, Count and Work
	// are ignored then.
	Completions []Completion

	// RequestIDs, if not empty, makes each request carry its index among the samples as X-Request-Id, after this
	// prefix: "PREFIX-0" is the first. Logs of proxies on the way can then be matched with the results.
	RequestIDs string

	Picker Picker // chooses the target when a request leaves; default none: by Shares, from the seed

	Drain time.Duration // how long to wait at the end for requests in flight; default 30 s
	Meter *Meter        // shows the run while it goes on; default none
}

// An Arrival is one request of a plan.
type Arrival struct {
	At     time.Duration // since the start
	Work   time.Duration // at speed 1
	Target int           // index in Plan.Targets

	Completion *Completion // nil without Plan.Completions
}

func (p Plan) withDefaults() (Plan, error) {
	if p.Process == "" {
		p.Process = Poisson
	}
	if p.Work.Shape == "" {
		p.Work.Shape = Exponential
	}
	if p.Work.Spread == 0 {
		p.Work.Spread = map[Shape]float64{LogNormal: 1, TwoClass: 10}[p.Work.Shape]
	}
	if p.Drain == 0 {
		p.Drain = 30 * time.Second
	}
	if p.Meter == nil {
		p.Meter = new(Meter)
	}
	if err := p.validate(); err != nil {
		return p, fmt.Errorf("load plan: %w", err)
	}
	return p, nil
}

func (p Plan) validate() error {
	if len(p.Targets) == 0 {
		return errors.New("no targets")
	}
	check := p.validateDraws
	if len(p.Completions) > 0 {
		check = p.validateCompletions
	}
	if err := check(); err != nil {
		return err
	}
	if len(p.Shares) != 0 && len(p.Shares) != len(p.Targets) {
		return fmt.Errorf("%d shares for %d targets", len(p.Shares), len(p.Targets))
	}
	for i, s := range p.Shares {
		if !(s > 0) || math.IsInf(s, 0) {
			return fmt.Errorf("share %v of target %d, want a finite number above 0", s, i)
		}
	}
	for _, t := range p.Targets {
		if _, err := url.ParseRequestURI(t); err != nil {
			return fmt.Errorf("target: %w", err)
		}
	}
	return nil
}

// validateDraws checks what requests are drawn from.
func (p Plan) validateDraws() error {
	switch {
	case !(p.Rate > 0) || math.IsInf(p.Rate, 0):
		return fmt.Errorf("rate %v, want a finite number of requests per second above 0", p.Rate)
	case p.Duration <= 0 && p.Count <= 0:
		return errors.New("neither duration nor count: the load would never end")
	case p.Process != Poisson && p.Process != Fixed:
		return fmt.Errorf("process %q is none of %q, %q", p.Process, Poisson, Fixed)
	case p.Work.Mean < 0:
		return fmt.Errorf("mean work %v, want 0 or more", p.Work.Mean)
	}
	switch p.Work.Shape {
	case Exponential, Deterministic, LogNormal, TwoClass:
		return nil
	}
	return fmt.Errorf("shape of work %q is none of %q, %q, %q, %q", p.Work.Shape, Exponential, Deterministic,
		LogNormal, TwoClass)
}

// Arrivals returns the sequence of requests, or an error for a plan that makes none.
func (p Plan) Arrivals() (iter.Seq[Arrival], error) {
	p, err := p.withDefaults()
	if err != nil {
		return nil, err
	}
	return p.sequence(), nil
}

// sequence returns the arrivals of a plan with its defaults.
func (p Plan) sequence() iter.Seq[Arrival] {
	if len(p.Completions) > 0 {
		return p.completions()
	}
	return p.arrivals
}

func (p Plan) arrivals(yield func(Arrival) bool) {
	gaps := rand.New(rand.NewPCG(p.Seed, 1))
	work := rand.New(rand.NewPCG(p.Seed, 2))
	targets := rand.New(rand.NewPCG(p.Seed, 3))
	pick := picker(p.Shares, len(p.Targets))
	at := 0.0
	for n := 0; p.Count <= 0 || n < p.Count; n++ {
		at += p.gap(gaps)
		a := Arrival{
			At:     time.Duration(at * float64(time.Second)),
			Work:   p.Work.draw(work),
			Target: pick(targets.Float64()),
		}
		if p.Duration > 0 && a.At >= p.Duration || !yield(a) {
			return
		}
	}
}

// gap returns the next time between two arrivals, in seconds.
func (p Plan) gap(r *rand.Rand) float64 {
	if p.Process == Fixed {
		return 1 / p.Rate
	}
	return exponential(r) / p.Rate
}

// draw returns the work of the next request. It takes the same number of random
// numbers whatever the shape.
func (w Work) draw(r *rand.Rand) time.Duration {
	a, b := exponential(r), r.Float64()
	mean := float64(w.Mean)
	switch w.Shape {
	case Deterministic:
		return w.Mean
	case LogNormal:
		// Box-Muller; the shift by sigma²/2 keeps the mean.
		normal := math.Sqrt(2*a) * math.Cos(2*math.Pi*b)
		return time.Duration(mean * math.Exp(w.Spread*normal-w.Spread*w.Spread/2))
	case TwoClass:
		const long = 0.1 // share of the long ones
		short := mean / (1 - long + long*w.Spread)
		if b < long {
			return time.Duration(short * w.Spread)
		}
		return time.Duration(short)
	default:
		return time.Duration(mean * a)
	}
}

// exponential returns a draw with mean 1, by inversion: unlike the library's own
// method it is the same in every release of Go.
func exponential(r *rand.Rand) float64 { return -math.Log(1 - r.Float64()) }

// picker maps a uniform number to a target by the targets' shares.
func picker(shares []float64, n int) func(float64) int {
	upto := make([]float64, n)
	sum := 0.0
	for i := range upto {
		share := 1.0
		if len(shares) > 0 {
			share = shares[i]
		}
		sum += share
		upto[i] = sum
	}
	return func(u float64) int {
		for i, bound := range upto {
			if u*sum < bound {
				return i
			}
		}
		return n - 1
	}
}
