package weighting

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/weighting/health"
)

// The kinds of sources of loads, besides the scrapes that each of them has.
const (
	byScrapes     = "scrapes only"
	byRedis       = "Redis"
	byLoadReports = "load reports"
	byAccessLog   = "access log"
	byGauges      = "scrapes without counters"
	byRedisGauges = "Redis without counters"
)

var bySources = []string{byScrapes, byRedis, byLoadReports, byAccessLog, byGauges, byRedisGauges}

// withoutCounters are the sources that show no more of the requests that arrive than the moves of gauges.
var withoutCounters = []string{byGauges, byRedisGauges}

// A waysBack is a pool of four endpoints to which proxies send twenty requests a second by the law's shares. The last
// three answer at once; what happens at the first is the test's.
type waysBack struct {
	countedPool
	source string
	last   Decision
	due    [4]float64 // requests, a part of the next
	sent   float64    // to the first endpoint, since that was set to 0
	trials float64    // of these, in trials
	tried  bool       // the first endpoint, since that was set to false
	avoids bool       // the proxies send nothing to the first
	work   bool       // engines that count tokens

	took, counted         [4]float64 // seconds of answers, and how many these were
	queueSeconds, latency float64    // of the first: of each completed request, and of each answer
	refuses               bool       // scrapes of the first
	override              Override
	joins                 bool // the first is new
	asleep                bool // the first, as its report shows
}

func newWaysBack(source string, change func(w *waysBack, p *Params)) *waysBack {
	w := &waysBack{countedPool: *newCountedPool(4), source: source}
	p := DefaultParams()
	if change != nil {
		change(w, &p)
	}
	w.law.SetParams(p)
	w.alter = w.see
	return w
}

// see makes of an endpoint what the law sees of it by the source.
func (w *waysBack) see(i int, e *Endpoint) {
	b := &w.endpoints[i]
	if w.work {
		e.Server.Tokens = TokenCounts{At: e.Server.Queue.At, Prompt: 1000 * b.completed, First: b.completed,
			Generated: 200 * b.completed, Iterations: 20 * b.completed}
	}
	if i == 0 {
		e.Refused, e.Override = w.refuses, w.override
	}
	if i == 0 && w.asleep {
		e.Server.Awake = known(0, e.Server.Queue.At)
	}
	if i == 0 && w.queueSeconds > 0 {
		e.Server.QueueSeconds = known(b.completed*w.queueSeconds, e.Server.Queue.At)
	}
	seconds := 0.1
	if i == 0 && w.latency > 0 {
		seconds = w.latency
	}
	if !b.reportsOnly {
		w.took[i] += (b.answered - w.counted[i]) * seconds
		w.counted[i] = b.answered
		e.Proxies.LatencySeconds = known(w.took[i], w.now)
	}
	switch w.source {
	case byScrapes, byGauges:
		e.InFlight, e.Exact, e.Proxies = Reading{}, false, ProxyReport{}
	case byRedis, byRedisGauges:
		e.Exact, e.Proxies = false, ProxyReport{}
	}
	if slices.Contains(withoutCounters, w.source) {
		s := &e.Server
		s.Completions, s.QueueSeconds, s.BusySeconds, s.Tokens = Reading{}, Reading{}, Reading{}, TokenCounts{}
	}
}

