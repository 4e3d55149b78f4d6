package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"steelyard/weighting"
	"steelyard/weighting/push"
	"steelyard/xds/envoyspec"
)

// Bounds on a scenario: above them a run would take hours or more memory than there is.
const (
	mostPods, mostEnvoys, mostWorkers, mostSlots = 10_000, 10_000, 64, 10_000
	mostRequests                                 = 1e8
)

func (s Scenario) withDefaults() Scenario {
	if s.Workers == 0 {
		s.Workers = 1
	}
	if s.Service.Kind == "" {
		s.Service.Kind = Exponential
	}
	if s.Service.LongFactor == 0 {
		s.Service.LongFactor = 1
	}
	if s.Prompts != nil {
		s.Service.Mean = time.Second // what hunting is counted in
		p := *s.Prompts
		if p.Spread && p.Trace != nil {
			p.Trace, p.Spread = p.Trace.Spread(source(s.Seed, streamSpread)), false
		}
		p.BytesPerToken = cmp.Or(p.BytesPerToken, DefaultBytesPerToken)
		p.BytesSpread = cmp.Or(p.BytesSpread, DefaultBytesSpread)
		s.Prompts = &p
	}
	return s
}

// Check returns all mistakes of a scenario; nil if there are none.
func (s Scenario) Check() error {
	s = s.withDefaults()
	return s.check()
}

func (s *Scenario) check() error {
	var p problems
	p.want(s.Duration > 0, "duration %v: a positive time is needed", s.Duration)
	p.want(s.WarmUp >= 0 && s.WarmUp < s.Duration, "warm-up %v: it must be less than the duration, %v", s.WarmUp,
		s.Duration)
	p.want(s.Envoys >= 1 && s.Envoys <= mostEnvoys, "envoys %d: 1 to %d can be simulated", s.Envoys, mostEnvoys)
	p.want(s.Workers >= 1 && s.Workers <= mostWorkers, "workers %d: 1 to %d can be simulated", s.Workers, mostWorkers)
	p.want(s.SampleEvery >= 0, "sample every %v: 0 for no series, or a positive time", s.SampleEvery)
	s.checkShares(&p)
	s.checkService(&p)
	s.Signals.check(&p)
	s.checkPrompts(&p)
	if pods := s.checkPods(&p); pods > 0 {
		s.checkEvents(&p, pods)
	}
	if len(p) == 0 { // else the rate means nothing
		rate := s.rate(s.capacity(s.pods()))
		p.want(rate > 0 && rate*s.Duration.Seconds() <= mostRequests,
			"%.3g requests per second for %v: set load or rate so that there are some, and no more than %.0e in all",
			rate, s.Duration, float64(mostRequests))
	}
	return errors.Join(p...)
}

func (s *Scenario) checkShares(p *problems) {
	if len(s.EnvoyShares) == 0 {
		return
	}
	p.want(len(s.EnvoyShares) == s.Envoys, "envoy shares: %d of them for %d Envoys", len(s.EnvoyShares), s.Envoys)
	for i, share := range s.EnvoyShares {
		p.want(share > 0 && !math.IsInf(share, 0), "envoy shares, number %d: %v is not positive and finite", i, share)
	}
}

func (s *Scenario) checkService(p *problems) {
	v := s.Service
	kinds := []ServiceKind{Exponential, Deterministic, LogNormal, TwoClass}
	p.want(slices.Contains(kinds, v.Kind), "service kind %q: one of %q", v.Kind, kinds)
	p.want(v.Mean > 0, "service mean %v: a positive time is needed", v.Mean)
	p.want(v.Sigma >= 0 && v.Sigma <= 5, "service sigma %v: 0 to 5", v.Sigma)
	p.want(v.LongShare >= 0 && v.LongShare <= 1, "long share %v: 0 to 1", v.LongShare)
	p.want(v.LongFactor > 0 && v.LongFactor <= 1e6, "long factor %v: above 0, at most 1e6", v.LongFactor)
	for _, x := range []float64{s.Load, s.Rate} {
		p.want(x >= 0 && !math.IsInf(x, 0), "load or rate %v: positive and finite", x)
	}
}

