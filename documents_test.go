package steelyard_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery"
	"steelyard/e2e/rig/proc"
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

func TestTheREADMEsSnippetsWork(t *testing.T) {
	found := blocks(t, "README.md", "yaml")
	if len(found) != 3 {
		t.Fatalf("%d YAML blocks, want a configuration, a list of endpoints and clusters for Envoy", len(found))
	}
	if _, err := config.Parse("README.md", []byte(found[0])); err != nil {
		t.Errorf("the configuration: %v", err)
	}
	list := filepath.Join(t.TempDir(), "embeddings.yaml")
	if err := os.WriteFile(list, []byte(found[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	if endpoints, err := discovery.ReadFile(list); err != nil || len(endpoints) != 3 {
		t.Errorf("the list of endpoints: %d, %v; want 3", len(endpoints), err)
	}
	bootstrap := "node: {id: a, cluster: b}\n" + found[2]
	if _, err := proc.ValidateEnvoy(t.Context(), t.TempDir(), []byte(bootstrap)); err != nil {
		t.Errorf("the clusters for Envoy: %v", err)
	}
}

func TestTheAlertsAreRulesOverSeriesThatExist(t *testing.T) {
	promtool, err := proc.Find(proc.ProgramPromtool)
	if err != nil {
		t.Fatal(err)
	}
	api, err := os.ReadFile("docs/admin-api.md") // held against the code by a test of its own
	if err != nil {
		t.Fatal(err)
	}
	series := regexp.MustCompile(`\bsteelyard_[a-z_]+`)
	checked := 0
	for i, rules := range blocks(t, "docs/operations.md", "yaml") {
		if !strings.Contains(rules, "expr:") {
			continue
		}
		checked++
		path := filepath.Join(t.TempDir(), fmt.Sprintf("rules-%d.yaml", i))
		if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", path).CombinedOutput(); err != nil {
			t.Errorf("promtool: %v\n%s", err, out)
		}
		for _, name := range series.FindAllString(rules, -1) {
			base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
			if !strings.Contains(string(api), "`"+base+"`") && !strings.Contains(string(api), "`"+name+"`") {
				t.Errorf("an alert uses %s, which docs/admin-api.md does not know", name)
			}
		}
	}
	if checked == 0 {
		t.Error("no alerting rules found in docs/operations.md")
	}
}

// TestLinksInDocumentsLeadSomewhere checks the files that documents point to.
func TestLinksInDocumentsLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	documents, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range append(documents, "README.md", "CONTRIBUTING.md", "CHANGELOG.md") {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(document), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", document, m[1], err)
			}
		}
	}
}
