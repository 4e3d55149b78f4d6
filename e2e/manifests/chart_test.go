package manifests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"steelyard/controlplane/config"
	"steelyard/e2e/rig/golden"
	"steelyard/e2e/rig/proc"
)

func TestTheChartRefusesWhatIsNoValueOfIt(t *testing.T) {
	for values, want := range map[string]string{
		"monitorng: {enabled: true}":                                          "monitorng",
		"prioityClassName: high":                                              "prioityClassName",
		"replicas: 0":                                                         "/replicas",
		"replicas: two":                                                       "/replicas",
		"image: {repository: r, tag: 'a b'}":                                  "/image/tag",
		"image: {digest: latest}":                                             "/image/digest",
		"networkPolicy: {metricsPorts: [http]}":                               "/networkPolicy/metricsPorts/0",
		"config: {clusters: [{name: llama, endpoint: {}}]}":                   "endpoint",
		"config: {xds: {listen: 7}}":                                          "/config/xds/listen",
		"monitoring: {alerts: {SteelyardShedding: {fro: 10m}}}":               "fro",
		"monitoring: {enabled: true, alerts: {SteelyardSheding: {for: 10m}}}": "alerts names SteelyardSheding",
		"{watchNamespaces: [a], config: {pools: {namespaces: [a, b]}}}":       "has b, which Steelyard may not read",
	} {
		_, err := renderAs(t, "steelyard", namespace, "", valuesOf(t, values))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", values, err, want)
		}
	}
}

