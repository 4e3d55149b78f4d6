package sim

import (
	"steelyard/sim/engine"
	"steelyard/weighting"
)

// remember keeps the page as it is before something changes, for as long as it may be shown. Of two changes at one time
// the last one counts.
func (p *pod) remember(now instant) {
	lag := at(max(p.metrics.GaugeLag, p.metrics.CounterLag))
	if lag == 0 {
		return
	}
	for p.pages.len() > 0 && p.pages.first().until < now-lag {
		p.pages.pop()
	}
	p.pages.push(shown{now, p.page()})
}

// pageAt is the page as it was at a time since the oldest that is remembered.
func (p *pod) pageAt(t instant) weighting.ServerReport {
	for i := range p.pages.len() {
		if s := p.pages.at(i); s.until >= t {
			return s.page
		}
	}
	return p.page()
}

// report is what is read from the server's page.
func (p *pod) report(now instant) weighting.ServerReport {
	gauges, r := p.pageAt(now-at(p.metrics.GaugeLag)), p.pageAt(now-at(p.metrics.CounterLag))
	r.Queue, r.Running, r.Utilization = gauges.Queue, gauges.Running, gauges.Utilization
	for _, reading := range []*weighting.Reading{
		&r.Queue, &r.Running, &r.Completions, &r.QueueSeconds, &r.BusySeconds,
	} {
		reading.At = now.time()
	}
	if p.metrics.NoRunning {
		r.Running = weighting.Reading{}
	}
	if p.engine != nil {
		r.Utilization.At = now.time()
		if r.Tokens.At = now.time(); p.metrics.NoTokens {
			r.Tokens = weighting.TokenCounts{}
		}
	}
	return r
}

// page is what the server exports, without the times.
func (p *pod) page() weighting.ServerReport {
	value := func(v float64) weighting.Reading { return weighting.Reading{Value: v} }
	queue, running := float64(p.queue.len()), float64(len(p.running))
	r := weighting.ServerReport{
		Completions: value(p.completions), QueueSeconds: value(p.queueSeconds), BusySeconds: value(p.busySeconds),
	}
	if p.engine != nil { // as vLLM's
		g, c := p.engine.Gauges(), p.engine.Counters()
		if p.hung {
			g = engine.Gauges{}
		}
		queue, running, r.Utilization = float64(g.Waiting), float64(g.Running), value(g.KVUsage)
		r.Tokens = tokens(&c, p.metrics.TokensAtEnd)
		r.Completions, r.QueueSeconds = value(float64(c.Finished)), value(c.Queue.Seconds())
		r.BusySeconds = value((c.Prefill + c.Decode).Seconds())
	}
	if p.hung {
		queue, running = 0, 0
	}
	if p.stuckRunning {
		running = 0
	}
	if p.stuckWaiting > 0 {
		queue = p.stuckWaiting
	}
	r.Queue, r.Running = value(queue), value(running)
	return r
}

// tokens is what an engine counts of tokens.
func tokens(c *engine.Counters, atEnd bool) weighting.TokenCounts {
	if atEnd {
		return weighting.TokenCounts{
			Prompt: float64(c.FinishedPrompt), Cached: float64(c.FinishedCached),
			Generated: float64(c.FinishedGeneration), First: float64(c.Finished),
		}
	}
	return weighting.TokenCounts{
		Prompt: float64(c.PromptTokens), Cached: float64(c.CachedTokens), Generated: float64(c.GenerationTokens),
		First: float64(c.FirstTokens), Iterations: float64(c.Iterations),
	}
}
