package report

import (
	"fmt"
	"math"
	"slices"
	"time"

	"steelyard/e2e/bench/placement/stats"
)

// A Target is a figure to reach, and what was reached.
type Target struct {
	Text     string `json:"target"`
	Measured Number `json:"measured"` // null where it is not known
	CI       CI     `json:"measured_ci"`
	Limit    Number `json:"limit"`              // measured may be at most this
	AtLeast  bool   `json:"at_least,omitempty"` // or, where this is set, at least
	Holds    bool   `json:"holds"`
}

// Known reports whether the target was measured.
func (t Target) Known() bool { return !math.IsNaN(float64(t.Measured)) }

// The figures of the endpoint picker in the request path (inference-extension EPP
// v1.5.0 at its defaults, ten real Envoys, 20 simulated pods, load 0.8, service
// 0.5 s): p99 of the wait in mean services, and what it adds to the median
// latency, in seconds.
const (
	pickerP99   = 3.9
	pickerAdded = 0.002
)

// The rows that targets speak of.
const (
	accessLog   = "steelyard_access_log"
	loadReports = "steelyard_lrs"
	redisCounts = "steelyard_redis"
	scrapeOnly  = "steelyard_scrape_1s"
)

// Targets checks sections against the targets of the placement. Service times
// and rows that were not run have none.
func Targets(sections []Section) []Target {
	var all []Target
	for _, s := range sections {
		switch s.Service {
		case time.Second:
			all = append(all, s.second()...)
		case 250 * time.Millisecond:
			all = append(all, s.ratio(accessLog, bound, 1.4)...)
		case 50 * time.Millisecond:
			all = append(all, s.ratio(accessLog, leastRequest, 0.75)...)
		}
		all = append(all, s.replicas(accessLog)...)
		all = append(all, s.module()...)
		if s.Service >= 250*time.Millisecond && s.Service <= time.Second {
			all = append(all, s.picker()...)
		}
	}
	return all
}

// second returns the targets at a service of one second.
func (s Section) second() []Target {
	return slices.Concat(
		s.ratio(accessLog, bound, 1.15),
		s.ratio(accessLog, leastRequest, 0.3),
		s.envoyCPU(accessLog, 0.02),
		s.ratio(loadReports, bound, 1.5),
		s.ratio(loadReports, leastRequest, 0.45),
		s.ratio(redisCounts, bound, 1.5),
		s.ratio(redisCounts, leastRequest, 0.45),
		s.ratio(scrapeOnly, leastRequest, 0.75),
	)
}

// ofOneReplica is what the wait of two replicas may be of that of one.
const ofOneReplica = 1.05

// The variants of a row that have two replicas: connected, and cut off from each other.
const connected, cut = "+replicas", "+cut"

// replicas returns the targets for two replicas, where they were run. Those that are cut off from each other herd
// nothing: they are no worse than Envoys on their own.
func (s Section) replicas(policy string) (all []Target) {
	if one, two := s.find(policy), s.find(policy+connected); one >= 0 && two >= 0 {
		t := s.target(fmt.Sprintf("%s: p99 of the wait, by that of %s", policy+connected, policy), ofOneReplica)
		t.measure(s.Rows[two].WaitP99/s.Rows[one].WaitP99, ciOf(noInterval))
		all = append(all, t)
	}
	return append(all, s.ratio(policy+cut, leastRequest, 1)...)
}

// The rows of the module inside Envoy: one that chooses at once, and one whose requests wait in their Envoys.
const (
	module      = accessLog + "+module"
	moduleQueue = module + "+queue"
)

// module returns the target for the module inside Envoy, where it was run. Where both rows were run, the better one is
// held to it.
func (s Section) module() []Target {
	limit := map[time.Duration]float64{time.Second: 1.05, 50 * time.Millisecond: 1.3}[s.Service]
	atOnce, queued := s.find(module), s.find(moduleQueue)
	switch {
	case limit == 0 || s.find(bound) < 0:
		return nil
	case queued < 0:
		return s.ratio(module, bound, limit)
	case atOnce < 0:
		return s.ratio(moduleQueue, bound, limit)
	}
	t := s.target(fmt.Sprintf("the better of %s and %s: p99 of the wait, by that of %s", module, moduleQueue, bound),
		limit)
	better := s.Rows[atOnce]
	if !(better.OfBound <= s.Rows[queued].OfBound) {
		better = s.Rows[queued]
	}
	t.measure(better.OfBound, better.OfBoundCI)
	return []Target{t}
}

// picker returns the targets against the endpoint picker. It was measured at 0.5 s,
// and its waits in mean services grow as the service gets shorter.
func (s Section) picker() []Target {
	i := s.find(accessLog)
	if i < 0 || s.find(leastRequest) < 0 {
		return nil
	}
	wait := s.target(fmt.Sprintf("%s: p99 of the wait below the in-path endpoint picker's, in mean services",
		accessLog), pickerP99)
	added := s.target(fmt.Sprintf("%s: median latency added to %s, below the picker's, in seconds", accessLog,
		leastRequest), pickerAdded)
	wait.measure(s.Rows[i].WaitP99, s.Rows[i].WaitP99CI)
	added.measure(s.Rows[i].AddedP50Over, ciOf(noInterval))
	return []Target{wait, added}
}

// noInterval is the interval of figures that are not resampled.
var noInterval = stats.Interval{Low: math.NaN(), High: math.NaN()}

func (s Section) target(text string, limit float64) Target {
	return Target{
		Text: fmt.Sprintf("%v service: %s", s.Service, text), Limit: Number(limit),
		Measured: unknown, CI: ciOf(noInterval),
	}
}

// measure fills in a measured figure, unless it is unknown.
func (t *Target) measure(v Number, ci CI) {
	t.Measured, t.CI = v, ci
	if t.Holds = v <= t.Limit; t.AtLeast {
		t.Holds = v >= t.Limit
	}
}

// ratio returns the target for the quotient of a row's p99 and that of a reference in its
// group, if both were run.
func (s Section) ratio(policy, reference string, limit float64) []Target {
	i := s.find(policy)
	if i < 0 || s.find(reference) < 0 {
		return nil
	}
	t := s.target(fmt.Sprintf("%s: p99 of the wait, by that of %s", policy, reference), limit)
	switch reference {
	case leastRequest:
		t.measure(s.Rows[i].OfLeastRequest, s.Rows[i].OfLeastRequestCI)
	case bound:
		t.measure(s.Rows[i].OfBound, s.Rows[i].OfBoundCI)
	}
	return []Target{t}
}

// envoyCPU returns the target for what the busiest Envoy of a row uses more than those
// of LEAST_REQUEST do on average, in cores, if both were run.
func (s Section) envoyCPU(policy string, limit float64) []Target {
	i := s.find(policy)
	if i < 0 || s.find(leastRequest) < 0 {
		return nil
	}
	t := s.target(fmt.Sprintf("%s: CPU of the busiest Envoy above %s, in cores", policy, leastRequest), limit)
	t.measure(s.Rows[i].EnvoyCPUMaxOver, ciOf(noInterval))
	return []Target{t}
}
