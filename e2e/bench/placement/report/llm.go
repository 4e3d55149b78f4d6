package report

import (
	"fmt"
	"math"
	"slices"
	"time"

	"steelyard/e2e/bench/placement/stats"
	"steelyard/e2e/rig/load"
)

// An LLMMeasurement is what one policy did with requests to language models. Slices
// hold one value for each request, in order of arrival, unless they say otherwise;
// times are in seconds, and NaN where a request has none.
type LLMMeasurement struct {
	Policy string // as in the JSON

	FirstToken []float64 // from when the request was due
	PerToken   []float64 // mean time between two tokens
	EndToEnd   []float64 // from when the request was due to the last token
	Lateness   []float64 // of the generator
	Errors     int
	FirstError string // what the first of them was; empty without one

	Running     []float64 // mean number of requests running, of each engine
	CachedShare float64   // of the prompts' tokens, those that were in a prefix cache
	Cost        Cost
}

// An LLMRow is a measurement in figures. The first block has the keys of the rows of
// `steelyard simulate --scenario llm --json`. Times are in seconds.
type LLMRow struct {
	Policy   string `json:"policy"`
	Requests int    `json:"requests"`
	TTFTP50  Number `json:"ttft_p50"`
	TTFTP90  Number `json:"ttft_p90"`
	TTFTP99  Number `json:"ttft_p99"`
	TTFTMean Number `json:"ttft_mean"`
	TPOTP99  Number `json:"tpot_p99"`
	E2EP50   Number `json:"e2e_p50"`
	E2EP99   Number `json:"e2e_p99"`

	Errors     int    `json:"errors"`
	FirstError string `json:"first_error,omitempty"`
	TTFTP50CI  CI     `json:"ttft_p50_ci"`
	TTFTP99CI  CI     `json:"ttft_p99_ci"`
	TPOTP99CI  CI     `json:"tpot_p99_ci"`
	E2EP50CI   CI     `json:"e2e_p50_ci"`

	// Of is what the row is of the references, by their names.
	Of map[string]LLMRatios `json:"of"`

	// RunningSpread is how far the mean number of requests running at an engine is, at
	// most, from that of all engines, as a share of it.
	RunningSpread Number `json:"running_spread"`
	// CachedShare is the share of the prompts' tokens that were in a prefix cache.
	CachedShare Number `json:"cached_share"`

	EnvoyCPU           Number `json:"envoy_cpu_cores"`       // mean over the Envoys
	EnvoyCPUPerRequest Number `json:"envoy_cpu_per_request"` // seconds
	ControlCPU         Number `json:"control_cpu_cores"`
	ControlRSS         Number `json:"control_rss_bytes"`
	Pushes             Number `json:"pushes_per_second"`
	Suppressed         Number `json:"suppressed_pushes_per_second"`

	LatenessP50 Number `json:"lateness_p50"`
	LatenessP99 Number `json:"lateness_p99"`
	LatenessMax Number `json:"lateness_max"`

	firstToken []float64 // ascending, for plots
}

// LLMRatios are figures of a row divided by those of another.
type LLMRatios struct {
	TTFTP99   Number `json:"ttft_p99"`
	TTFTP99CI CI     `json:"ttft_p99_ci"`
	TTFTMean  Number `json:"ttft_mean"`
	TPOTP99   Number `json:"tpot_p99"`
	TPOTP99CI CI     `json:"tpot_p99_ci"`
	E2EP50    Number `json:"e2e_p50"`
	E2EP50CI  CI     `json:"e2e_p50_ci"`
}

// The rows of the LLM bench that others are held against, besides leastRequest.
const (
	fewestInFlight = "fewest_in_flight"
	leastWork      = "least_work"
)

var llmReferences = []string{leastRequest, fewestInFlight, leastWork}

// NewLLMRows makes the rows of measurements of the same requests, in their order.
func NewLLMRows(all []LLMMeasurement, b stats.Bootstrap) ([]LLMRow, error) {
	var first, each, end [][]float64
	for _, m := range all {
		if len(m.FirstToken) != len(all[0].FirstToken) {
			return nil, fmt.Errorf("comparing %s with %s: %d requests and %d, want the same ones",
				m.Policy, all[0].Policy, len(m.FirstToken), len(all[0].FirstToken))
		}
		first, each, end = append(first, m.FirstToken), append(each, m.PerToken), append(end, m.EndToEnd)
	}
	q := llmQuantiles{
		first: b.Quantiles(first, p50, p90, p99), each: b.Quantiles(each, p99), end: b.Quantiles(end, p50, p99),
	}
	rows := make([]LLMRow, len(all))
	for i, m := range all {
		rows[i] = newLLMRow(m)
		q.fill(&rows[i], i)
	}
	for _, reference := range llmReferences {
		if under := slices.IndexFunc(rows, func(r LLMRow) bool { return r.Policy == reference }); under >= 0 {
			for i := range rows {
				rows[i].Of[reference] = q.ratios(rows, i, under)
			}
		}
	}
	return rows, nil
}