// step sends what arrives within 100 ms, and has the law decide. first gets the requests of the first endpoint.
func (w *waysBack) step(first func(b *countedEndpoint, requests float64)) {
	const perStep = 2.0
	w.endpoints[0].reportsOnly = w.endpoints[0].reportsOnly || w.source == byLoadReports
	unflagged := slices.ContainsFunc(w.last.Endpoints, func(e EndpointDecision) bool { return !e.Overloaded })
	var used float64
	for i := range w.last.Endpoints {
		if e := &w.last.Endpoints[i]; (!e.Overloaded || !unflagged) && !(i == 0 && w.avoids) {
			used += e.Share
		}
	}
	for i := range w.last.Endpoints {
		e, b := &w.last.Endpoints[i], &w.endpoints[i]
		if i > 0 {
			b.inFlight, b.running, b.reportsOnly = 2, 2, w.source == byLoadReports
		}
		if e.Overloaded && unflagged || i == 0 && w.avoids {
			w.due[i] = 0
		} else {
			w.due[i] += e.Share / used * perStep
		}
		whole := math.Floor(w.due[i])
		w.due[i] -= whole
		if i > 0 {
			b.serve(whole)
			continue
		}
		w.sent += whole
		if w.law.memory["0"].health.Tried > 0 {
			w.trials += whole
		}
		first(b, whole)
	}
	w.last = w.countedPool.step()
	if m := w.law.memory["0"]; w.joins && m.established {
		m.established, m.firstSeen = false, w.now
	}
	w.tried = w.tried || w.law.memory["0"].health.Tried > 0
}

// isHealthy has a healthy server answer at once: its reports go on showing what they did.
func isHealthy(b *countedEndpoint, requests float64) {
	b.issued, b.ended, b.answered = b.issued+requests, b.ended+requests, b.answered+requests
	b.inFlight = 0
}

// A lesserState is a state in which an endpoint gets less than its share.
type lesserState struct {
	name    string
	covers  []string // what TestEveryStateHasAWayBack finds in the code
	sources []string // by which it can be found; nil: by all
	set     func(w *waysBack, p *Params)
	into    func(w *waysBack, b *countedEndpoint, requests float64) // at each step until it is in that state
	is      func(e *EndpointDecision, m *memory) bool
	full    bool // it is an overload, of which nothing but its own reports says that it ends
	kept    bool // an operator keeps it empty, by an override or by sleep: no way back but by its end
}

func flaggedFor(prefix string) func(e *EndpointDecision, m *memory) bool {
	return func(e *EndpointDecision, _ *memory) bool {
		return e.Overloaded && strings.Contains(e.OverloadReason, prefix)
	}
}

func because(r Reason) func(e *EndpointDecision, m *memory) bool {
	return func(e *EndpointDecision, _ *memory) bool { return !e.Overloaded && e.Reason == r }
}

// holds has requests run and wait without an answer.
func holds(queue, running float64) func(*waysBack, *countedEndpoint, float64) {
	return func(_ *waysBack, b *countedEndpoint, _ float64) {
		b.queue, b.running, b.inFlight = queue, running, queue+running
	}
}

// afterServing serves for some seconds first.
func afterServing(seconds float64, do func(*waysBack, *countedEndpoint, float64),
) func(*waysBack, *countedEndpoint, float64) {
	return func(w *waysBack, b *countedEndpoint, requests float64) {
		if w.now.Sub(epoch).Seconds() < seconds {
			b.serve(max(requests, 1))
			b.inFlight, b.running = 2, 2
			return
		}
		do(w, b, requests)
	}
}

func errs(_ *waysBack, b *countedEndpoint, requests float64) {
	b.serve(requests)
	b.errors += requests
	b.inFlight, b.running = 0, 0
}

var (
	counting, logging = []string{byLoadReports, byAccessLog}, []string{byAccessLog}
	withCounters      = []string{byScrapes, byRedis, byLoadReports, byAccessLog}
)

