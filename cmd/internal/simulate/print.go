package simulate

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"steelyard/controlplane/config"
	"steelyard/weighting/sim"
	"steelyard/weighting/sim/engine"
	"steelyard/weighting/sim/trace"
)

// printed is a scenario as a file to start from; parsing it gives the scenario
// again.
func printed(s sim.Scenario) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# %s", summary(s))
	line("# Every key with its default: docs/simulate.md.")
	line("name: %s", quoted(s.Name))
	line("seed: %d", s.Seed)
	line("duration: %s", config.DurationText(s.Duration))
	line("warm_up: %s              # requests that arrive before this do not count", config.DurationText(s.WarmUp))
	line("")
	line("envoys:")
	line("  count: %d", s.Envoys)
	line("  workers: %d             # of each Envoy", max(1, s.Workers))
	if len(s.EnvoyShares) > 0 {
		line("  shares: %s   # of the traffic", flow(s.EnvoyShares, number))
	}
	line("pods:")
	for _, p := range s.Pods {
		line("- %s", group(p))
	}
	if s.Rate > 0 {
		line("rate: %s                # requests per second", number(s.Rate))
	} else {
		line("load: %s               # traffic, as a part of what the pods can do", number(s.Load))
	}
	if s.Prompts != nil {
		line("prompts: %s", sizes(s.Prompts))
	} else {
		line("service: %s", kindOf(s.Service))
	}
	if s.Signals != (sim.Signals{}) {
		line("signals: %s", onTheirWay(s.Signals))
	}
	if len(s.Events) > 0 {
		line("events:")
	}
	for _, e := range s.Events {
		line("- %s", happening(e))
	}
	return b.String()
}

// keys writes a section in one line, without those keys that say nothing.
type keys []string

func (k *keys) add(key, value string) { *k = append(*k, key+": "+value) }

func (k keys) String() string { return "{" + strings.Join(k, ", ") + "}" }

func group(p sim.PodGroup) string {
	var k keys
	k.add("count", strconv.Itoa(p.Count))
	if p.Engine != nil {
		k.add("engine", constants(p.Engine))
	} else {
		k.add("slots", strconv.Itoa(p.Slots))
	}
	if speed := speedOf(p); speed != 1 {
		k.add("speed", number(speed))
	}
	if p.Sharing && p.SlowDown > 0 {
		k.add("slow_down", number(p.SlowDown))
	}
	if p.Zone != "" {
		k.add("zone", quoted(p.Zone))
	}
	if p.Metrics != (sim.Metrics{}) {
		k.add("metrics", shortcomings(p.Metrics))
	}
	return k.String()
}

func shortcomings(m sim.Metrics) string {
	var k keys
	k.add("gauge_lag", config.DurationText(m.GaugeLag))
	k.add("counter_lag", config.DurationText(m.CounterLag))
	k.add("no_tokens", strconv.FormatBool(m.NoTokens))
	return k.String()
}

func constants(p *engine.Params) string {
	var k keys
	k.add("iteration", p.Iteration.String())
	k.add("sequence", strings.Replace(p.Sequence.String(), "µ", "u", 1))
	k.add("context", p.Context.String())
	k.add("prefill_rate", number(p.PrefillRate))
	k.add("token_budget", strconv.Itoa(p.TokenBudget))
	k.add("max_sequences", strconv.Itoa(p.MaxSequences))
	k.add("kv_tokens", strconv.Itoa(p.KVTokens))
	if p.PromptsFirst {
		k.add("prompts_first", "true")
	}
	if p.CacheTokens > 0 {
		k.add("cache_tokens", strconv.Itoa(p.CacheTokens))
	}
	return k.String()
}

func sizes(p *sim.Prompts) string {
	var k keys
	if p.Trace == trace.Conversations() {
		k.add("conversations", "true")
	}
	k.add("cached", number(p.Cached))
	k.add("bytes_per_token", number(cmp.Or(p.BytesPerToken, sim.DefaultBytesPerToken)))
	k.add("bytes_spread", number(max(0, cmp.Or(p.BytesSpread, sim.DefaultBytesSpread))))
	k.add("chunked", number(p.Chunked))
	return k.String()
}