// newLLMRow returns the figures of one measurement.
func newLLMRow(m LLMMeasurement) LLMRow {
	lateness := load.Summarize(known(m.Lateness))
	u := m.Cost.usage()
	r := LLMRow{
		Policy: m.Policy, Requests: len(m.FirstToken), Errors: m.Errors, FirstError: m.FirstError,
		Of:            make(map[string]LLMRatios),
		RunningSpread: spreadOf(m.Running), CachedShare: Number(m.CachedShare),
		EnvoyCPU: u.envoyCPU, EnvoyCPUPerRequest: unknown,
		ControlCPU: u.controlCPU, ControlRSS: u.controlRSS, Pushes: u.pushes, Suppressed: u.suppressed,
		LatenessP50: Number(lateness.P50), LatenessP99: Number(lateness.P99), LatenessMax: Number(lateness.Max),
		firstToken: known(m.FirstToken),
	}
	r.TTFTMean = mean(r.firstToken)
	if len(m.Cost.Envoys) > 0 && r.Requests > 0 {
		// The cost is of the time in which these requests arrived.
		r.EnvoyCPUPerRequest = mean(m.Cost.Envoys) * Number(len(m.Cost.Envoys)) / Number(r.Requests)
	}
	return r
}

// spreadOf returns the largest distance of a value from the mean of all, as a share of it.
func spreadOf(values []float64) Number {
	center := float64(mean(values))
	most := math.NaN()
	for _, v := range values {
		if off := math.Abs(v/center - 1); !(off <= most) {
			most = off
		}
	}
	return Number(most)
}

// llmQuantiles has the quantiles of times to the first token, per token and to the end.
type llmQuantiles struct{ first, each, end *stats.Quantiles }

// fill sets the quantiles of a row, which is series i.
func (q llmQuantiles) fill(r *LLMRow, i int) {
	r.TTFTP50, r.TTFTP50CI = Number(q.first.Value(i, p50)), ciOf(q.first.Interval(i, p50))
	r.TTFTP90 = Number(q.first.Value(i, p90))
	r.TTFTP99, r.TTFTP99CI = Number(q.first.Value(i, p99)), ciOf(q.first.Interval(i, p99))
	r.TPOTP99, r.TPOTP99CI = Number(q.each.Value(i, p99)), ciOf(q.each.Interval(i, p99))
	r.E2EP50, r.E2EP50CI = Number(q.end.Value(i, p50)), ciOf(q.end.Interval(i, p50))
	r.E2EP99 = Number(q.end.Value(i, p99))
}

func (q llmQuantiles) ratios(rows []LLMRow, over, under int) LLMRatios {
	a, b := rows[over], rows[under]
	return LLMRatios{
		TTFTP99: a.TTFTP99 / b.TTFTP99, TTFTP99CI: ciOf(q.first.Ratio(over, under, p99)),
		TTFTMean: a.TTFTMean / b.TTFTMean,
		TPOTP99:  a.TPOTP99 / b.TPOTP99, TPOTP99CI: ciOf(q.each.Ratio(over, under, p99)),
		E2EP50: a.E2EP50 / b.E2EP50, E2EP50CI: ciOf(q.end.Ratio(over, under, p50)),
	}
}

// LLMConditions say under what the figures of an LLMDocument hold.
type LLMConditions struct {
	Started   time.Time `json:"started"`
	Trace     string    `json:"trace"`
	Source    string    `json:"source,omitempty"` // and licence, of the built-in trace
	From      float64   `json:"trace_from"`       // where in the trace the requests begin, as a share of it
	Rate      float64   `json:"requests_per_second"`
	Load      float64   `json:"load"`
	Envoys    int       `json:"envoys"`
	Workers   int       `json:"envoy_workers"` // of each Envoy
	Engines   int       `json:"engines"`
	Mixed     bool      `json:"every_third_engine_half_as_fast"`
	Burst     int       `json:"requests_at_the_same_moment"`
	Chunked   bool      `json:"bodies_without_content_length"`
	KVTokens  int       `json:"kv_cache_tokens"`
	Sequences int       `json:"max_sequences"`
	Seed      uint64    `json:"seed"`
	WarmUp    float64   `json:"warm_up_seconds"` // before the requests that count
	Block     float64   `json:"bootstrap_seconds"`
	Lateness  float64   `json:"lateness_limit_seconds"` // of the p99 of the generator's lateness
	Cores     int       `json:"cores"`
	Envoy     string    `json:"envoy"`

	Conversations bool `json:"conversations"` // that share beginnings, and engines with a prefix cache
}

// An LLMDocument is what the LLM bench found.
type LLMDocument struct {
	Valid       bool          `json:"valid"`
	Reasons     []string      `json:"reasons,omitempty"` // why it is not valid
	Conditions  LLMConditions `json:"conditions"`
	Rows        []LLMRow      `json:"rows"`
	Targets     []Target      `json:"targets"`
	MachineBusy Number        `json:"machine_busy"`    // share of all cores
	Again       []string      `json:"again,omitempty"` // what was measured again, and why
}

// NewLLMDocument judges the rows: where requests left late they are worth nothing.
func NewLLMDocument(c LLMConditions, rows []LLMRow, busy float64, again []string) LLMDocument {
	d := LLMDocument{Conditions: c, Rows: rows, Targets: c.targets(rows), MachineBusy: Number(busy), Again: again}
	for _, r := range rows {
		if late := float64(r.LatenessP99); !(late <= c.Lateness) {
			d.Reasons = append(d.Reasons, fmt.Sprintf("%s: the load generator was %.1f ms late at p99, limit %.1f ms",
				r.Policy, 1e3*late, 1e3*c.Lateness))
		}
	}
	d.Valid = len(d.Reasons) == 0
	return d
}