var lesserStates = []lesserState{
	{name: "flagged for its queue per slot", covers: []string{"queue per slot %.3g >= %.3g"},
		into: holds(40, 4), is: flaggedFor("queue per slot"), full: true},
	{name: "flagged for its queue of work", covers: []string{"%.0f requests wait", ", %.1f s of work"},
		sources: withCounters, set: func(w *waysBack, _ *Params) { w.work = true },
		into: afterServing(60, holds(400, 40)), is: flaggedFor("requests wait"), full: true},
	{name: "flagged for its KV cache", covers: []string{"utilization %.3g >= %.3g"},
		into: func(_ *waysBack, b *countedEndpoint, _ float64) { b.cache, b.running, b.inFlight = 0.99, 1, 1 },
		is:   flaggedFor("utilization"), full: true},
	{name: "flagged for its queue time", covers: []string{"mean queue time %.3g s >= %.3g s"},
		sources: withCounters,
		set: func(w *waysBack, p *Params) {
			w.queueSeconds, p.Overload.QueueTimeEnter, p.Overload.QueueTimeLeave = 9, 3*second, second
		},
		into: func(_ *waysBack, b *countedEndpoint, _ float64) { b.serve(1); b.running, b.inFlight = 2, 2 },
		is:   flaggedFor("mean queue time"), full: true},
	{name: "ejected, as its report contradicts the counts", sources: counting,
		covers: []string{"Ejected",
			"none of %.0f requests in flight ends, and its own report does not show them"},
		into: func(_ *waysBack, b *countedEndpoint, _ float64) { b.inFlight, b.running = 3, 0 },
		is:   flaggedFor("does not show them")},
	{name: "ejected, as its report stands still", sources: counting,
		covers: []string{"its own report shows %.0f requests, and nothing is done"},
		into: func(w *waysBack, b *countedEndpoint, _ float64) {
			if b.inFlight, b.running, b.tokens = 20, 20, max(b.tokens, 1); w.now.Sub(epoch) < time.Minute {
				b.serve(0.2)
				b.tokens += 20
			}
		},
		is: flaggedFor("nothing is done")},
	{name: "ejected, as it is silent", sources: counting,
		covers: []string{"none of %.0f requests in flight ends, and one takes %.3g s on average"},
		into:   afterServing(5, func(_ *waysBack, b *countedEndpoint, _ float64) { b.inFlight, b.silent = 3, true }),
		is:     flaggedFor("on average")},
	{name: "ejected, as it has answered nothing yet", sources: counting,
		covers: []string{"none of %.0f requests in flight ends, and one takes %.3g s elsewhere in the pool"},
		into:   func(_ *waysBack, b *countedEndpoint, _ float64) { b.inFlight, b.running = 3, 3 },
		is:     flaggedFor("elsewhere in the pool")},
	{name: "ejected, as requests fail", sources: logging,
		covers: []string{"failing: %.0f of the last %.0f requests failed"},
		into: func(w *waysBack, b *countedEndpoint, _ float64) {
			b.serve(1)
			b.failed += 0.7
			b.inFlight, b.running = 0, 0
		},
		is: flaggedFor("requests failed")},
	{name: "ejected, as requests end in errors", sources: counting,
		covers: []string{"failing: %.0f of the last %.0f requests ended in an error; other endpoints answer %.0f %%"},
		into:   errs, is: flaggedFor("ended in an error")},
	{name: "probed", covers: []string{"Probing"}, sources: counting,
		into: func(w *waysBack, b *countedEndpoint, _ float64) {
			if b.inFlight, b.running = 3, 0; w.last.Endpoints[0].Overloaded {
				b.inFlight = 0
			}
		},
		is: func(_ *EndpointDecision, m *memory) bool { return m.health.State == health.Probing }},
	{name: "probed, and only load reports are left", covers: []string{"fixed: trickle"}, sources: logging,
		into: func(w *waysBack, b *countedEndpoint, requests float64) {
			if errs(w, b, requests); w.law.memory["0"].health.State == health.Ejected {
				b.reportsOnly = true
			}
		},
		is: func(_ *EndpointDecision, m *memory) bool { return m.health.Blind }},
	{name: "above the level", covers: []string{"ReasonFloor"},
		into: holds(10, 4), is: because(ReasonFloor), full: true},
	{name: "waiting, with none that runs", covers: []string{"StateStuck"},
		into: holds(14, 0), is: because(ReasonFloor), full: true},
	{name: "slow", covers: []string{"ReasonSlow"}, sources: logging,
		set: func(w *waysBack, p *Params) { w.latency, p.LeastLatency.Enabled = 9, true },
		into: func(_ *waysBack, b *countedEndpoint, _ float64) {
			b.serve(1)
			b.inFlight, b.running = 20, 20
		},
		is: because(ReasonSlow)},
	{name: "not used", covers: []string{"ReasonUnused", "fixed: max(trickle, againstBias(load))", "fixed: 1"},
		sources: withCounters,
		into:    func(w *waysBack, b *countedEndpoint, _ float64) { w.avoids, b.inFlight, b.running = true, 0, 0 },
		is:      because(ReasonUnused)},
	{name: "without a report", covers: []string{"ReasonNeutral", "StateNeutral", "StateUnknown"},
		into: func(_ *waysBack, b *countedEndpoint, _ float64) { b.silent = true }, sources: []string{byScrapes},
		is: because(ReasonNeutral)},
	{name: "with a late report", covers: []string{"ReasonDecay", "StateDecay", "StateHold", "StateFresh"},
		into: afterServing(5, func(_ *waysBack, b *countedEndpoint, _ float64) { b.silent = true }),
		is:   because(ReasonDecay), sources: []string{byScrapes}},
	{name: "gone", covers: []string{"ReasonNeutral"},
		into: func(w *waysBack, _ *countedEndpoint, _ float64) { w.refuses = true }, is: because(ReasonNeutral)},
	{name: "new", covers: []string{"ReasonBlackout"},
		set:  func(w *waysBack, _ *Params) { w.joins = true },
		into: holds(10, 4), is: because(ReasonBlackout)},
	{name: "ramping", covers: []string{"ReasonRamp"},
		set:  func(w *waysBack, _ *Params) { w.joins = true },
		into: holds(10, 4), is: because(ReasonRamp)},
	{name: "drained", covers: []string{"ReasonDrained"}, kept: true,
		into: func(w *waysBack, _ *countedEndpoint, _ float64) { w.override = Override{Drained: true} },
		is:   because(ReasonDrained)},
	{name: "pinned", covers: []string{"ReasonPinned"}, kept: true,
		into: func(w *waysBack, _ *countedEndpoint, _ float64) { w.override = Override{Share: 1e-5} },
		is:   because(ReasonPinned)},
	{name: "asleep", covers: []string{"ReasonAsleep", "Asleep"}, kept: true,
		into: func(w *waysBack, _ *countedEndpoint, _ float64) { w.asleep = true },
		is:   func(e *EndpointDecision, _ *memory) bool { return e.Overloaded && e.Reason == ReasonAsleep }},
	{name: "ordinary", covers: []string{"Healthy", "ReasonFill", "fixed: 0"},
		into: func(_ *waysBack, b *countedEndpoint, requests float64) { isHealthy(b, requests) },
		is:   because(ReasonFill)},
}

