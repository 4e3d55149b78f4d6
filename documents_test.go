package steelyard_test

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery"
	"steelyard/weighting"
)

// blocks returns the fenced blocks of a language in a document.
func blocks(t *testing.T, document, language string) []string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	fence := regexp.MustCompile("(?s)\n```" + language + "\n(.*?)\n```\n")
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		out = append(out, m[1]+"\n")
	}
	return out
}

// TestTheFilesOfGetStartedWork: a configuration, and a list of endpoints that it names.
func TestTheFilesOfGetStartedWork(t *testing.T) {
	start := blocks(t, "docs/get-started.md", "yaml")
	if len(start) != 2 {
		t.Fatalf("%d YAML blocks, want a configuration and a list of endpoints", len(start))
	}
	if _, err := config.Parse("get-started.md", []byte(start[0])); err != nil {
		t.Errorf("the configuration: %v", err)
	}
	list := filepath.Join(t.TempDir(), "embeddings.yaml")
	if err := os.WriteFile(list, []byte(start[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	if endpoints, err := discovery.ReadFile(t.Context(), list); err != nil || len(endpoints) != 3 {
		t.Errorf("the list of endpoints: %d, %v; want 3", len(endpoints), err)
	}
}

// TestTheConfigurationsOfTheDocumentsAreAccepted is for every YAML block that is a whole configuration.
func TestTheConfigurationsOfTheDocumentsAreAccepted(t *testing.T) {
	documents, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, document := range append(documents, "README.md") {
		for _, text := range blocks(t, document, "yaml") {
			if !strings.Contains("\n"+text, "\nclusters:") {
				continue
			}
			checked++
			if _, err := config.Parse(document, []byte(text)); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		}
	}
	if checked == 0 {
		t.Error("no configuration was found")
	}
}

// TestTheBeginningsAreShort: a reader of the README who wants to know more follows its links, and one of the law reads
// its files.
func TestTheBeginningsAreShort(t *testing.T) {
	for document, most := range map[string]int{"README.md": 75, "weighting/doc.go": 119} { // lines
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); n > most {
			t.Errorf("%s has %d lines, want at most %d: details go elsewhere", document, n, most)
		}
	}
}

// TestLinksInDocumentsLeadSomewhere checks the files and the headings that documents point to.
func TestLinksInDocumentsLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	documents := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"}
	for _, pattern := range []string{"docs/*.md", "docs/design/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, found...)
	}
	for _, document := range documents {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target := document
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(document), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", document, m[1], err)
			} else if m[2] != "" && !slices.Contains(headings(t, target), m[2]) {
				t.Errorf("%s links to %s#%s, which has no such heading", document, m[1], m[2])
			}
		}
	}
}

// TestEachQuestionHasOnePlace: what people search for is a heading of one document, and the words of the question are
// below it.
func TestEachQuestionHasOnePlace(t *testing.T) {
	for _, q := range []struct {
		document, heading string
		words             []string // up to the next heading of that level
	}{
		{"docs/alternatives.md", "# Is it for me?", []string{"llm-d", "Inference Extension",
			"Envoy's own least request", "What Steelyard does not do"}},
		{"docs/attach-envoy.md", "# Attach an Envoy that you already have", []string{"`static`", "`cds`", "`ads`",
			"TLS to the model servers", "several clusters", "Istio", "Envoy Gateway"}},
		{"docs/get-started.md", "## What do I set for capacity?", []string{"vLLM", "Triton", "TensorRT-LLM",
			"learned"}},
		{"docs/operations.md", "## Size of the process", []string{"cores", "memory", "Envoys"}},
		{"docs/operations.md", "## When a part dies", []string{"| Steelyard |", "| Redis", "discovery", "| an Envoy |",
			"| a model server |"}},
		{"docs/operations.md", "## Restart, upgrade, reload", []string{"SIGTERM", "old", "new"}},
		{"docs/security.md", "# Security", []string{"tokens_file", "client_ca_file"}},
		{"docs/operations.md", "## Why did this endpoint get 10 %, now or minutes ago?", []string{"steelyard explain",
			"--at 5m", "last hour", "`share`** follows"}},
		{"docs/concepts.md", "## One formula", []string{"share = floor"}},
		{"docs/concepts.md", "## Glossary", []string{"| capacity |", "water level", "| served share", "horizon"}},
	} {
		text, err := os.ReadFile(q.document)
		if err != nil {
			t.Fatal(err)
		}
		_, section, found := strings.Cut("\n"+string(text), "\n"+q.heading+"\n")
		if !found {
			t.Errorf("%s has no heading %q", q.document, q.heading)
			continue
		}
		level, _, _ := strings.Cut(q.heading, " ")
		section, _, _ = strings.Cut(section, "\n"+level+" ")
		for _, words := range q.words {
			if !strings.Contains(section, words) {
				t.Errorf("%s has nothing about %q below %q", q.document, words, q.heading)
			}
		}
		if readme, err := os.ReadFile("README.md"); err != nil || !strings.Contains(string(readme), "("+q.document) {
			t.Errorf("README.md does not lead to %s: %v", q.document, err)
		}
	}
}