func valuesOf(t *testing.T, text string) (values map[string]any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// TestTheSchemaOfTheChartHasEveryValue, and the one of the configuration. With -update it takes over the latter.
func TestTheSchemaOfTheChartHasEveryValue(t *testing.T) {
	path := filepath.Join(manifests, "chart/values.schema.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, of, _ := strings.Cut(string(config.Schema()), "\"$schema\"") // which only a whole document has
	_, of, _ = strings.Cut(of, "\n  ")
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	const key = "\n    \"config\": {\n      "
	before, _, found := strings.Cut(string(text), key)
	if !found {
		t.Fatal("config is not a property")
	}
	indented := strings.ReplaceAll(strings.TrimSuffix(of, "\n"), "\n", "\n    ")
	golden.Check(t, path, before+key+indented+"\n  }\n}\n")

	values := chartValues(t)
	for key := range values {
		if schema.Properties[key] == nil {
			t.Errorf("the schema lacks %s", key)
		}
	}
	for key := range schema.Properties {
		if _, found := values[key]; !found && key != "global" {
			t.Errorf("values.yaml lacks %s", key)
		}
	}
}

func chartValues(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(manifests, "chart/values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return valuesOf(t, string(text))
}

func TestTheChartTakesWhatProductionNeeds(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	objects := render(t, "", valuesOf(t, `
image: {repository: r/steelyard, digest: "`+digest+`"}
commonLabels: {team: inference}
podLabels: {sidecar.istio.io/inject: "false"}
podAnnotations: {example.com/a: b}
serviceAccount: {annotations: {example.com/role: r}}
extraEnv: [{name: OTEL_EXPORTER_OTLP_HEADERS, value: x}]
priorityClassName: infrastructure
affinity: {nodeAffinity: {}}
monitoring:
  enabled: true
  labels: {release: kube-prometheus-stack}
  docsURL: https://example.com/steelyard/docs/
  grafanaURL: https://grafana.example.com/
  alerts:
    SteelyardShedding: {severity: page, for: 10m, labels: {team: inference}}
    SteelyardLoopStuck: {expr: "steelyard_decision_age_seconds > 10"}
    SteelyardEnvoysGone: {enabled: false}
`))
	pod := deployment(t, objects, "steelyard")
	c := pod.Containers[0]
	if c.Image != "r/steelyard@"+digest || pod.PriorityClassName != "infrastructure" ||
		!slices.Contains(c.Env, core.EnvVar{Name: "OTEL_EXPORTER_OTLP_HEADERS", Value: "x"}) ||
		pod.Affinity == nil || pod.Affinity.NodeAffinity == nil || pod.Affinity.PodAntiAffinity != nil {
		t.Errorf("the Pod is %+v", pod)
	}
	d := find(t, objects, "Deployment", "steelyard")
	for _, want := range []struct {
		of   object
		path []string
		is   string
	}{
		{d, []string{"metadata", "labels", "team"}, "inference"},
		{d, []string{"spec", "template", "metadata", "labels", "sidecar.istio.io/inject"}, "false"},
		{d, []string{"spec", "template", "metadata", "annotations", "example.com/a"}, "b"},
		{find(t, objects, "ServiceAccount", "steelyard"), []string{"metadata", "annotations", "example.com/role"}, "r"},
		{find(t, objects, "ServiceMonitor", "steelyard"), []string{"metadata", "labels", "release"},
			"kube-prometheus-stack"},
		{find(t, objects, "PrometheusRule", "steelyard"), []string{"metadata", "labels", "release"},
			"kube-prometheus-stack"},
	} {
		if got := at[string](t, want.of, want.path...); got != want.is {
			t.Errorf("%s, %s: %q, want %q", name(want.of), strings.Join(want.path, "."), got, want.is)
		}
	}
	alerts := alertsOf(t, objects)
	shedding := alerts["SteelyardShedding"]
	if difference := cmp.Diff(map[string]any{"severity": "page", "team": "inference"},
		shedding["labels"]); difference != "" || shedding["for"] != "10m" {
		t.Errorf("SteelyardShedding: %v", shedding)
	}
	const runbook = "https://example.com/steelyard/docs/symptoms.md#steelyardshedding"
	if is := shedding["annotations"].(map[string]any)["runbook_url"]; is != runbook {
		t.Errorf("the runbook of SteelyardShedding is %v", is)
	}
	for _, alert := range []string{"SteelyardShedding", "SteelyardDown"} {
		is, _ := alerts[alert]["annotations"].(map[string]any)["dashboard"].(string)
		if !strings.HasPrefix(is, "https://grafana.example.com/d/steelyard") {
			t.Errorf("the dashboard of %s is %q", alert, is)
		}
	}
	board := at[string](t, find(t, objects, "ConfigMap", "steelyard-dashboard"), "data", "steelyard.json")
	if !strings.Contains(board, `"url": "https://example.com/steelyard/docs/symptoms.md"`) {
		t.Error("the dashboard does not lead to what to do")
	}
	if expr := alerts["SteelyardLoopStuck"]["expr"]; expr != "steelyard_decision_age_seconds > 10" {
		t.Errorf("SteelyardLoopStuck: %v", expr)
	}
	if alerts["SteelyardEnvoysGone"] != nil || len(alerts) != len(alertsOf(t, render(t, "", monitored)))-1 {
		t.Error("there is more or less than all alerts but the one that was left out")
	}
}

func alertsOf(t *testing.T, objects []object) map[string]map[string]any {
	t.Helper()
	alerts := map[string]map[string]any{}
	for _, group := range at[[]any](t, find(t, objects, "PrometheusRule", "steelyard"), "spec", "groups") {
		for _, rule := range group.(map[string]any)["rules"].([]any) {
			if called, is := rule.(map[string]any)["alert"].(string); is {
				alerts[called] = rule.(map[string]any)
			}
		}
	}
	return alerts
}

func TestEveryObjectHasTheLabelsThatHelmCreateWrites(t *testing.T) {
	objects := render(t, "values-production.yaml", monitored)
	for _, o := range objects {
		labels := o.GetLabels()
		for _, key := range []string{"helm.sh/chart", "app.kubernetes.io/name", "app.kubernetes.io/instance",
			"app.kubernetes.io/version", "app.kubernetes.io/managed-by"} {
			if labels[key] == "" {
				t.Errorf("%s has no label %s: %v", name(o), key, labels)
			}
		}
	}
	if len(objects) < 10 {
		t.Errorf("there are only %d objects", len(objects))
	}
}

func TestTwoReleasesInANamespaceShareNoObject(t *testing.T) {
	seen := map[string]string{}
	for _, release := range []string{"steelyard", "other", "steelyard-two"} {
		files, err := renderAs(t, release, namespace, "values-production.yaml", monitored)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objectsOf(t, files) {
			if of := seen[name(o)]; of != "" {
				t.Errorf("%s is in the releases %s and %s", name(o), of, release)
			}
			seen[name(o)] = release
			text, err := yaml.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			// Secrets, issuers and hosts of certificates of the first release; its Secret of tokens is the user's.
			own := regexp.MustCompile(`\bsteelyard-(xds|admin|envoy|ca|self|prometheus)[a-z-]*`)
			rest := strings.ReplaceAll(string(text), "other-steelyard", "")
			for _, found := range own.FindAllString(rest, -1) {
				if release == "other" && o.GetKind() != "Deployment" && o.GetKind() != "ConfigMap" &&
					found != "steelyard-admin" {
					t.Errorf("%s names %s of another release", name(o), found)
				}
			}
		}
	}
}

// TestTwoReleasesInANamespaceHaveTwoQueues: each has a Lease of its own, or a prefix in Redis, and the right to it.
func TestTwoReleasesInANamespaceHaveTwoQueues(t *testing.T) {
	for _, c := range []struct{ release, values, prefix string }{
		{"steelyard", "", "steelyard"},
		{"other", "", "other-steelyard"},
		{"other", "config: {replicas: {lease: kubernetes}}", "other-steelyard"},
		{"other", "config: {redis: {addresses: ['redis:6379']}, replicas: {}}", "other-steelyard"},
		{"other", "config: {redis: {addresses: ['redis:6379']}}", "other-steelyard"},
		{"other", "config: {replicas: {lease: kubernetes, prefix: mine}}", "mine"},
		{"other", "config: {replicas: {lease: none}}", "other-steelyard"},
	} {
		files, err := renderAs(t, c.release, namespace, "", valuesOf(t, c.values))
		if err != nil {
			t.Fatal(err)
		}
		objects := objectsOf(t, files)
		called := c.release
		if called == "other" {
			called = "other-steelyard"
		}
		text := at[string](t, find(t, objects, "ConfigMap", called), "data", "steelyard.yaml")
		cfg, err := config.Parse("steelyard.yaml", []byte(text))
		if err != nil {
			t.Errorf("%s, %q: %v", c.release, c.values, err)
			continue
		}
		prefix := "steelyard"
		if r := cfg.Replicas; r != nil {
			prefix = r.Prefix
			if want := called + "-xds"; r.Lease != config.LeaseNone && r.Service != want {
				t.Errorf("%s, %q: replicas find each other by %q, want %q", c.release, c.values, r.Service, want)
			}
		}
		role, err := yaml.Marshal(find(t, objects, "Role", called).Object)
		if err != nil {
			t.Fatal(err)
		}
		if prefix != c.prefix || !strings.Contains(string(role), "- "+c.prefix+"-queue\n") {
			t.Errorf("%s, %q: the prefix is %s, want %s, and the Role is\n%s", c.release, c.values, prefix, c.prefix,
				role)
		}
	}
}

func TestTheChartSignsWithAnIssuerOfYours(t *testing.T) {
	objects := render(t, "values-production.yaml", valuesOf(t,
		`certManager: {enabled: true, issuerRef: {name: internal, kind: ClusterIssuer, group: cert-manager.io}}`))
	var certificates []string
	for _, o := range objects {
		switch o.GetKind() {
		case "Issuer":
			t.Errorf("there is %s, too", name(o))
		case "Certificate":
			certificates = append(certificates, o.GetName())
			if by := at[string](t, o, "spec", "issuerRef", "name"); by != "internal" {
				t.Errorf("%s is signed by %s", name(o), by)
			}
		}
	}
	if want := []string{"steelyard-xds", "steelyard-admin", "steelyard-envoy"}; !slices.Equal(certificates, want) {
		t.Errorf("the certificates are %v, want %v", certificates, want)
	}
}

func TestTheNotesWarnOfAnOpenInstallation(t *testing.T) {
	const notes = "steelyard/templates/NOTES.txt"
	for _, test := range []struct {
		file, values string
		has          []string
		lacks        string
	}{
		{"", "", []string{"exec deployment/steelyard -- /steelyard status", "create token steelyard-oncall",
			"in the Secret steelyard-envoy-tls"}, "WARNING"},
		{"values-open.yaml", "", []string{"WARNING: the xDS port is open", "this must time out"}, "Secret"},
		{"values-open.yaml", "networkPolicy: {enabled: false}", []string{"WARNING", "there is no NetworkPolicy"},
			"must time out"},
		{"values-envoy-gateway.yaml", "", []string{"WARNING"}, "Secret"},
		{"values-istio.yaml", "", []string{"WARNING"}, "Secret"},
		{"values-production.yaml", "", []string{"in the Secret steelyard-envoy-tls"}, "WARNING"},
	} {
		files, err := renderAs(t, "steelyard", namespace, test.file, valuesOf(t, test.values))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range test.has {
			if !strings.Contains(files[notes], want) {
				t.Errorf("%s %s: the notes lack %q:\n%s", test.file, test.values, want, files[notes])
			}
		}
		if strings.Contains(files[notes], test.lacks) {
			t.Errorf("%s %s: the notes have %q:\n%s", test.file, test.values, test.lacks, files[notes])
		}
	}
}

// TestHelmTestIsAdmitted: its Pod carries the label that the policies of chart and base admit to the admin port, and is
// locked down; of the files that it names each is mounted.
func TestHelmTestIsAdmitted(t *testing.T) {
	for _, file := range []string{"", "values-production.yaml"} {
		files, err := renderAs(t, "steelyard", namespace, file, nil)
		if err != nil {
			t.Fatal(err)
		}
		objects := parse(t, "test", []byte(files["steelyard/templates/tests/ready.yaml"]))
		var pod core.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[0].Object, &pod); err != nil {
			t.Fatal(err)
		}
		c := pod.Spec.Containers[0]
		for _, arg := range c.Args {
			_, path, isFile := strings.Cut(arg, "-file=")
			if path == accountToken && *pod.Spec.AutomountServiceAccountToken {
				continue // which Kubernetes mounts
			}
			if isFile && !slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool {
				return strings.HasPrefix(path, m.MountPath+"/")
			}) {
				t.Errorf("nothing is mounted where %s is to be", path)
			}
		}
		if c.Image != deployment(t, render(t, file, nil), "steelyard").Containers[0].Image {
			t.Errorf("it runs %s", c.Image)
		}
		if s := c.SecurityContext; s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
			pod.Spec.SecurityContext.RunAsNonRoot == nil {
			t.Error("it is not locked down")
		}
		if pod.Labels["steelyard.dev/admin"] != "true" {
			t.Errorf("its labels are %v", pod.Labels)
		}
		policy := fmt.Sprint(find(t, render(t, file, nil), "NetworkPolicy", "steelyard").Object)
		if !strings.Contains(policy, "podSelector:map[matchLabels:map[steelyard.dev/admin:true]]") {
			t.Errorf("the policy does not admit it: %s", policy)
		}
	}
}