// each runs a test in each state, by each source.
func each(t *testing.T, test func(t *testing.T, s *lesserState, w *waysBack)) {
	for i := range lesserStates {
		s := &lesserStates[i]
		for _, source := range bySources {
			if s.sources != nil && !slices.Contains(s.sources, source) {
				continue
			}
			t.Run(s.name+", by "+source, func(t *testing.T) {
				w := newWaysBack(source, s.set)
				for w.last.Endpoints == nil || !s.is(&w.last.Endpoints[0], w.law.memory["0"]) {
					w.step(func(b *countedEndpoint, n float64) { s.into(w, b, n) })
					if w.now.Sub(epoch) > 3*time.Minute {
						t.Fatalf("never in that state: %+v", w.last.Endpoints[0])
					}
				}
				test(t, s, w)
			})
		}
	}
}

// Whatever keeps requests from an endpoint: when all that its server reports stands still from then on, and the server
// is healthy, it is used again within a minute. Once an access log shows that, it is used like any other.
func TestNoStateIsWithoutAWayBack(t *testing.T) {
	each(t, func(t *testing.T, s *lesserState, w *waysBack) {
		w.sent, w.tried, w.avoids, w.refuses, w.latency = 0, false, false, false, 0
		b := &w.endpoints[0]
		b.inFlight = 0
		for range 600 {
			w.step(isHealthy)
		}
		if s.kept {
			want(t, "tried", w.tried, false)
			return
		}
		if w.sent < 1 {
			t.Errorf("%v requests in a minute: %s", w.sent, w.last.Endpoints[0].Reason)
		}
		if slices.Contains(withoutCounters, w.source) {
			for minute := range 6 { // and no gauge has moved since
				w.sent = 0
				for range 600 {
					w.step(isHealthy)
				}
				const most = 5 * 20.0 / 4 / 2 // half of its part, for five seconds
				if w.sent < 1 || s.full && w.sent > most {
					t.Errorf("%v requests in minute %d: %s", w.sent, minute+2, w.last.Endpoints[0].Reason)
				}
			}
		}
		if w.sent = 0; w.source == byAccessLog && !b.reportsOnly && !w.law.params.LeastLatency.Enabled {
			for range 100 {
				w.step(isHealthy)
			}
			if usual := 100 * 2.0 / 4; w.sent < usual/2 {
				t.Errorf("%v requests in ten seconds after that, of %v: %s", w.sent, usual, w.last.Endpoints[0].Reason)
			}
		}
	})
}

