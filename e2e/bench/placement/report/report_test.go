package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/bench/placement/stats"
)

var bootstrap = stats.Bootstrap{Block: 10, Resamples: 200, Seed: 1}

// measurement returns a row with exponential waits of the given mean, in services;
// rows of one seed are paired, so that their quantiles have the same ratio.
func measurement(policy string, service time.Duration, mean float64) Measurement {
	r := rand.New(rand.NewPCG(7, 0))
	m := Measurement{Policy: policy, Title: "Title of " + policy, Service: service, Group: 1}
	for range 2000 {
		m.Waits = append(m.Waits, mean*service.Seconds()*r.ExpFloat64())
		m.Added = append(m.Added, 0.003)
		m.Lateness = append(m.Lateness, 0.001)
	}
	m.Cost = Cost{Seconds: 100, Envoys: []float64{1, 2, 3}}
	if strings.HasPrefix(policy, "steelyard") {
		m.Cost = Cost{Seconds: 100, Envoys: []float64{2, 3, 4.5}, Control: true, ControlCPU: 5, ControlRSS: 64 << 20,
			Pushes: 8000, Suppressed: 200}
	}
	return m
}

func section(t *testing.T, service time.Duration, all ...Measurement) Section {
	t.Helper()
	s, err := NewSection(service, all, bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func someSection(t *testing.T, service time.Duration) Section {
	t.Helper()
	return section(t, service,
		measurement("least_request", service, 2),
		measurement("steelyard_access_log", service, 0.5),
		measurement("shortest_queue", service, 0.4),
	)
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

func TestARowIsItsMeasurementInFigures(t *testing.T) {
	m := measurement("steelyard_lrs", 500*time.Millisecond, 1)
	m.Waits[3], m.Added[3], m.Errors, m.FirstError = math.NaN(), math.NaN(), 1, "status 503 (due at 1s)"
	row := section(t, 500*time.Millisecond, m).Rows[0]
	if row.FirstError != m.FirstError {
		t.Errorf("the first failed with %q", row.FirstError)
	}
	waits := known(m.Waits)
	tests := []struct {
		name      string
		got, want float64
	}{
		{"service", float64(row.Service), 0.5},
		{"requests", float64(row.Requests), 2000},
		{"errors", float64(row.Errors), 1},
		{"p50", float64(row.WaitP50), waits[999] / 0.5},
		{"p90", float64(row.WaitP90), waits[1799] / 0.5},
		{"p99", float64(row.WaitP99), waits[1979] / 0.5},
		{"added p50", float64(row.AddedP50), 0.003},
		{"added p99", float64(row.AddedP99), 0.003},
		{"Envoy CPU", float64(row.EnvoyCPU), 9.5 / 300},
		{"busiest Envoy", float64(row.EnvoyCPUMax), 0.045},
		{"steelyard CPU", float64(row.ControlCPU), 0.05},
		{"steelyard RSS", float64(row.ControlRSS), 64 << 20},
		{"pushes", float64(row.Pushes), 80},
		{"suppressed", float64(row.Suppressed), 2},
		{"lateness p50", float64(row.LatenessP50), 0.001},
		{"lateness p99", float64(row.LatenessP99), 0.001},
		{"lateness max", float64(row.LatenessMax), 0.001},
	}
	for _, tt := range tests {
		if !near(tt.got, tt.want) {
			t.Errorf("%s is %v, want %v", tt.name, tt.got, tt.want)
		}
	}
	for name, ci := range map[string]CI{"p50": row.WaitP50CI, "p90": row.WaitP90CI, "p99": row.WaitP99CI} {
		if !(ci[0] < ci[1]) {
			t.Errorf("the interval of %s is %v, want a lower and a higher end", name, ci)
		}
	}
}

// Two groups whose references differ, as those of a machine that had other work do.
func twoGroups(t *testing.T) Section {
	t.Helper()
	of := func(group int, m Measurement) Measurement {
		m.Group = group
		return m
	}
	return section(t, time.Second,
		of(1, measurement("least_request", time.Second, 2)),
		of(2, measurement("least_request", time.Second, 4)),
		of(1, measurement("steelyard_lrs", time.Second, 0.5)),
		of(2, measurement("steelyard_access_log", time.Second, 0.5)),
		of(1, measurement("shortest_queue", time.Second, 0.25)),
		of(2, measurement("shortest_queue", time.Second, 0.4)),
	)
}

func TestRowsAreHeldAgainstTheReferencesOfTheirGroup(t *testing.T) {
	s := twoGroups(t)
	var got []string
	for _, r := range slices.Concat(s.Rows, s.References) {
		got = append(got, fmt.Sprintf("%s %d: %.3g %.3g", r.Policy, r.Group, float64(r.OfLeastRequest),
			float64(r.OfBound)))
	}
	want := []string{
		"least_request 1: 1 8", "steelyard_lrs 1: 0.25 2", "steelyard_access_log 2: 0.125 1.25",
		"shortest_queue 1: 0.125 1",
		"least_request 2: 1 10", "shortest_queue 2: 0.1 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("rows and references %q, want %q", got, want)
	}
	log := s.Rows[2]
	for _, tt := range []struct {
		name      string
		got, want float64
	}{
		{"CPU over LEAST_REQUEST", float64(log.EnvoyCPUOver), 9.5/300 - 0.02},
		{"CPU of the busiest over LEAST_REQUEST", float64(log.EnvoyCPUMaxOver), 0.025},
		{"latency over LEAST_REQUEST", float64(log.AddedP50Over), 0},
	} {
		if !near(tt.got, tt.want) {
			t.Errorf("%s is %v, want %v", tt.name, tt.got, tt.want)
		}
	}
	if target := s.ratio("steelyard_access_log", "shortest_queue", 1.3)[0]; !near(float64(target.Measured), 1.25) ||
		!target.Holds {
		t.Errorf("the target is judged as %v, want by the reference of group 2", target)
	}
}

func TestEveryPolicyIsOneRowNextToOtherReferences(t *testing.T) {
	run := NewRun([]Section{twoGroups(t)}, nil, nil)
	text, err := json.Marshal(NewDocument(Conditions{Lateness: 0.05}, run, []Run{run}))
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Rows, References []struct{ Policy string } }
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 4 || len(got.References) != 2 || got.References[0].Policy != "least_request" {
		t.Errorf("%d rows and references %v, want 4 and those of group 2", len(got.Rows), got.References)
	}
	var b bytes.Buffer
	if err := NewDocument(Conditions{}, run, []Run{run}).Write(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "In 2 groups") || !strings.Contains(b.String(), "group 2 at 1 s") {
		t.Errorf("the table does not speak of both groups, lateness included:\n%s", b.String())
	}
}

func TestRowsOfDifferentRequestsAreNotCompared(t *testing.T) {
	a, b := measurement("a", time.Second, 1), measurement("b", time.Second, 1)
	b.Waits = b.Waits[1:]
	if _, err := NewSection(time.Second, []Measurement{a, b}, bootstrap); err == nil ||
		!strings.Contains(err.Error(), "1999 requests and 2000") {
		t.Errorf("error %v, want one that names the numbers of requests", err)
	}
}

func TestTargetsCompareRows(t *testing.T) {
	run := NewRun([]Section{someSection(t, time.Second), someSection(t, 250*time.Millisecond),
		someSection(t, 50*time.Millisecond), someSection(t, 5*time.Second)}, nil, nil)
	tests := []struct {
		text     string // part of it
		measured float64
		limit    float64
		holds    bool
	}{
		{"1s service: steelyard_access_log: p99 of the wait, by that of shortest_queue", 1.25, 1.15, false},
		{"1s service: steelyard_access_log: p99 of the wait, by that of least_request", 0.25, 0.3, true},
		{"1s service: steelyard_access_log: CPU of the busiest Envoy", 0.025, 0.02, false},
		{"250ms service: steelyard_access_log: p99 of the wait, by that of shortest_queue", 1.25, 1.4, true},
		{"50ms service: steelyard_access_log: p99 of the wait, by that of least_request", 0.25, 0.75, true},
		{"1s service: steelyard_access_log: median latency added", 0, 0.002, true},
	}
	for _, tt := range tests {
		i := slices.IndexFunc(run.Targets, func(x Target) bool { return strings.Contains(x.Text, tt.text) })
		if i < 0 {
			t.Errorf("there is no target %q", tt.text)
			continue
		}
		got := run.Targets[i]
		if !near(float64(got.Measured), tt.measured) || float64(got.Limit) != tt.limit || got.Holds != tt.holds {
			t.Errorf("%q: measured %v, limit %v, holds %t; want %v, %v, %t", tt.text, got.Measured, got.Limit,
				got.Holds, tt.measured, tt.limit, tt.holds)
		}
		if strings.HasPrefix(got.String(), "MISSED") == tt.holds {
			t.Errorf("%q reads %q", tt.text, got)
		}
	}
	for _, target := range run.Targets {
		for _, row := range []string{"steelyard_lrs", "steelyard_redis", "steelyard_scrape_1s", "module"} {
			if strings.Contains(target.Text, row) {
				t.Errorf("there is a target for a row that was not run: %v", target)
			}
		}
	}
	alone := section(t, time.Second, measurement("steelyard_access_log", time.Second, 1))
	if all := Targets([]Section{alone}); len(all) > 0 {
		t.Errorf("there are targets by references that were not run: %v", all)
	}
	if i := slices.IndexFunc(run.Targets, func(x Target) bool { return strings.HasPrefix(x.Text, "5s") }); i >= 0 {
		t.Errorf("there is a target for a service time that none speaks of: %v", run.Targets[i])
	}
}

func TestTwoReplicasHaveTargetsWhereTheyAreRun(t *testing.T) {
	s := section(t, 50*time.Millisecond,
		measurement("least_request", 50*time.Millisecond, 2),
		measurement("steelyard_access_log", 50*time.Millisecond, 1),
		measurement("steelyard_access_log+replicas", 50*time.Millisecond, 1.1),
		measurement("steelyard_access_log+cut", 50*time.Millisecond, 1.9))
	const wait = "50ms service: steelyard_access_log%s: p99 of the wait, by that of %s: %.3g"
	got := fmt.Sprint(Targets([]Section{s}))
	for _, want := range []string{
		"MISSED    " + fmt.Sprintf(wait, "+replicas", "steelyard_access_log", 1.1),
		"holds     " + fmt.Sprintf(wait, "+cut", "least_request", 0.95),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in %s", want, got)
		}
	}
	if got := fmt.Sprint(Targets([]Section{someSection(t, time.Second)})); strings.Contains(got, "+") {
		t.Errorf("a target of replicas that were not run: %s", got)
	}
}

func TestARowWhoseWaitsHaveTheWayAddsNothingThatIsKnown(t *testing.T) {
	m := measurement("queued", time.Second, 1)
	for i := range m.Added {
		m.Added[i] = math.NaN()
	}
	row := section(t, time.Second, m).Rows[0]
	if !math.IsNaN(float64(row.AddedP50)) || !math.IsNaN(float64(row.AddedP99)) {
		t.Errorf("it adds %v and %v, want unknown", row.AddedP50, row.AddedP99)
	}
}

func TestTheBetterRowOfTheModuleIsHeldToItsTarget(t *testing.T) {
	const service = 50 * time.Millisecond
	atOnce, worse := measurement(module, service, 0.5), measurement(module, service, 0.6)
	queued := measurement(moduleQueue, service, 0.55)
	for _, tt := range []struct {
		name     string
		rows     []Measurement
		measured float64
		text     string
	}{
		{"alone", []Measurement{atOnce}, 1.25, "50ms service: " + module + ": p99"},
		{"the queue alone", []Measurement{queued}, 1.375, "50ms service: " + moduleQueue + ": p99"},
		{"at once", []Measurement{queued, atOnce}, 1.25, "the better of " + module + " and " + moduleQueue},
		{"queued", []Measurement{worse, queued}, 1.375, "the better of " + module + " and " + moduleQueue},
	} {
		all := section(t, service, append(tt.rows, measurement("shortest_queue", service, 0.4))...).module()
		if len(all) != 1 {
			t.Fatalf("%s: %d targets, want 1", tt.name, len(all))
		}
		got := all[0]
		if !near(float64(got.Measured), tt.measured) || got.Limit != 1.3 || got.Holds != (tt.measured <= 1.3) ||
			!strings.Contains(got.Text, tt.text) || math.IsNaN(float64(got.CI[0])) {
			t.Errorf("%s: %+v, want %v of at most 1.3, and %q", tt.name, got, tt.measured, tt.text)
		}
	}
	if all := someSection(t, service).module(); len(all) > 0 {
		t.Errorf("without the module: %v", all)
	}
}

func TestATargetHasTheMarginOfItsMiss(t *testing.T) {
	s := someSection(t, time.Second)
	got := s.ratio("steelyard_access_log", "shortest_queue", 1)[0].String()
	if want := "MISSED    1s service: steelyard_access_log: p99 of the wait, by that of shortest_queue: 1.25 " +
		"(1.25-1.25), at most 1: 25 % above"; got != want {
		t.Errorf("it reads %q, want %q", got, want)
	}
}

func TestALateGeneratorMakesNoResult(t *testing.T) {
	late := measurement("least_request", 100*time.Millisecond, 1)
	for i := range late.Lateness {
		late.Lateness[i] = 0.006
	}
	good := NewRun([]Section{someSection(t, time.Second)}, nil, nil)
	bad := NewRun([]Section{section(t, 100*time.Millisecond, late)}, nil, nil)
	if d := NewDocument(Conditions{Lateness: 0.05}, good, []Run{good, good}); !d.Valid || len(d.Reasons) > 0 {
		t.Errorf("1 ms of a second is no result: %v", d.Reasons)
	}
	d := NewDocument(Conditions{Lateness: 0.05}, good, []Run{good, bad})
	if d.Valid || len(d.Reasons) != 1 || !strings.Contains(d.Reasons[0], "run 2: group 1 at 0.1 s") ||
		!strings.Contains(d.Reasons[0], "6.0 ms late at p99 for least_request") {
		t.Errorf("valid %t for the reasons %q, want one that names run 2, the row and 6.0 ms", d.Valid, d.Reasons)
	}
	var b bytes.Buffer
	if err := d.Write(&b); err != nil || !strings.Contains(b.String(), "NOT A RESULT") {
		t.Errorf("the table does not say that it is no result: %v\n%s", err, b.String())
	}
}

func someDocument(t *testing.T) Document {
	t.Helper()
	run := NewRun([]Section{someSection(t, time.Second), someSection(t, 50*time.Millisecond)},
		map[string]Number{"1s": 0.5}, []string{"group 2: measured again"})
	return NewDocument(Conditions{Envoys: 3, Servers: 20, Slots: 1, Load: 0.8, Lateness: 0.05}, run, []Run{run, run})
}

func TestTheTableNamesRowsTargetsAndRuns(t *testing.T) {
	var b bytes.Buffer
	if err := someDocument(t).Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Title of least_request", "group 2: measured again", "Service 50ms",
		"machine 50 % busy", "p99 of runs", "Targets", "runs: 0.25, 0.25, held in 2 of 2",
		"runs: 1.25 MISSED, 1.25 MISSED, held in 0 of 2", "4 of 6 measured targets held in each of 2 runs",
		"Only 20 requests of a row make its p99"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, b.String())
		}
	}
	broken := errors.New("the disk is full")
	if err := someDocument(t).Write(failing{broken}); !errors.Is(err, broken) {
		t.Errorf("error %v, want the writer's", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// The keys are a contract: those of `steelyard simulate --json` and more.
func TestTheJSONHasTheRows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "placement.json")
	if err := WriteJSON(file, someDocument(t)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Valid   bool
		Rows    []map[string]any
		Targets []map[string]any
		Runs    []struct{ Rows []map[string]any }
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if !got.Valid || len(got.Rows) != 6 || len(got.Runs) != 2 || len(got.Runs[0].Rows) != 6 || len(got.Targets) == 0 {
		t.Fatalf("valid %t, %d rows, %d runs, %d targets; want true, 6, 2 and some", got.Valid, len(got.Rows),
			len(got.Runs), len(got.Targets))
	}
	for _, key := range []string{"policy", "service", "requests", "errors", "wait_p50", "wait_p90", "wait_p99",
		"wait_p99_ci", "envoy_cpu_cores", "envoy_cpu_cores_max", "lateness_p99"} {
		if got.Rows[0][key] == nil {
			t.Errorf("the first row has no %s: %v", key, got.Rows[0])
		}
	}
	if v, ok := got.Rows[0]["control_cpu_cores"]; v != nil || !ok {
		t.Errorf("the CPU of a control plane that there is not is %v, want null", v)
	}
	if got.Rows[1]["control_cpu_cores"] != 0.05 {
		t.Errorf("the CPU of the control plane is %v, want 0.05", got.Rows[1]["control_cpu_cores"])
	}
}

func TestThePlotShowsLeastRequestAndCutsWhatWentAstray(t *testing.T) {
	s := someSection(t, time.Second)
	if p99 := float64(s.Rows[0].WaitP99); s.rightEdge() < p99 {
		t.Errorf("the axis ends at %v, before the p99 of least_request, %v", s.rightEdge(), p99)
	}
	astray := section(t, time.Second, measurement("least_request", time.Second, 2),
		measurement("cswrr", time.Second, 2000))
	if p99 := float64(astray.Rows[0].WaitP99); astray.rightEdge() > 3*p99 {
		t.Errorf("the axis ends at %v, want at most three times the p99 of least_request, %v", astray.rightEdge(), p99)
	}
}

func TestAPolicyHasTheSameColourInAllPanels(t *testing.T) {
	all := section(t, time.Second, measurement("least_request", time.Second, 2), measurement("cswrr", time.Second, 3),
		measurement("shortest_queue", time.Second, 1))
	few := section(t, 50*time.Millisecond, measurement("least_request", 50*time.Millisecond, 2),
		measurement("shortest_queue", 50*time.Millisecond, 1))
	tints := paletteOf([]Section{all, few})
	if got, want := tints.of(few.Rows[1]), tints.of(all.Rows[2]); got != want {
		t.Errorf("shortest_queue is %v at 50 ms and %v at 1 s", got, want)
	}
	seen := map[color.Color]string{}
	for _, r := range all.Rows {
		if other, taken := seen[tints.of(r)]; taken {
			t.Errorf("%s has the colour of %s", r.Policy, other)
		}
		seen[tints.of(r)] = r.Policy
	}
}

func TestThePlotIsAnSVGAndAPNG(t *testing.T) {
	base := filepath.Join(t.TempDir(), "placement")
	empty := Measurement{Policy: "silent", Title: "a row without answers", Service: time.Second,
		Waits: make([]float64, 2000), Errors: 2000}
	for i := range empty.Waits {
		empty.Waits[i] = math.NaN()
	}
	sections := []Section{someSection(t, 50*time.Millisecond),
		section(t, time.Second, measurement("least_request", time.Second, 2), empty)}
	if err := WritePlot(base+".svg", sections); err != nil {
		t.Fatal(err)
	}
	picture, err := os.ReadFile(base + ".png")
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := png.Decode(bytes.NewReader(picture))
	if err != nil || decoded.Bounds().Dx() < 400 || decoded.Bounds().Dy() < 400 {
		t.Errorf("the PNG is %v in size, %v", decoded, err)
	}
	text, err := os.ReadFile(base + ".svg")
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the SVG is no XML: %v", err)
		}
	}
	for _, want := range []string{"<svg", "Title of shortest_queue", "50ms service", "a row without answers"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the SVG does not hold %q", want)
		}
	}
	if err := WritePlot(base+".svg", nil); err == nil {
		t.Error("a plot of nothing was written")
	}
}

func TestNumbersThatAreUnknownAreNotZero(t *testing.T) {
	tests := []struct {
		n          Number
		json, text string
	}{
		{0, "0", "0"},
		{1.23456, "1.23456", "1.23"},
		{12345.678, "12345.7", "12346"},
		{unknown, "null", "-"},
		{Number(math.Inf(1)), "null", "+Inf"},
	}
	for _, tt := range tests {
		if got, err := tt.n.MarshalJSON(); err != nil || string(got) != tt.json {
			t.Errorf("%v is %s in JSON, %v; want %s", float64(tt.n), got, err, tt.json)
		}
		if got := tt.n.String(); got != tt.text {
			t.Errorf("%v reads %q, want %q", float64(tt.n), got, tt.text)
		}
	}
}