func TestTheChartServesPoolsOnEnvoyGateway(t *testing.T) {
	objects := render(t, "values-envoy-gateway.yaml", nil)
	text := at[string](t, find(t, objects, "ConfigMap", "steelyard"), "data", "steelyard.yaml")
	cfg, err := config.Parse("steelyard.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if cfg.Pools == nil || cfg.EnvoyGateway == nil || len(cfg.Clusters) != 0 {
		t.Fatalf("the configuration is\n%s", text)
	}
	service := find(t, objects, "Service", "steelyard-gateway")
	if got := at[string](t, service, "spec", "sessionAffinity"); got != "ClientIP" {
		t.Errorf("Envoy Gateway, which connects for each translation, asks another replica each time: %s", got)
	}
	role := fmt.Sprint(find(t, objects, "ClusterRole", namespace+"-steelyard-routes").Object)
	for _, read := range []string{"[httproutes grpcroutes] verbs:[get]", "[backendtlspolicies] verbs:[list]"} {
		if !strings.Contains(role, read) {
			t.Errorf("each translation fails without the right %s: %s", read, role)
		}
	}
	if !strings.Contains(role, "[gateways] verbs:[get]") {
		t.Errorf("a Gateway that is gone stays a parent without the right to see it: %s", role)
	}
	of := fmt.Sprint(find(t, objects, "Role", "steelyard-discovery").Object)
	if !strings.Contains(of, "[inferencepools/status] verbs:[patch]") {
		t.Errorf("no parent is written with %s", of)
	}
	port := at[[]any](t, service, "spec", "ports")[0].(map[string]any)
	for _, p := range deployment(t, objects, "steelyard").Containers[0].Ports {
		if p.Name == port["targetPort"] && cfg.EnvoyGateway.Listen == fmt.Sprintf("0.0.0.0:%d", p.ContainerPort) {
			return
		}
	}
	t.Errorf("it listens on %s, and the Service sends to %v", cfg.EnvoyGateway.Listen, port["targetPort"])
}