func (s *Scenario) checkPrompts(p *problems) {
	v := s.Prompts
	if v == nil {
		return
	}
	p.want(v.Cached >= 0 && v.Cached <= 1, "cached %v: 0 to 1 of a prompt", v.Cached)
	p.want(v.Chunked >= 0 && v.Chunked <= 1, "chunked %v: 0 to 1 of the requests", v.Chunked)
	p.want(v.BytesPerToken > 0 && v.BytesPerToken <= 1e6, "bytes per token %v: above 0, at most 1e6", v.BytesPerToken)
	p.want(v.BytesSpread <= 5, "spread of the bytes per token %v: at most 5", v.BytesSpread)
	if v.Trace == nil || len(v.Trace.Requests) < 2 || v.Trace.Span() <= 0 {
		p.want(false, "prompts: a trace with two moments is needed")
		return
	}
	largest := v.Trace.Largest()
	for i, g := range s.Pods {
		p.want(g.Engine == nil || g.Engine.Fits(int(largest.Prompt), int(largest.Output)),
			"pods, group %d: the largest request, of %d and %d tokens, does not fit into the KV cache: it has to be "+
				"of %d tokens at least",
			i, largest.Prompt, largest.Output, largest.Prompt+largest.Output)
	}
}

func (g *Signals) check(p *problems) {
	for _, d := range []*time.Duration{g.ScrapeDelay, g.Delay, g.PushDelay} {
		if d != nil {
			p.want(*d >= 0, "signals: a delay of %v: it may not be negative", *d)
		}
	}
	if g.Loss != nil {
		p.want(*g.Loss >= 0 && *g.Loss <= 1, "signals: loss %v: 0 to 1", *g.Loss)
	}
}

// over is a deployment with these signals in the place of its own.
func (g *Signals) over(o Steelyard) Steelyard {
	instead(&o.ScrapeDelay, g.ScrapeDelay)
	instead(&o.SignalDelay, g.Delay)
	instead(&o.Loss, g.Loss)
	instead(&o.PushDelay, g.PushDelay)
	return o
}

func instead[T any](of, value *T) {
	if value != nil {
		*of = *value
	}
}

func (s *Scenario) checkPods(p *problems) (pods int) {
	for i, g := range s.Pods {
		p.want(g.Count >= 1 && g.Count <= mostPods, "pods, group %d: count %d: 1 to %d can be simulated", i, g.Count,
			mostPods)
		least := 1
		if g.Engine != nil {
			least = 0
			if err := g.Engine.Check(); err != nil {
				p.want(false, "pods, group %d: %w", i, err)
			}
		}
		p.want((g.Engine != nil) == (s.Prompts != nil),
			"pods, group %d: engines need prompts, and pods with slots take none", i)
		p.want(g.Slots >= least && g.Slots <= mostSlots, "pods, group %d: slots %d: %d to %d", i, g.Slots, least,
			mostSlots)
		p.want(g.Capacity >= 0 && g.Capacity <= 1e6, "pods, group %d: capacity %v: 0 to 1e6", i, g.Capacity)
		p.want(g.Speed >= 0 && g.Speed <= 1e6, "pods, group %d: speed %v: above 0 (0 is taken for 1), at most 1e6", i,
			g.Speed)
		p.want(g.Metrics.GaugeLag >= 0 && g.Metrics.CounterLag >= 0, "pods, group %d: a lag may not be negative", i)
		p.want(!g.Metrics.NoTokens || g.Engine != nil, "pods, group %d: only engines count tokens", i)
		p.want(g.SlowDown >= 0 && g.SlowDown <= 1e6, "pods, group %d: slow down %v: 0 to 1e6", i, g.SlowDown)
		pods += min(max(0, g.Count), mostPods)
	}
	p.want(pods >= 1 && pods <= mostPods, "pods: %d in all, 1 to %d can be simulated", pods, mostPods)
	return pods
}

func (s *Scenario) checkEvents(p *problems, pods int) {
	for i, e := range s.Events {
		p.want(slices.Contains(eventKinds, e.Kind), "events, number %d: kind %q: one of %q", i, e.Kind, eventKinds)
		p.want(e.At >= 0 && e.For >= 0, "events, number %d: at %v for %v: neither may be negative", i, e.At, e.For)
		if e.Kind == FlashCrowd || e.Kind == Slow || e.Kind == StuckWaiting {
			p.want(e.Factor > 0 && e.Factor <= 1e6, "events, number %d: %s by a factor of %v: above 0, at most 1e6", i,
				e.Kind, e.Factor)
		}
		for _, pod := range e.Pods {
			if pod < 0 || pod >= pods {
				p.want(false, "events, number %d: pod %d: there are 0 to %d", i, pod, pods-1)
				return // what follows would look it up
			}
		}
	}
}

var eventKinds = []EventKind{
	Join, Leave, Stall, Hang, Recover, Slow, StaleMetrics, FreshMetrics, StuckRunning, StuckWaiting, FlashCrowd,
	ControlPlaneAway,
}

type problems []error

