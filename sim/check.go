package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"steelyard/sim/trace"
	"steelyard/weighting"
	"steelyard/weighting/push"
	"steelyard/xds/envoyspec"
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

// mostRequests bounds a run: more would take hours, or more memory than there is.
const mostRequests = 1e8

// Check returns all mistakes of a scenario because of which it could not be run; nil if there are none. Whether its
// numbers make sense is for the caller to know: the reader of scenario files has a range for each.
func (s Scenario) Check() error {
	s = s.withDefaults()
	return s.check()
}

func (s *Scenario) check() error {
	var p problems
	p.want(s.Duration > 0, "duration %v: a positive time is needed", s.Duration)
	p.want(s.WarmUp >= 0 && s.WarmUp < s.Duration, "warm-up %v: it must be less than the duration, %v", s.WarmUp,
		s.Duration)
	p.want(s.Envoys >= 1 && s.Workers >= 1, "%d Envoys of %d workers: at least one is needed", s.Envoys, s.Workers)
	if n := len(s.EnvoyShares); n > 0 {
		p.want(n == s.Envoys && slices.Min(s.EnvoyShares) > 0, "envoy shares %v: a positive number is needed for each "+
			"of %d Envoys", s.EnvoyShares, s.Envoys)
	}
	kinds := []ServiceKind{Exponential, Deterministic, LogNormal, TwoClass}
	p.want(slices.Contains(kinds, s.Service.Kind), "service kind %q: one of %q", s.Service.Kind, kinds)
	p.want(s.Service.Mean > 0, "service mean %v: a positive time is needed", s.Service.Mean)
	s.checkPods(&p)
	if p == nil {
		s.checkEvents(&p)
	}
	if p == nil {
		rate := s.rate(s.capacity(s.pods()))
		p.want(rate > 0 && rate*s.Duration.Seconds() <= mostRequests,
			"%.3g requests per second for %v: set load or rate so that there are some, and no more than %.0e in all",
			rate, s.Duration, float64(mostRequests))
	}
	return errors.Join(p...)
}

func (s *Scenario) checkPods(p *problems) {
	var largest trace.Request
	if v := s.Prompts; v != nil {
		if v.Trace == nil || len(v.Trace.Requests) < 2 || v.Trace.Span() <= 0 {
			p.want(false, "prompts: a trace with two moments is needed")
			return
		}
		largest = v.Trace.Largest()
	}
	p.want(len(s.Pods) > 0, "pods: none, and there has to be a group")
	for i, g := range s.Pods {
		p.want((g.Engine != nil) == (s.Prompts != nil),
			"pods, group %d: engines need prompts, and pods with slots take none", i)
		p.want(g.Count >= 1 && g.Speed >= 0 && (g.Slots >= 1 || g.Engine != nil) && g.SlowDown >= 0,
			"pods, group %d: %d pods of %d slots at speed %v, slowed down by %v: at least one of each is needed, and "+
				"no number below zero", i, g.Count, g.Slots, g.Speed, g.SlowDown)
		if g.Engine == nil {
			continue
		}
		if err := g.Engine.Check(); err != nil {
			p.want(false, "pods, group %d: %w", i, err)
		}
		p.want(g.Engine.Fits(int(largest.Prompt), int(largest.Output)),
			"pods, group %d: the largest request, of %d and %d tokens, does not fit into the KV cache: it has to be "+
				"of %d tokens at least",
			i, largest.Prompt, largest.Output, largest.Prompt+largest.Output)
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

func (s *Scenario) checkEvents(p *problems) {
	last := len(s.all()) - 1
	for i, e := range s.Events {
		p.want(slices.Contains(eventKinds, e.Kind), "events, number %d: kind %q: one of %q", i, e.Kind, eventKinds)
		p.want(e.At >= 0 && e.For >= 0, "events, number %d: at %v for %v: neither may be negative", i, e.At, e.For)
		p.want(e.Factor > 0 || e.Kind != FlashCrowd && e.Kind != Slow && e.Kind != StuckWaiting,
			"events, number %d: %s by a factor of %v: a positive one is needed", i, e.Kind, e.Factor)
		for _, pod := range e.Pods {
			p.want(pod >= 0 && pod <= last, "events, number %d: pod %d: there are 0 to %d", i, pod, last)
		}
	}
}

var eventKinds = []EventKind{
	Join, Leave, Stall, Hang, Recover, Slow, StaleMetrics, FreshMetrics, StuckRunning, StuckWaiting, Eject, FlashCrowd,
	ControlPlaneAway,
}

type problems []error

func (p *problems) want(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

func (p Policy) withDefaults() Policy {
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
		return errors.Join(found...)
	}
	found.want(engines || !p.Steelyard.Picker.looks(), "a picker by prefix needs prompts, and the pods are no "+
		"engines")
	p.Steelyard.check(&found)
	return errors.Join(found...)
}

// checkPods reports pods that the policy cannot handle.
func (p *Policy) checkPods(engines bool, found *problems) {
	if p.Steelyard != nil {
		return
	}
	if p.byPrefix() {
		found.want(engines, "%s needs prompts, and the pods are no engines", p.Balancer)
	}
	switch p.Balancer {
	case FreeSlots, ShortestQueue:
		found.want(!engines, "%s needs slots, and the pods are engines: they have none", p.Balancer)
	case LeastWork, LeastWorkGuessed:
		found.want(engines, "%s needs prompts, and the pods are no engines", p.Balancer)
	}
}

func (o *Steelyard) check(found *problems) {
	sources := []Source{AccessLog, LoadReports, Redis, Scrape}
	balancers := []Balancer{RoundRobin, LeastRequest, Random}
	found.want(slices.Contains(sources, o.Source), "source %q: one of %q", o.Source, sources)
	pickers := []Picker{NoPicker, PickerWork, PickerPrefix, PickerShared}
	found.want(slices.Contains(pickers, o.Picker), "picker %q: one of %q", o.Picker, pickers)
	found.want(slices.Contains(balancers, o.EnvoyPolicy), "Envoy policy %q: one of %q", o.EnvoyPolicy, balancers)
	found.want(o.ReportInterval > 0, "report interval %v: a positive time is needed", o.ReportInterval)
	found.want(o.budget().MinInterval > 0, "least time between two pushes %v: a positive time is needed",
		o.budget().MinInterval)
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

// envoys is how the Envoys pick, and by which active_request_bias: Envoy's default, or that of steelyard bootstrap.
func (p *Policy) envoys() (policy Balancer, bias float64) {
	if p.Steelyard != nil {
		return p.Steelyard.EnvoyPolicy, 2
	}
	return p.Balancer, 1
}
