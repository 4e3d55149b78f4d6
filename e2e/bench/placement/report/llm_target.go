package report

import (
	"fmt"
	"slices"

	"steelyard/sim/engine"
)

// The rows with Steelyard that targets speak of.
const (
	steelyardDefault = "steelyard"
	steelyardScrapes = "steelyard_scrapes"

	steelyardReplicas = steelyardDefault + connected
	steelyardCut      = steelyardDefault + cut
	steelyardPrefix   = steelyardDefault + "+module+prefix"
)

// The figures that targets speak of.
var (
	ttftP99  = llmFigure{"TTFT p99", func(r LLMRatios) (Number, CI) { return r.TTFTP99, r.TTFTP99CI }}
	ttftMean = llmFigure{"TTFT mean", func(r LLMRatios) (Number, CI) { return r.TTFTMean, ciOf(noInterval) }}
	tpotP99  = llmFigure{"time per output token p99", func(r LLMRatios) (Number, CI) { return r.TPOTP99, r.TPOTP99CI }}
	e2eP50   = llmFigure{"end to end p50", func(r LLMRatios) (Number, CI) { return r.E2EP50, r.E2EP50CI }}
)

type llmFigure struct {
	title string
	of    func(LLMRatios) (Number, CI)
}

// usualLoad is the load that most targets are about.
const usualLoad = 0.8

// targets returns the targets under the conditions. Under the usual ones (the built-in trace, engines with the default
// constants, equal or mixed) they require how much better Steelyard has to be; under all others it must not be worse
// than LEAST_REQUEST.
func (c LLMConditions) targets(rows []LLMRow) []Target {
	ratio := func(policy string, f llmFigure, reference string, limit Number) Target {
		return llmRatio(rows, policy, f, reference, limit)
	}
	usual := engine.Defaults()
	isUsual := c.Load == usualLoad && c.Burst == 1 && !c.Chunked && c.Source != "" &&
		c.KVTokens == usual.KVTokens && c.Sequences == usual.MaxSequences
	switch {
	case c.Conversations:
		return llmOfWeights(rows)
	case llmIndex(rows, steelyardReplicas) >= 0: // a bench of these only
		return []Target{llmOfOneReplica(rows), ratio(steelyardCut, ttftP99, leastRequest, 1)}
	case isUsual && c.Mixed:
		return []Target{
			ratio(steelyardDefault, ttftP99, leastRequest, 0.52),
			ratio(steelyardDefault, e2eP50, leastRequest, 0.92),
			ratio(steelyardScrapes, ttftP99, leastRequest, 1.05),
		}
	case isUsual:
		return []Target{
			ratio(steelyardDefault, ttftP99, leastRequest, 0.55),
			ratio(steelyardDefault, ttftP99, fewestInFlight, 0.85),
			ratio(steelyardDefault, ttftP99, leastWork, 1.12),
			ratio(steelyardDefault, ttftMean, leastRequest, 0.70),
			ratio(steelyardDefault, ttftMean, leastWork, 1.05),
			ratio(steelyardDefault, e2eP50, leastRequest, 1.03),
			ratio(steelyardDefault, tpotP99, leastRequest, 1.03),
			ratio(steelyardScrapes, ttftP99, leastRequest, 1.05),
			llmSpread(rows, steelyardDefault, 0.15),
			llmSpread(rows, steelyardScrapes, 0.15),
		}
	}
	return []Target{
		ratio(steelyardDefault, ttftP99, leastRequest, 1),
		ratio(steelyardDefault, ttftMean, leastRequest, 1),
		ratio(steelyardDefault, e2eP50, leastRequest, 1.03),
		ratio(steelyardDefault, tpotP99, leastRequest, 1.03),
		ratio(steelyardScrapes, ttftP99, leastRequest, 1.05),
	}
}

func llmTarget(text string, limit Number) Target {
	return Target{Text: text, Limit: limit, Measured: unknown, CI: ciOf(noInterval)}
}

// llmRatio returns a target for a figure of a row, as a multiple of a reference's.
func llmRatio(rows []LLMRow, policy string, f llmFigure, reference string, limit Number) Target {
	t := llmTarget(fmt.Sprintf("%s: %s, by that of %s", policy, f.title, reference), limit)
	if i := llmIndex(rows, policy); i >= 0 {
		if of, ok := rows[i].Of[reference]; ok {
			t.measure(f.of(of))
		}
	}
	return t
}

// llmOfWeights returns the targets of a choice by prompts, against the weights by work.
func llmOfWeights(rows []LLMRow) []Target {
	weights, prefix := llmIndex(rows, steelyardDefault), llmIndex(rows, steelyardPrefix)
	target := func(title string, limit Number, of func(LLMRow) Number) Target {
		t := llmTarget(fmt.Sprintf("%s: %s, by that of %s", steelyardPrefix, title, steelyardDefault), limit)
		t.AtLeast = limit > 1
		if weights >= 0 && prefix >= 0 {
			t.measure(of(rows[prefix])/of(rows[weights]), ciOf(noInterval))
		}
		return t
	}
	return []Target{
		target(ttftMean.title, 0.85, func(r LLMRow) Number { return r.TTFTMean }),
		target(e2eP50.title, 0.85, func(r LLMRow) Number { return r.E2EP50 }),
		target("cached share", 3, func(r LLMRow) Number { return r.CachedShare }),
	}
}

// llmOfOneReplica returns the target for two replicas.
func llmOfOneReplica(rows []LLMRow) Target {
	t := llmTarget(fmt.Sprintf("%s: %s, by that of %s", steelyardReplicas, ttftP99.title, steelyardDefault),
		ofOneReplica)
	one, two := llmIndex(rows, steelyardDefault), llmIndex(rows, steelyardReplicas)
	if one >= 0 && two >= 0 {
		t.measure(rows[two].TTFTP99/rows[one].TTFTP99, ciOf(noInterval))
	}
	return t
}

// llmSpread returns a target for how alike engines are used that are alike.
func llmSpread(rows []LLMRow, policy string, limit Number) Target {
	t := llmTarget(fmt.Sprintf("%s: mean requests running at an engine, off those of all by", policy), limit)
	if i := llmIndex(rows, policy); i >= 0 {
		t.measure(rows[i].RunningSpread, ciOf(noInterval))
	}
	return t
}

func llmIndex(rows []LLMRow, policy string) int {
	return slices.IndexFunc(rows, func(r LLMRow) bool { return r.Policy == policy })
}