func (p *problems) want(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

func (p Policy) withDefaults() Policy {
	if p.FreeSlotsEvery == 0 {
		p.FreeSlotsEvery = time.Second
	}
	if p.Steelyard != nil {
		o := p.Steelyard.withDefaults()
		p.Steelyard = &o
	}
	return p
}

func (p *Policy) check(engines bool) error {
	var found problems
	p.checkPods(engines, &found)
	if p.Steelyard == nil {
		balancers := []Balancer{
			RoundRobin, LeastRequest, Random, FreeSlots, ShortestQueue, FewestInFlight, LeastWork, LeastWorkGuessed,
		}
		balancers = append(balancers, prefixBalancers...)
		found.want(slices.Contains(balancers, p.Balancer), "balancer %q: one of %q", p.Balancer, balancers)
		found.want(p.FreeSlotsEvery > 0, "free slots every %v: a positive time is needed", p.FreeSlotsEvery)
		return errors.Join(found...)
	}
	found.want(engines || !p.Steelyard.Picker.looks(), "a picker by prefix needs prompts, and the pods are no "+
		"engines")
	p.Steelyard.check(&found)
	return errors.Join(found...)
}

func (o *Steelyard) check(found *problems) {
	sources := []Source{AccessLog, LoadReports, Redis, Scrape}
	balancers := []Balancer{RoundRobin, LeastRequest, Random}
	found.want(slices.Contains(sources, o.Source), "source %q: one of %q", o.Source, sources)
	pickers := []Picker{NoPicker, PickerWork, PickerPrefix, PickerShared}
	found.want(slices.Contains(pickers, o.Picker), "picker %q: one of %q", o.Picker, pickers)
	found.want(slices.Contains(balancers, o.EnvoyPolicy), "Envoy policy %q: one of %q", o.EnvoyPolicy, balancers)
	for _, d := range []time.Duration{o.ScrapeInterval, o.ScrapeDelay, o.SignalDelay, o.PushDelay, o.MinInterval,
		o.Heartbeat, o.Period, o.FallbackAfter} {
		found.want(d >= 0, "an interval or delay of %v: it may not be negative", d)
	}
	found.want(o.ReportInterval > 0, "report interval %v: a positive time is needed", o.ReportInterval)
	found.want(o.budget().MinInterval > 0, "least time between two pushes %v: a positive time is needed",
		o.budget().MinInterval)
	found.want(o.Loss >= 0 && o.Loss <= 1, "loss %v: 0 to 1", o.Loss)
	found.want(o.Apart >= 0 && o.Apart <= 32, "%d replicas apart: 0 to 32", o.Apart)
	found.want(o.Deadband >= 0, "deadband %v: 0 to 1", o.Deadband)
}

var defaultBudget = push.Budget{MinInterval: 5 * time.Millisecond, BytesPerSecond: 10 << 20, ProxyCPU: 0.02,
	Cost: envoyspec.PushCost}

// withDefaults fills in what a deployment has that sets nothing.
func (o Steelyard) withDefaults() Steelyard {
	o.ScrapeDelay = cmp.Or(o.ScrapeDelay, 2*time.Millisecond)
	o.SignalDelay = cmp.Or(o.SignalDelay, 2*time.Millisecond)
	o.PushDelay = cmp.Or(o.PushDelay, 3*time.Millisecond)
	switch o.Source {
	case AccessLog:
		o.ReportInterval = cmp.Or(o.ReportInterval, time.Second)
	case Scrape:
		o.ScrapeInterval = cmp.Or(o.ScrapeInterval, time.Second)
	}
	o.ReportInterval = cmp.Or(o.ReportInterval, 50*time.Millisecond)
	if o.Budget == (push.Budget{}) {
		o.Budget = defaultBudget
	}
	if o.EnvoyPolicy == "" {
		o.EnvoyPolicy = LeastRequest
	}
	if o.Bias == 0 {
		o.Bias = 2
	}
	if o.Params == (weighting.Params{}) {
		o.Params = weighting.DefaultParams()
	}
	return o
}

// budget is what bounds the pushes.
func (o *Steelyard) budget() push.Budget {
	if o.MinInterval > 0 {
		return push.Budget{MinInterval: o.MinInterval}
	}
	return o.Budget
}

// envoys is how the Envoys pick.
func (p *Policy) envoys() (policy Balancer, bias float64) {
	policy, bias = p.Balancer, p.Bias
	if p.Steelyard != nil {
		policy, bias = p.Steelyard.EnvoyPolicy, p.Steelyard.Bias
	}
	switch {
	case bias == 0:
		bias = 1
	case bias < 0:
		bias = 0
	}
	return policy, bias
}
