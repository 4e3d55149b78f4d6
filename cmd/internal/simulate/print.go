package simulate

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"steelyard/cmd/internal/table"
	"steelyard/controlplane/config"
	"steelyard/sim"
	"steelyard/sim/trace"
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
		line("  shares: %s   # of the traffic", written(reflect.ValueOf(s.EnvoyShares)))
	}
	line("pods:")
	for _, g := range s.Pods {
		line("- %s", section(podsOfGroup(g), g.Engine == nil))
	}
	if s.Rate > 0 {
		line("rate: %s                # requests per second", number(s.Rate))
	} else {
		line("load: %s               # traffic, as a part of what the pods can do", number(s.Load))
	}
	if s.Prompts != nil {
		line("prompts: %s", section(promptsOf(s.Prompts), true))
	} else {
		v := service(s.Service)
		v.Kind = serviceKind(s.Service)
		line("service: %s", section(v, true))
	}
	if s.Signals != (sim.Signals{}) {
		line("signals: %s", section(signals(s.Signals), false))
	}
	if len(s.Events) > 0 {
		line("events:")
	}
	for _, e := range s.Events {
		line("- %s", section(event(e), false))
	}
	return b.String()
}

// podsOfGroup is the section that is read as this group.
func podsOfGroup(g sim.PodGroup) pods {
	p := pods{Count: g.Count, Slots: g.Slots, Speed: speedOf(g), Zone: g.Zone, Metrics: metrics(g.Metrics)}
	if g.Sharing {
		p.SlowDown = g.SlowDown
	}
	if g.Engine != nil {
		p.Slots, p.Engine = 1, new(batching(*g.Engine)) // 1 is not written
	}
	return p
}

func promptsOf(p *sim.Prompts) prompts {
	return prompts{
		Conversations: p.Trace == trace.Conversations(), Cached: p.Cached,
		BytesPerToken: cmp.Or(p.BytesPerToken, sim.DefaultBytesPerToken),
		BytesSpread:   max(0, cmp.Or(p.BytesSpread, sim.DefaultBytesSpread)), Chunked: p.Chunked,
	}
}

// section writes a part of a file in one line, without what is not set. Keys that have their defaults are shown only in
// parts of which all is to be seen, and not in the parts of those.
func section(values any, all bool) string {
	v := reflect.ValueOf(values)
	var keys []string
	for i := range v.NumField() {
		value, tag := v.Field(i), v.Type().Field(i).Tag
		text := written(value)
		if _, named := tag.Lookup("oneof"); named {
			text = value.String()
		}
		standard, has := tag.Lookup("default")
		_, required := tag.Lookup("required")
		if required || has && (all || text != standard) || !has && !value.IsZero() {
			keys = append(keys, tag.Get("yaml")+": "+text)
		}
	}
	return "{" + strings.Join(keys, ", ") + "}"
}

// written is a value in a file.
func written(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return strings.Replace(config.DurationText(x), "µ", "u", 1)
	case float64:
		return number(x)
	case string:
		return quoted(x)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return ""
		}
		return written(v.Elem())
	case reflect.Struct:
		return section(v.Interface(), false)
	case reflect.Slice:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = written(v.Index(i))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return fmt.Sprint(v)
}

// summary is a scenario in one line.
func summary(s sim.Scenario) string {
	parts := []string{table.Count(s.Envoys, "Envoy"), podsText(s.Pods)}
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
		parts = append(parts, "signals "+section(signals(s.Signals), false))
	}
	if text := eventsText(s.Events); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

func podsText(groups []sim.PodGroup) string {
	texts := make([]string, len(groups))
	for i, p := range groups {
		switch {
		case p.Engine != nil && i == 0:
			texts[i] = table.Count(p.Count, "engine")
		case p.Engine != nil:
			texts[i] = strconv.Itoa(p.Count)
		case i == 0:
			texts[i] = fmt.Sprintf("%s of %s", table.Count(p.Count, "pod"), table.Count(p.Slots, "slot"))
		default:
			texts[i] = fmt.Sprintf("%d of %s", p.Count, table.Count(p.Slots, "slot"))
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
	for _, e := range events {
		if kind := string(e.Kind); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return strings.Join(kinds, ", ")
}

func uneven(shares []float64) bool {
	return slices.ContainsFunc(shares, func(s float64) bool { return s != shares[0] })
}

func serviceKind(s sim.Service) sim.ServiceKind { return cmp.Or(s.Kind, sim.Exponential) }

func speedOf(p sim.PodGroup) float64 { return cmp.Or(p.Speed, 1) }

// number writes a number the way a person would.
func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// quoted is a text in a YAML file.
func quoted(s string) string { return strconv.Quote(s) }
