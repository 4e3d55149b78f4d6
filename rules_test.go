package steelyard_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"steelyard/e2e/rig/proc"
)

// ruleFile is a file of rules of Prometheus, as far as the tests here read it.
type ruleFile struct {
	Groups []struct {
		Rules []struct {
			Record, Alert, Expr string
			Labels, Annotations map[string]string
		}
	}
}

func readRules(t *testing.T, name string) ruleFile {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("deploy", "prometheus", name))
	if err != nil {
		t.Fatal(err)
	}
	var f ruleFile
	if err := yaml.Unmarshal(text, &f); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(f.Groups) == 0 {
		t.Fatalf("%s has no groups", name)
	}
	return f
}

func TestTheRulesPassTheirUnitTests(t *testing.T) {
	promtool, err := proc.Find(proc.ProgramPromtool)
	if err != nil {
		t.Fatal(err)
	}
	for _, arguments := range [][]string{
		{"check", "rules", "deploy/prometheus/recording.yaml", "deploy/prometheus/alerts.yaml"},
		{"test", "rules", "deploy/prometheus/tests.yaml"},
	} {
		if out, err := exec.CommandContext(t.Context(), promtool, arguments...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, out)
		}
	}
}

// TestEachAlertFiresInATest: the unit test of an alert has a moment at which it fires, and one at which
// it does not.
func TestEachAlertFiresInATest(t *testing.T) {
	text, err := os.ReadFile("deploy/prometheus/tests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var units struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []map[string]any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal(text, &units); err != nil {
		t.Fatal(err)
	}
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, unit := range units.Tests {
		for _, at := range unit.AlertRuleTest {
			if len(at.ExpAlerts) > 0 {
				fires[at.Alertname] = true
			} else {
				rests[at.Alertname] = true
			}
		}
	}
	for _, group := range readRules(t, "alerts.yaml").Groups {
		for _, rule := range group.Rules {
			switch severity := rule.Labels["severity"]; {
			case !fires[rule.Alert] || !rests[rule.Alert]:
				t.Errorf("%s: no test in which it fires (%v), or none in which it does not (%v)",
					rule.Alert, fires[rule.Alert], rests[rule.Alert])
			case severity != "critical" && severity != "warning":
				t.Errorf("%s has severity %q, want critical or warning", rule.Alert, severity)
			case rule.Annotations["summary"] == "":
				t.Errorf("%s has no summary", rule.Alert)
			case rule.Annotations["runbook_url"] != "docs/symptoms.md#"+strings.ToLower(rule.Alert),
				!strings.HasPrefix(rule.Annotations["dashboard"], "/d/steelyard"):
				t.Errorf("%s has no link to what to do, or none to the dashboard: %v", rule.Alert, rule.Annotations)
			}
		}
	}
}

// TestInhibitionIsAmongAlertsThatExist, in the form that Alertmanager reads.
func TestInhibitionIsAmongAlertsThatExist(t *testing.T) {
	text, err := os.ReadFile("deploy/prometheus/inhibit.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var inhibit map[string][]map[string][]string
	if err := yaml.Unmarshal(text, &inhibit); err != nil {
		t.Fatal(err)
	}
	alerts := map[string]bool{}
	for _, group := range readRules(t, "alerts.yaml").Groups {
		for _, rule := range group.Rules {
			alerts[rule.Alert] = true
		}
	}
	keys := []string{"equal", "source_matchers", "target_matchers"}
	if len(inhibit["inhibit_rules"]) == 0 || len(inhibit) != 1 {
		t.Fatalf("want inhibit_rules and nothing else: %v", inhibit)
	}
	for _, rule := range inhibit["inhibit_rules"] {
		if got := slices.Sorted(maps.Keys(rule)); !slices.Equal(got, keys) {
			t.Errorf("a rule has the keys %v, want %v", got, keys)
		}
	}
	for _, name := range regexp.MustCompile(`Steelyard\w+`).FindAllString(string(text), -1) {
		if !alerts[name] {
			t.Errorf("there is no alert %s", name)
		}
	}
}

// TestTheRulesUseSeriesThatExist: those of docs/admin-api.md, which a test of its own holds against the code, and
// those that the rules record. Each recorded one has the name that its labels and its expression suggest.
func TestTheRulesUseSeriesThatExist(t *testing.T) {
	api, err := os.ReadFile("docs/admin-api.md")
	if err != nil {
		t.Fatal(err)
	}
	series := regexp.MustCompile(`\b((?:cluster|endpoint|job):)?steelyard_[a-z0-9_]+(:[a-z0-9_]+)?`)
	recorded := map[string]bool{}
	recording := readRules(t, "recording.yaml")
	for _, group := range recording.Groups {
		for _, rule := range group.Rules {
			if strings.HasPrefix(rule.Record, "llm_d_") {
				continue // the name of others, for their recipes
			}
			recorded[rule.Record] = true
			if series.FindString(rule.Record) != rule.Record || !strings.Contains(rule.Record, ":") {
				t.Errorf("%s is not of the form level:metric:operations", rule.Record)
			}
		}
	}
	texts := map[string]string{}
	for _, name := range []string{"deploy/prometheus/recording.yaml", "deploy/prometheus/alerts.yaml",
		"deploy/grafana/steelyard.json", "manifests/overlays/autoscale/scaledobject.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		for _, found := range series.FindAllString(texts[name], -1) {
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(found, "")
			if !recorded[found] && !strings.Contains(string(api), "`"+base+"`") &&
				!strings.Contains(string(api), "`"+found+"`") {
				t.Errorf("%s uses %s, which neither docs/admin-api.md nor recording.yaml has", name, found)
			}
		}
	}
	used := texts["deploy/prometheus/alerts.yaml"] + texts["deploy/grafana/steelyard.json"] +
		texts["manifests/overlays/autoscale/scaledobject.yaml"]
	for name := range recorded {
		if !strings.Contains(used, name) {
			t.Errorf("%s is recorded and used by no alert, dashboard or autoscaler", name)
		}
	}
}

// Two installations in one Prometheus may have clusters of one name. The namespace of steelyard_endpoint_info is a
// Pod's, so it is no label to join by.
func TestTheDashboardKeepsInstallationsApartAndLeadsOn(t *testing.T) {
	text, err := os.ReadFile("deploy/grafana/steelyard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Links      []struct{ URL string }
		Templating struct{ List []struct{ Name string } }
		Panels     []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	if len(board.Links) != 2 || len(board.Templating.List) != 3 || board.Templating.List[1].Name != "namespace" {
		t.Errorf("links %v, variables %v", board.Links, board.Templating.List)
	}
	ofInfo := regexp.MustCompile(`max by \(envoy_cluster_name, endpoint, pod\) \(steelyard_endpoint_info\)`)
	series := regexp.MustCompile(`\b(?:\w+:)?(?:steelyard|process)_\w+(?::\w+)?(?:\{[^}]*\})?`)
	sums := regexp.MustCompile(`by \([^)]*\)`)
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			expr := ofInfo.ReplaceAllString(target.Expr, "")
			for _, part := range append(series.FindAllString(expr, -1), sums.FindAllString(expr, -1)...) {
				if !strings.Contains(part, `namespace=~"$namespace"`) && !strings.HasPrefix(part, "by (namespace") {
					t.Errorf("%s: %s has no namespace", panel.Title, part)
				}
			}
		}
	}
}