// TestTheChartServesPoolsOnIstio: what bootstrap --form istio has gateways connect to has no certificates.
func TestTheChartServesPoolsOnIstio(t *testing.T) {
	text := at[string](t, find(t, render(t, "values-istio.yaml", nil), "ConfigMap", "steelyard"), "data",
		"steelyard.yaml")
	cfg, err := config.Parse("steelyard.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if cfg.Pools == nil || len(cfg.Clusters) != 0 || cfg.XDS.TLS != nil || !cfg.XDS.Insecure {
		t.Errorf("the configuration is\n%s", text)
	}
}

// The example of steelyard check --help, but for yq: what helm template writes is accepted, with each file of values.
func TestWhatHelmWritesPassesACheckOfAPullRequest(t *testing.T) {
	binary, err := proc.BuildSteelyard()
	if err != nil {
		t.Fatal(err)
	}
	help, err := exec.CommandContext(t.Context(), binary, "check", "--help").Output()
	const template = "templates/config.yaml"
	if err != nil || !strings.Contains(string(help), "manifests/chart --show-only "+template) {
		t.Fatalf("the help has another example: %v\n%s", err, help)
	}
	for _, file := range []string{"", "values-production.yaml", "values-open.yaml", "values-envoy-gateway.yaml",
		"values-istio.yaml"} {
		files, err := renderAs(t, "steelyard", namespace, file, nil)
		if err != nil {
			t.Fatal(err)
		}
		made := parse(t, template, []byte(files["steelyard/"+template]))
		text, _ := made[0].Object["data"].(map[string]any)["steelyard.yaml"].(string)
		check := exec.CommandContext(t.Context(), binary, "check", "--no-files", "-c", "-")
		check.Stdin = strings.NewReader(text)
		if out, err := check.CombinedOutput(); err != nil || text == "" || strings.Contains(string(out), "warning") {
			t.Errorf("values %q: %v\n%s", file, err, out)
		}
	}
}
