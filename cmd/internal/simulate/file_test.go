package simulate

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"steelyard/controlplane/config"
	"steelyard/e2e/rig/golden"
	"steelyard/sim"
	"steelyard/sim/engine"
	"steelyard/sim/trace"
)

// difference is cmp.Diff, except that it compares traces as a whole: some have ten thousands of requests, which cmp
// compares in seconds.
func difference(want, got any) string {
	return cmp.Diff(want, got, cmp.Comparer(func(a, b *trace.Trace) bool { return reflect.DeepEqual(a, b) }))
}

func TestBadFilesAreRefusedWithWhatToWriteInstead(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata/bad/*.yaml: %d files, error %v", len(files), err)
	}
	for _, path := range files {
		name := filepath.Base(path)
		t.Run(strings.TrimSuffix(name, ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s, err := parse(name, data)
			var problems *config.Error
			if !errors.As(err, &problems) || !reflect.DeepEqual(s, sim.Scenario{}) {
				t.Fatalf("got %+v and the error %v", s, err)
			}
			golden.Check(t, filepath.Join("testdata", "bad", strings.TrimSuffix(name, ".yaml")+".err"),
				err.Error()+"\n")
			for _, p := range problems.Problems {
				if p.File != name || p.Line < 1 || p.Column < 1 || !strings.Contains(p.Text, ": ") {
					t.Errorf("%+v does not say where, what and what instead", p)
				}
			}
		})
	}
}

func TestEveryKeyOfAFileReachesItsField(t *testing.T) {
	got, err := readFile(t.Context(), "testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := sim.Scenario{
		Name: "every key", Seed: 7, Duration: 20 * time.Minute, WarmUp: time.Minute,
		Envoys: 3, Workers: 2, EnvoyShares: []float64{2, 1, 1},
		Pods: []sim.PodGroup{
			{Count: 15, Slots: 4, Speed: 1},
			{Count: 5, Slots: 4, Speed: 0.5, Sharing: true, SlowDown: 0.6, Zone: "b",
				Metrics: sim.Metrics{GaugeLag: 2 * time.Second, CounterLag: 500 * time.Millisecond}},
		},
		Load: 0.8, Rate: 60,
		Service: sim.Service{Kind: sim.TwoClass, Mean: 1500 * time.Millisecond, LongShare: 0.1, LongFactor: 20},
		Signals: sim.Signals{
			ScrapeDelay: new(time.Duration(0)), Delay: new(25 * time.Millisecond), Loss: new(0.001),
			PushDelay: new(time.Minute),
		},
		Events: []sim.Event{
			{At: 2 * time.Minute, Kind: sim.Leave, Pods: []int{0, 1}, For: 30 * time.Second},
			{At: 5 * time.Minute, Kind: sim.Slow, Pods: []int{19}, Factor: 3},
			{At: 6 * time.Minute, Kind: sim.FlashCrowd, Factor: 2.5, For: 20 * time.Second},
			{At: 7 * time.Minute, Kind: sim.StuckWaiting, Pods: []int{3}, Factor: 40},
			{At: 8 * time.Minute, Kind: sim.StuckRunning, For: 10 * time.Second},
			{At: 9 * time.Minute, Kind: sim.ControlPlaneAway},
		},
	}
	if diff := difference(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := got.Check(); err != nil {
		t.Errorf("the simulator refuses it: %v", err)
	}
}

func TestDefaultsFillWhatIsNotWritten(t *testing.T) {
	got, err := parse("folder/mine.yaml", []byte("pods: [{count: 20}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := sim.Scenario{
		Name: "mine", Seed: 1, Duration: 10 * time.Minute, WarmUp: 30 * time.Second,
		Envoys: 10, Workers: 1, Pods: []sim.PodGroup{{Count: 20, Slots: 1, Speed: 1}}, Load: 0.8,
		Service: sim.Service{Kind: sim.Exponential, Mean: time.Second},
	}
	if diff := difference(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEnginesAreReadAndPrinted: the engines and prompts of a file, and the same
// when it is printed and read again.
func TestEnginesAreReadAndPrinted(t *testing.T) {
	s, err := readFile(t.Context(), "testdata/engines.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defaults := engine.Defaults()
	want := sim.Scenario{
		Name: "engines", Seed: 1, Duration: 30 * time.Second, WarmUp: 6 * time.Second, Envoys: 2, Workers: 1, Load: 0.7,
		Pods: []sim.PodGroup{
			{Count: 2, Speed: 1, Engine: &defaults, Metrics: sim.Metrics{TokensAtEnd: true}},
			{Count: 1, Speed: 0.5, Zone: "b", Engine: &engine.Params{
				Iteration: 10 * time.Millisecond, Sequence: 100 * time.Microsecond, Context: 10,
				PrefillRate: 20_000, TokenBudget: 4096, MaxSequences: 64, KVTokens: 200_000,
				PromptsFirst: true, CacheTokens: 1000,
			}, Metrics: sim.Metrics{GaugeLag: 250 * time.Millisecond, NoTokens: true}},
		},
		Prompts: &sim.Prompts{Trace: trace.Conversations(), Cached: 0.25, BytesPerToken: 4, BytesSpread: -1,
			Chunked: 0.1},
	}
	if diff := difference(want, s); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	again, err := parse("again.yaml", []byte(printed(s)))
	if diff := difference(s, again); err != nil || diff != "" {
		t.Errorf("printed and read again: error %v (-want +got):\n%s", err, diff)
	}
	if err := s.Check(); err != nil {
		t.Errorf("the simulator refuses it: %v", err)
	}
}

func TestBuiltInScenariosAreFilesThatAreRunAndPrinted(t *testing.T) {
	files, err := scenarios.ReadDir("scenarios")
	if err != nil || len(files) != len(ScenarioNames()) {
		t.Fatalf("%d files of %d names, error %v", len(files), len(ScenarioNames()), err)
	}
	for _, name := range ScenarioNames() {
		s, err := builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(); err != nil || s.Name != name {
			t.Errorf("%s calls itself %s, and the simulator says: %v", name, s.Name, err)
		}
		golden.Check(t, "scenarios/"+name+".yaml", printed(s))
	}
}

// TestSignalsArePrintedAsFarAsTheyAreWritten: 0s is a delay, and no key is none.
func TestSignalsArePrintedAsFarAsTheyAreWritten(t *testing.T) {
	for _, line := range []string{
		"",
		"signals: {scrape_delay: 10ms, delay: 2ms, loss: 0.001, push_delay: 3ms}\n",
		"signals: {scrape_delay: 0s}\n",
		"signals: {delay: 1m}\n",
		"signals: {loss: 0}\n",
		"signals: {push_delay: 1.5ms}\n",
	} {
		s, err := parse("mine.yaml", []byte("pods: [{count: 4}]\n"+line))
		if err != nil {
			t.Fatal(err)
		}
		text := printed(s)
		if !strings.Contains(text, "\n"+line) || strings.Contains(text, "signals") != (line != "") {
			t.Errorf("want %q in\n%s", line, text)
		}
		if again, err := parse("mine.yaml", []byte(text)); err != nil || !cmp.Equal(s, again) {
			t.Errorf("printed and read again: error %v (-want +got):\n%s", err, difference(s, again))
		}
	}
}

func TestTheTagsNameTheKindsOfTheSimulator(t *testing.T) {
	words := func(section any, field string) []string {
		f, _ := reflect.TypeOf(section).FieldByName(field)
		return strings.Fields(f.Tag.Get("oneof"))
	}
	for _, kind := range words(service{}, "Kind") {
		s := sim.Scenario{Duration: time.Second, Envoys: 1, Pods: []sim.PodGroup{{Count: 1, Slots: 1}}, Load: 0.5,
			Service: sim.Service{Kind: sim.ServiceKind(kind), Mean: time.Second, Sigma: 1, LongShare: 0.5,
				LongFactor: 2}}
		if err := s.Check(); err != nil {
			t.Errorf("the simulator does not know service %s: %v", kind, err)
		}
	}
	for _, kind := range words(event{}, "Kind") {
		s := sim.Scenario{Duration: time.Second, Envoys: 1, Pods: []sim.PodGroup{{Count: 1, Slots: 1}}, Rate: 0.5,
			Service: sim.Service{Mean: time.Second}, Events: []sim.Event{{Kind: sim.EventKind(kind), Factor: 2}}}
		if err := s.Check(); err != nil {
			t.Errorf("the simulator does not know event %s: %v", kind, err)
		}
	}
}

// TestTheCommentsStateDefaultsAndRanges holds the comments of the schema, and the
// document, to the tags.
func TestTheCommentsStateDefaultsAndRanges(t *testing.T) {
	source, err := os.ReadFile("file.go")
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile("../../../docs/simulate.md")
	if err != nil {
		t.Fatal(err)
	}
	field := regexp.MustCompile("(?m)((?:^\t// .*\n)*)(?:^\t[A-Z]\\w+ .*\n)*^\t[A-Z]\\w+ +\\S+ " +
		"+`yaml:\"([a-z_]+)\"(.*)`")
	tag := func(tags, key string) string {
		if m := regexp.MustCompile(key + `:"([^"]*)"`).FindStringSubmatch(tags); m != nil {
			return m[1]
		}
		return ""
	}
	found := field.FindAllStringSubmatch(string(source), -1)
	if len(found) < 20 {
		t.Fatalf("only %d fields found", len(found))
	}
	for _, m := range found {
		comment := strings.Join(strings.Fields(strings.ReplaceAll(m[1], "//", "")), " ")
		if value := tag(m[3], "default"); value != "" && !strings.Contains(comment, "Default "+value) {
			t.Errorf("the comment of %s does not say that its default is %s: %s", m[2], value, comment)
		}
		if !strings.Contains(string(document), "`"+m[2]+"`") {
			t.Errorf("docs/simulate.md does not know the key %s", m[2])
		}
	}
}

func TestTheDocumentListsWhatThereIs(t *testing.T) {
	document, err := os.ReadFile("../../../docs/simulate.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(sim.Policies(), sim.EnginePolicies()...) {
		if name, _, _ := strings.Cut(p.Name, "@"); !strings.Contains(string(document), "`"+name) {
			t.Errorf("docs/simulate.md does not explain %s", p.Name)
		}
	}
	for _, section := range []struct {
		of    any
		field string
	}{{service{}, "Kind"}, {event{}, "Kind"}} {
		f, _ := reflect.TypeOf(section.of).FieldByName(section.field)
		for _, word := range strings.Fields(f.Tag.Get("oneof")) {
			if !strings.Contains(string(document), "`"+word+"`") {
				t.Errorf("docs/simulate.md does not know %s", word)
			}
		}
	}
}

func TestAFileThatIsNotThere(t *testing.T) {
	if _, err := readFile(t.Context(), filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, os.ErrNotExist) ||
		!strings.Contains(err.Error(), "reading the scenario") {
		t.Errorf("the error is %v", err)
	}
}

// checked is a scenario as far as its file can be checked: whether engines can take the
// requests, and how many there are, hangs on the trace.
func checked(s sim.Scenario) sim.Scenario {
	if s.Prompts != nil {
		p := *s.Prompts
		p.Trace = &trace.Trace{Requests: []trace.Request{{Prompt: 1, Output: 1}, {At: 1, Prompt: 1, Output: 1}}}
		s.Prompts, s.Rate = &p, 1
	}
	return s
}

// FuzzParse holds for any file: no panic; an error whose every problem has a place
// and a text; or a scenario that the simulator takes, and that is read the same
// from its own printing.
//
//	go test ./cmd/internal/simulate -fuzz FuzzParse -fuzztime 1m
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/bad/*.yaml", "testdata/*.yaml", "../../../docs/scenarios/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %d files, error %v", pattern, len(files), err)
		}
		for _, path := range files {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parse("fuzz.yaml", data)
		if err != nil {
			var problems *config.Error
			if !errors.As(err, &problems) || len(problems.Problems) == 0 {
				t.Fatalf("the error is a %T", err)
			}
			for _, p := range problems.Problems {
				if p.Line < 1 || p.Column < 1 || p.Text == "" || strings.ContainsAny(p.Text, "\n\r\x00") {
					t.Errorf("problem %+v", p)
				}
			}
			return
		}
		if err := checked(s).Check(); err != nil {
			t.Fatalf("the simulator refuses %+v: %v", s, err)
		}
		again, err := parse("fuzz.yaml", []byte(printed(s)))
		if err != nil {
			t.Fatalf("the printing cannot be read: %v\n%s", err, printed(s))
		}
		if s.Rate > 0 {
			s.Load, again.Load = 0, 0 // not printed
		}
		if diff := difference(s, again); diff != "" {
			t.Errorf("printed and read again (-want +got):\n%s\n%s", diff, printed(s))
		}
	})
}