func kindOf(s sim.Service) string {
	var k keys
	k.add("kind", string(serviceKind(s)))
	k.add("mean", config.DurationText(s.Mean))
	switch s.Kind {
	case sim.LogNormal:
		k.add("sigma", number(s.Sigma))
	case sim.TwoClass:
		k.add("long_share", number(s.LongShare))
		k.add("long_factor", number(s.LongFactor))
	}
	return k.String()
}

// onTheirWay describes delays and losses of signals, as far as the scenario sets them.
func onTheirWay(g sim.Signals) string {
	var k keys
	delay := func(key string, d *time.Duration) {
		if d != nil {
			k.add(key, config.DurationText(*d))
		}
	}
	delay("scrape_delay", g.ScrapeDelay)
	delay("delay", g.Delay)
	if g.Loss != nil {
		k.add("loss", number(*g.Loss))
	}
	delay("push_delay", g.PushDelay)
	return k.String()
}

func happening(e sim.Event) string {
	var k keys
	k.add("at", config.DurationText(e.At))
	k.add("kind", string(e.Kind))
	if len(e.Pods) > 0 && !ofTheWorld[e.Kind] {
		k.add("pods", flow(e.Pods, strconv.Itoa))
	}
	if withFactor[e.Kind] {
		k.add("factor", number(e.Factor))
	}
	if e.For > 0 && !atOnce[e.Kind] {
		k.add("for", config.DurationText(e.For))
	}
	return k.String()
}

func flow[T any](values []T, text func(T) string) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = text(v)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// summary is a scenario in one line.
func summary(s sim.Scenario) string {
	parts := []string{count(s.Envoys, "Envoy"), fleetText(s.Pods)}
	if s.Workers > 1 {
		parts[0] += fmt.Sprintf(" of %d workers", s.Workers)
	}
	if uneven(s.EnvoyShares) {
		parts[0] += " with uneven traffic"
	}
	if s.Rate > 0 {
		parts = append(parts, number(s.Rate)+" requests/s")
	} else {
		parts = append(parts, "load "+number(s.Load))
	}
	if s.Prompts != nil {
		parts = append(parts, "prompts of "+s.Prompts.Trace.Name)
	} else {
		parts = append(parts, fmt.Sprintf("%s service of %s", serviceKind(s.Service),
			config.DurationText(s.Service.Mean)))
	}
	if s.Signals != (sim.Signals{}) {
		parts = append(parts, "signals "+onTheirWay(s.Signals))
	}
	if text := eventsText(s.Events); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

func fleetText(groups []sim.PodGroup) string {
	texts := make([]string, len(groups))
	for i, p := range groups {
		switch {
		case p.Engine != nil && i == 0:
			texts[i] = count(p.Count, "engine")
		case p.Engine != nil:
			texts[i] = strconv.Itoa(p.Count)
		case i == 0:
			texts[i] = fmt.Sprintf("%s of %s", count(p.Count, "pod"), count(p.Slots, "slot"))
		default:
			texts[i] = fmt.Sprintf("%d of %s", p.Count, count(p.Slots, "slot"))
		}
		if speed := speedOf(p); speed != 1 {
			texts[i] += fmt.Sprintf(" at speed %.3g", speed)
		}
	}
	const most = 3
	if len(texts) > most {
		texts = append(texts[:most], fmt.Sprintf("%d more groups", len(texts)-most))
	}
	return strings.Join(texts, " and ")
}

// eventsText names the kinds of events, each once.
func eventsText(events []sim.Event) string {
	var kinds []string
	seen := map[sim.EventKind]bool{}
	for _, e := range events {
		if !seen[e.Kind] {
			seen[e.Kind] = true
			kinds = append(kinds, string(e.Kind))
		}
	}
	return strings.Join(kinds, ", ")
}

func uneven(shares []float64) bool {
	for _, s := range shares {
		if s != shares[0] {
			return true
		}
	}
	return false
}

func serviceKind(s sim.Service) sim.ServiceKind {
	if s.Kind == "" {
		return sim.Exponential
	}
	return s.Kind
}

func speedOf(p sim.PodGroup) float64 {
	if p.Speed == 0 {
		return 1
	}
	return p.Speed
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// number writes a number the way a person would.
func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// quoted is a text in a YAML file.
func quoted(s string) string { return strconv.Quote(s) }