// An endpoint that is really full, where every further request waits, gets no more than one a minute by that.
func TestAFullEndpointGetsNoMoreThanOneRequestAMinute(t *testing.T) {
	each(t, func(t *testing.T, s *lesserState, w *waysBack) {
		if !s.full {
			return
		}
		w.trials = 0
		const minutes = 5
		for range 600 * minutes {
			w.step(func(b *countedEndpoint, n float64) {
				b.queue, b.inFlight, b.issued = b.queue+n, b.inFlight+n, b.issued+n
			})
		}
		if w.trials < minutes/2 || w.trials > minutes {
			t.Errorf("%v requests of trials in %v minutes, want one in each at most, and some", w.trials, minutes)
		}
	})
}

// The states above are all that there are: a new reason, state or flag needs a row there.
func TestEveryStateHasAWayBack(t *testing.T) {
	files, _ := filepath.Glob("*.go") // the patterns are valid
	ofHealth, _ := filepath.Glob("health/*.go")
	found, covered := map[string]bool{}, map[string]bool{}
	for _, name := range append(files, ofHealth...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		states(f, found)
	}
	for _, s := range lesserStates {
		for _, c := range s.covers {
			covered[c] = true
		}
	}
	for _, c := range slices.Sorted(maps.Keys(found)) {
		if !covered[c] {
			t.Errorf("no state of this test covers %q", c)
		}
	}
	for _, c := range slices.Sorted(maps.Keys(covered)) {
		if !found[c] {
			t.Errorf("%q is not in the code any more", c)
		}
	}
}

// states adds what may keep requests from an endpoint: reasons and states of health and of fields by name, what fixed
// returns, and the texts that flags and ejections have.
func states(f *ast.File, found map[string]bool) {
	texts := []string{"hysteresis", "queueReason", "finding"}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.GenDecl:
			kind := ""
			for _, spec := range d.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if !ok || d.Tok != token.CONST {
					continue
				}
				if of, ok := v.Type.(*ast.Ident); ok {
					kind = of.Name
				} else if v.Values != nil {
					kind = ""
				}
				if kind == "Reason" || kind == "State" || kind == "FieldState" {
					found[v.Names[0].Name] = true
				}
			}
		case *ast.FuncDecl:
			ast.Inspect(d, func(n ast.Node) bool {
				if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING && slices.Contains(texts, d.Name.Name) {
					if text := strings.Trim(s.Value, `"`); text != "" {
						found[text] = true
					}
				}
				if r, ok := n.(*ast.ReturnStmt); ok && d.Name.Name == "fixed" {
					found["fixed: "+types.ExprString(r.Results[0])] = true
				}
				return true
			})
		}
	}
}