// headings are the anchors of a document, as hosts of repositories make them.
func headings(t *testing.T, document string) (anchors []string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		anchors = append(anchors, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return anchors
}

// server is a simulated model server with four slots.
type server struct {
	load   float64 // requests waiting and running, all the time
	speed  float64 // completions per busy slot-second
	joined int     // the step in which it appears
}

// decide runs the law on a pool for a minute, in which it learns the speeds, and
// returns the last decision.
func decide(pool []server) weighting.Decision {
	const slots, steps, perSecond = 4, 240, 4
	law := weighting.NewLaw(weighting.DefaultParams())
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var d weighting.Decision
	for step := range steps + 1 {
		now := start.Add(time.Duration(step) * time.Second / perSecond)
		s := weighting.Snapshot{PushDelay: 10 * time.Millisecond, PushPeriod: 240 * time.Millisecond}
		for i, e := range pool {
			if step < e.joined {
				continue
			}
			read := func(v float64) weighting.Reading { return weighting.Reading{Value: v, At: now} }
			running := min(e.load, slots)
			s.Endpoints = append(s.Endpoints, weighting.Endpoint{
				Address: fmt.Sprintf("10.0.0.%d:8000", i+1), Capacity: slots,
				Server: weighting.ServerReport{
					Queue: read(e.load - running), Running: read(running),
					Completions: read(running * e.speed * float64(step) / perSecond),
				},
			})
		}
		d = law.Step(now, s)
	}
	return d
}

// worked is the arithmetic of docs/concepts.md for one endpoint.
func worked(d weighting.Decision, e weighting.EndpointDecision) (share float64) {
	var all float64
	for _, other := range d.Endpoints {
		all += other.Capacity
	}
	floor := weighting.DefaultParams().Floor
	s := e.Slots * e.Ramp
	f := max(0, s-1)
	holds := min(s*d.WaterLevel, f) + e.Capacity*max(0, d.WaterLevel-f/s)
	return floor*e.Capacity/all + (1-floor)*max(0, holds-e.Load)/d.Arrivals
}

func TestTheDocumentedArithmeticGivesTheSharesOfTheLaw(t *testing.T) {
	for name, pool := range map[string][]server{
		"a slow one with free slots": {{load: 5, speed: 2}, {load: 5, speed: 2}, {load: 2, speed: 1}},
		"free slots everywhere": {{load: 1, speed: 2}, {load: 2.5, speed: 2}, {load: 1, speed: 1},
			{load: 2, speed: 0.3}},
		"queues everywhere": {{load: 9, speed: 2}, {load: 12, speed: 2}, {load: 7, speed: 1},
			{load: 40, speed: 0.3}},
		"one full, two that join": {{load: 5, speed: 2}, {load: 60, speed: 2}, {load: 3, speed: 1},
			{load: 1, speed: 2, joined: 215}, {load: 1, speed: 2, joined: 239}},
	} {
		d := decide(pool)
		speeds := map[float64]bool{}
		for _, e := range d.Endpoints {
			speeds[e.RelativeSpeed] = true
			if share := worked(d, e); math.Abs(share-e.Share) > 1e-9 {
				t.Errorf("%s, %s (%s): the documents give %v, the law %v", name, e.Address, e.Reason, share, e.Share)
			}
		}
		if len(speeds) < 2 {
			t.Errorf("%s: all of one speed, so nothing was learned", name)
		}
	}
}

func TestTheDocumentsStateTheArithmeticThatIsTested(t *testing.T) {
	body, err := os.ReadFile("docs/concepts.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"s     = slots · ramp,  c = s · speed ", "f     = max(0, s − 1) ",
		"V(L)  = min(s · L, f) + c · max(0, L − f / s) ",
		"share = floor · c / Σ c + (1 − floor) · max(0, V(L) − (waiting + running)) / A\n",
		fmt.Sprintf("The minimum share (`floor`, %g)", weighting.DefaultParams().Floor),
	} {
		if !strings.Contains(string(body), text) {
			t.Errorf("docs/concepts.md does not say %q", text)
		}
	}
}

// TestTheTablesOfSimulateAreWhatItPrints: docs/simulate.md promises the same result to the last digit.
func TestTheTablesOfSimulateAreWhatItPrints(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/simulate.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)\n    steelyard (simulate [^\n]*)\n\n```\n(.*?)```\n")
	tables := shown.FindAllStringSubmatch(string(text), -1)
	if len(tables) == 0 {
		t.Fatal("no table with a command above it")
	}
	for _, table := range tables {
		t.Run(table[1], func(t *testing.T) {
			t.Parallel()
			command := exec.CommandContext(t.Context(), "go", append([]string{"run", "./cmd/steelyard"},
				strings.Fields(table[1])...)...)
			command.Stderr = os.Stderr
			out, err := command.Output()
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimRight(string(out), "\n"); got != strings.TrimRight(table[2], "\n") {
				t.Errorf("docs/simulate.md has\n%s\nbut steelyard %s prints\n%s", table[2], table[1], got)
			}
		})
	}
}

// TestTheTableOfGatewaysNamesTheVersionsThatAreBuilt: Istio's module has none, but requires its API of that version.
func TestTheTableOfGatewaysNamesTheVersionsThatAreBuilt(t *testing.T) {
	table, err := os.ReadFile("docs/gateways.md")
	if err != nil {
		t.Fatal(err)
	}
	for folder, required := range map[string]string{
		"envoygateway": `github.com/envoyproxy/gateway v(\S+)`, "istio": `istio.io/api v(\d+\.\d+)`,
		"contour": `github.com/projectcontour/contour v(\S+)`,
	} {
		module, err := os.ReadFile("e2e/gateways/" + folder + "/go.mod")
		if err != nil {
			t.Fatal(err)
		}
		version := regexp.MustCompile(`\n\s` + required).FindSubmatch(module)
		if version == nil || !regexp.MustCompile(`(?m)^\| case .* `+string(version[1])+` \|`).Match(table) {
			t.Errorf("docs/gateways.md has no column for the version of %s, %s", folder, version)
		}
	}
}
