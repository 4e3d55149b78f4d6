package manifests

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"steelyard/controlplane/config"
	"steelyard/e2e/rig/golden"
	envoybootstrap "steelyard/envoy-bootstrap"
)

// TestDerivedFilesAreUpToDate: kustomize can neither wrap a file of rules into an object nor run steelyard bootstrap,
// and a chart reads no file outside of it.
func TestDerivedFilesAreUpToDate(t *testing.T) {
	var rule bytes.Buffer
	rule.WriteString("# Written from deploy/prometheus: go test . -update in e2e/manifests.\n" +
		"apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: steelyard\n  labels:\n" +
		"    app.kubernetes.io/name: steelyard\n    app.kubernetes.io/part-of: steelyard\nspec:\n  groups:\n")
	for _, file := range []string{"recording.yaml", "alerts.yaml"} {
		text, err := os.ReadFile(filepath.Join(root, "deploy/prometheus", file))
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, filepath.Join(manifests, "chart/files", file), string(text))
		_, groups, found := strings.Cut(string(text), "groups:\n")
		if !found {
			t.Fatalf("%s has no groups", file)
		}
		for line := range strings.Lines(groups) {
			rule.WriteString(strings.TrimRight("  "+line, " \n") + "\n")
		}
	}
	golden.Check(t, filepath.Join(manifests, "overlays/monitoring/prometheusrule.yaml"), rule.String())

	dashboard, err := os.ReadFile(filepath.Join(root, "deploy/grafana/steelyard.json"))
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, filepath.Join(manifests, "chart/files/dashboard.json"), string(dashboard))

	example := filepath.Join(manifests, "overlays/example-envoy")
	bootstrap, err := envoybootstrap.Render(exampleEnvoy)
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, filepath.Join(example, "bootstrap.yaml"), string(bootstrap))
	secrets, err := envoybootstrap.RenderSecrets(exampleEnvoy)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range secrets {
		golden.Check(t, filepath.Join(example, name), string(text))
	}
}

// exampleEnvoy are the options of the example's bootstrap.
var exampleEnvoy = envoybootstrap.Options{
	Cluster: "llama", XDS: "steelyard-xds.steelyard.svc:18000", Listen: "0.0.0.0:10000",
	Fallback: []string{"llama.steelyard.svc:8000"}, Ready: "/ready", SecretsDir: "/etc/envoy",
	TLS: envoybootstrap.TLS{CAFile: "/etc/envoy-tls/ca.crt", CertFile: "/etc/envoy-tls/tls.crt",
		KeyFile: "/etc/envoy-tls/tls.key"},
}

// TestEveryObjectIsWhatItsKindAllows: unknown keys and wrong types of the kinds that Kubernetes brings. The API server
// checks those of others.
func TestEveryObjectIsWhatItsKindAllows(t *testing.T) {
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	checked := 0
	check := func(where string, objects []object) {
		for _, o := range objects {
			if !scheme.Scheme.Recognizes(o.GroupVersionKind()) {
				continue
			}
			text, err := yaml.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := strict.Decode(text, nil, nil); err != nil {
				t.Errorf("%s, %s: %v", where, name(o), err)
			}
			checked++
		}
	}
	for _, overlay := range overlays(t) {
		check(overlay, build(t, overlay))
	}
	check("chart", render(t, "", nil))
	check("chart for production", render(t, "values-production.yaml", monitored))
	if checked < 50 {
		t.Errorf("only %d objects were checked", checked)
	}
}

// monitored are values with which the chart brings what the overlay "monitoring" does.
var monitored = map[string]any{"monitoring": map[string]any{"enabled": true}}

func TestTheChartRendersTheObjectsOfTheOverlays(t *testing.T) {
	for what, test := range map[string]struct {
		folders []string
		file    string
		values  map[string]any
	}{
		"base":            {[]string{"base"}, "", nil},
		"production":      {[]string{"overlays/production"}, "values-production.yaml", nil},
		"open":            {[]string{"overlays/open"}, "values-open.yaml", nil},
		"base, monitored": {[]string{"base", "overlays/monitoring"}, "", monitored},
		"production, and monitored": {[]string{"overlays/production", "overlays/production-monitoring"},
			"values-production.yaml", monitored},
	} {
		t.Run(what, func(t *testing.T) {
			want := map[string]any{}
			for _, folder := range test.folders {
				for _, o := range build(t, folder) {
					want[name(o)] = comparable(t, o)
				}
			}
			// Helm makes the namespace itself, with --create-namespace.
			delete(want, "Namespace /"+namespace)
			got := map[string]any{}
			for _, o := range render(t, test.file, test.values) {
				got[name(o)] = comparable(t, o)
			}
			if len(want) < 8 {
				t.Errorf("only %d objects were compared", len(want))
			}
			if difference := cmp.Diff(want, got); difference != "" {
				t.Errorf("kustomize (-) and the chart (+):\n%s", difference)
			}
		})
	}
}

// In another namespace, the ServiceAccount that has the Role and the names in certificates follow, as in the chart.
func TestEverythingFollowsIntoAnotherNamespace(t *testing.T) {
	const other = "elsewhere"
	want, got := map[string]any{}, map[string]any{}
	for _, o := range buildIn(t, other, "overlays/production", "overlays/production-monitoring") {
		if o.GetNamespace() != other && o.GetKind() != "Namespace" {
			t.Errorf("%s is not in %s", name(o), other)
		}
		want[name(o)] = comparable(t, o)
	}
	delete(want, "Namespace /"+other)
	for _, o := range renderIn(t, other, "values-production.yaml", monitored) {
		got[name(o)] = comparable(t, o)
	}
	if difference := cmp.Diff(want, got); difference != "" || len(want) < 8 {
		t.Errorf("%d objects of kustomize (-) and the chart (+):\n%s", len(want), difference)
	}
	binding := find(t, buildIn(t, other, "base"), "RoleBinding", "steelyard")
	if subject := at[[]any](t, binding, "subjects")[0].(map[string]any); subject["namespace"] != other {
		t.Errorf("the Role is bound to %v", subject)
	}
}

func TestTheChartAdmitsOtherNamespaces(t *testing.T) {
	objects := render(t, "", map[string]any{"watchNamespaces": []any{"models"}})
	var got []string
	for _, o := range objects {
		if o.GetNamespace() == "models" {
			got = append(got, name(o))
			o.SetNamespace("")
		}
	}
	slices.Sort(got)
	want := []string{"Role models/steelyard-discovery", "RoleBinding models/steelyard-discovery"}
	if !slices.Equal(got, want) {
		t.Errorf("in the namespace models there are %v, want %v", got, want)
	}
	for _, of := range build(t, "components/watch-namespace") {
		chart := find(t, objects, of.GetKind(), of.GetName())
		for _, key := range []string{"rules", "roleRef", "subjects"} {
			if difference := cmp.Diff(of.Object[key], chart.Object[key]); difference != "" {
				t.Errorf("%s, %s: kustomize (-) and the chart (+):\n%s", name(of), key, difference)
			}
		}
	}
}

// TestTheChartHasTheRolesOfWhatTheConfigurationActsOn: those of the components, in each namespace of model servers.
func TestTheChartHasTheRolesOfWhatTheConfigurationActsOn(t *testing.T) {
	objects := render(t, "", valuesOf(t, `
watchNamespaces: [models]
config: {kubernetes: {wedged: {event: true, condition: true, evict: true}, deletion_cost: true}}
`))
	plain := render(t, "", map[string]any{"watchNamespaces": []any{"models"}})
	for _, component := range []string{"pod-event", "pod-condition", "pod-eviction", "pod-deletion-cost"} {
		for _, of := range build(t, "components/"+component) {
			found := 0
			for _, o := range objects {
				if o.GetKind() != of.GetKind() || o.GetName() != of.GetName() {
					continue
				}
				found++
				for _, key := range []string{"rules", "roleRef", "subjects"} {
					if difference := cmp.Diff(of.Object[key], o.Object[key]); difference != "" {
						t.Errorf("%s, %s: kustomize (-) and the chart (+):\n%s", name(of), key, difference)
					}
				}
			}
			if found != 2 {
				t.Errorf("%s is there %d times, want one in each namespace", name(of), found)
			}
			if slices.ContainsFunc(plain, func(o object) bool { return o.GetName() == of.GetName() }) {
				t.Errorf("%s is there without being asked for", name(of))
			}
		}
	}
}

// comparable returns an object as the API server reads it: numbers are numbers, and the configuration is YAML, of which
// comments and order do not matter. What only Helm writes, the labels of releases, is taken out.
func comparable(t *testing.T, o object) map[string]any {
	t.Helper()
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := yaml.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	withoutRelease(out)
	if data, ok := out["data"].(map[string]any); ok && data["steelyard.yaml"] != nil {
		var parsed any
		if err := yaml.UnmarshalStrict([]byte(data["steelyard.yaml"].(string)), &parsed); err != nil {
			t.Fatal(err)
		}
		data["steelyard.yaml"] = parsed
	}
	return out
}

// withoutRelease takes the labels of releases out of a value, at any depth.
func withoutRelease(value any) {
	switch v := value.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(key string, of any) bool {
			withoutRelease(of)
			return slices.Contains([]string{"helm.sh/chart", "app.kubernetes.io/instance",
				"app.kubernetes.io/version", "app.kubernetes.io/managed-by"}, key)
		})
	case []any:
		for _, of := range v {
			withoutRelease(of)
		}
	}
}

// TestEveryConfigurationIsOneThatSteelyardTakes, and names files only where the Deployment mounts some.
func TestEveryConfigurationIsOneThatSteelyardTakes(t *testing.T) {
	for _, folder := range []string{"base", "overlays/dev", "overlays/open", "overlays/production"} {
		objects := build(t, folder)
		text := at[string](t, find(t, objects, "ConfigMap", "steelyard"), "data", "steelyard.yaml")
		cfg, err := config.Parse("steelyard.yaml", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", folder, err)
			continue
		}
		pod := deployment(t, objects, "steelyard")
		ports := map[string]int32{}
		for _, p := range pod.Containers[0].Ports {
			ports[p.Name] = p.ContainerPort
		}
		for listener, address := range map[string]string{"xds": cfg.XDS.Listen, "admin": cfg.Admin.Listen} {
			if want := fmt.Sprintf("0.0.0.0:%d", ports[listener]); address != want {
				t.Errorf("%s: %s listens on %s, want %s", folder, listener, address, want)
			}
		}
		between := func(r rune) bool { return strings.ContainsRune(" \n,{}[]", r) }
		for _, word := range strings.FieldsFunc(text, between) {
			if strings.HasPrefix(word, "/etc/") && !slices.ContainsFunc(pod.Containers[0].VolumeMounts,
				func(m core.VolumeMount) bool { return strings.HasPrefix(word, m.MountPath+"/") }) {
				t.Errorf("%s: nothing is mounted where %s is to be", folder, word)
			}
		}
	}
}

// deployment returns the pod of a Deployment.
func deployment(t *testing.T, objects []object, called string) core.PodSpec {
	t.Helper()
	var d apps.Deployment
	if err := runtime.DefaultUnstructuredConverter.
		FromUnstructured(find(t, objects, "Deployment", called).Object, &d); err != nil {
		t.Fatal(err)
	}
	return d.Spec.Template.Spec
}

// TestTheBaseRequestsWhatTheDocumentsSay: of the fleet that docs/kubernetes.md names.
func TestTheBaseRequestsWhatTheDocumentsSay(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| up to 1,000 \| up to 1,000 \|.*$`).FindString(string(text))
	r := deployment(t, build(t, "base"), "steelyard").Containers[0].Resources
	want := fmt.Sprintf("| %s core, %s | %s cores, %s |", r.Requests.Cpu(), r.Requests.Memory(), r.Limits.Cpu(),
		r.Limits.Memory())
	if !strings.HasSuffix(row, want) {
		t.Errorf("docs/operations.md has %q, and the base %q", row, want)
	}
}

// TestEveryContainerIsLockedDown: the one of vLLM needs to write into its root.
func TestEveryContainerIsLockedDown(t *testing.T) {
	containers := 0
	for _, overlay := range overlays(t) {
		for _, o := range build(t, overlay) {
			if o.GetKind() != "Deployment" {
				continue
			}
			pod := deployment(t, []object{o}, o.GetName())
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				containers++
				s := c.SecurityContext
				switch {
				case pod.SecurityContext == nil || s == nil,
					pod.SecurityContext.RunAsNonRoot == nil || !*pod.SecurityContext.RunAsNonRoot,
					pod.SecurityContext.SeccompProfile == nil ||
						pod.SecurityContext.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault,
					s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation,
					s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}),
					c.Name != "vllm" && (s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem):
					t.Errorf("%s, %s: the container %s may do more than it needs: %v %v",
						overlay, name(o), c.Name, pod.SecurityContext, s)
				}
				if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() ||
					c.Resources.Limits.Memory().IsZero() {
					t.Errorf("%s, %s: the container %s has no requests, or no limit of memory",
						overlay, name(o), c.Name)
				}
				if o.GetName() != "steelyard" && pod.AutomountServiceAccountToken == nil {
					t.Errorf("%s, %s gets a token of the API server and needs none", overlay, name(o))
				}
			}
		}
	}
	if containers < 5 {
		t.Errorf("only %d containers were checked", containers)
	}
}

// TestServicesAndPoliciesSelectThePods: a label that is written differently in two files selects nothing, silently.
func TestServicesAndPoliciesSelectThePods(t *testing.T) {
	for _, folder := range []string{"base", "overlays/dev", "overlays/production", "overlays/example-envoy"} {
		objects := build(t, folder)
		var pods []map[string]any
		for _, o := range objects {
			if o.GetKind() == "Deployment" {
				pods = append(pods, at[map[string]any](t, o, "spec", "template", "metadata", "labels"))
			}
		}
		for _, o := range objects {
			var path []string
			switch o.GetKind() {
			case "Service":
				path = []string{"spec", "selector"}
			case "PodDisruptionBudget", "Deployment":
				path = []string{"spec", "selector", "matchLabels"}
			case "NetworkPolicy":
				path = []string{"spec", "podSelector", "matchLabels"}
			default:
				continue
			}
			selected := 0
			selector := at[map[string]any](t, o, path...)
			for _, labels := range pods {
				if fits(selector, labels) {
					selected++
				}
			}
			if selected != 1 {
				t.Errorf("%s, %s selects the pods of %d Deployments, want one", folder, name(o), selected)
			}
		}
	}
	// What the ServiceMonitor selects is one Service, and the gateway is an Envoy for the NetworkPolicy.
	base := build(t, "base")
	selector := at[map[string]any](t, find(t, build(t, "overlays/monitoring"), "ServiceMonitor", "steelyard"),
		"spec", "selector", "matchLabels")
	var selected []string
	for _, o := range base {
		labels := map[string]any{}
		for k, v := range o.GetLabels() {
			labels[k] = v
		}
		if o.GetKind() == "Service" && fits(selector, labels) {
			selected = append(selected, o.GetName())
		}
	}
	if !slices.Equal(selected, []string{"steelyard-admin"}) {
		t.Errorf("the ServiceMonitor selects the Services %v", selected)
	}
	gateway := find(t, build(t, "overlays/example-envoy"), "Deployment", "gateway")
	labels := at[map[string]any](t, gateway, "spec", "template", "metadata", "labels")
	if labels["steelyard.dev/envoy"] != "true" {
		t.Errorf("the gateway's pods have the labels %v: Steelyard's NetworkPolicy keeps them out", labels)
	}
}

func fits(selector, labels map[string]any) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return len(selector) > 0
}

// TestAllStreamsOfAnEnvoyReachOneReplica: with a headless Service an Envoy would spread them.
func TestAllStreamsOfAnEnvoyReachOneReplica(t *testing.T) {
	for _, folder := range []string{"base", "overlays/production"} {
		service := find(t, build(t, folder), "Service", "steelyard-xds")
		if ip, found, _ := unstructuredString(service, "spec", "clusterIP"); found {
			t.Errorf("%s: clusterIP is %s", folder, ip)
		}
		if affinity := at[string](t, service, "spec", "sessionAffinity"); affinity != "ClientIP" {
			t.Errorf("%s: the affinity is %s", folder, affinity)
		}
	}
}

// TestTheDocumentNamesWhatExists: configurations, folders and files of docs/kubernetes.md.
func TestTheDocumentNamesWhatExists(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/kubernetes.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)\n```yaml\n(.*?)\n```\n").FindAllSubmatch(text, -1)
	if len(blocks) == 0 {
		t.Error("it has no configuration")
	}
	for _, block := range blocks {
		if _, err := config.Parse("kubernetes.md", block[1]); err != nil {
			t.Error(err)
		}
	}
	paths := regexp.MustCompile(`\bmanifests(/[\w.-]+)+`).FindAllString(string(text), -1)
	if len(paths) < 8 {
		t.Errorf("it names only %v", paths)
	}
	for _, path := range paths {
		if _, err := os.Stat(filepath.Join(root, strings.TrimRight(path, "."))); err != nil {
			t.Error(err)
		}
	}
	for _, folder := range overlays(t) {
		if strings.HasPrefix(folder, "overlays/") && !strings.Contains(string(text), filepath.Base(folder)) {
			t.Errorf("it does not name %s", folder)
		}
	}
}

// The links of alerts are relative until a file of the overlay has where docs/ and Grafana are.
func TestTheLinksOfTheAlertsLeadWhereTheOverlayMonitoringSays(t *testing.T) {
	dir := t.TempDir()
	overlay := filepath.Join(dir, "manifests/overlays/monitoring")
	for from, to := range map[string]string{filepath.Join(manifests, "overlays/monitoring"): overlay,
		filepath.Join(root, "deploy/grafana"): filepath.Join(dir, "deploy/grafana")} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	for data, want := range map[string][2]string{
		"{docs: docs, grafana: ''}": {"docs/", "/d/"},
		"{docs: https://example.com/steelyard/docs, grafana: https://grafana.example.com}": {
			"https://example.com/steelyard/docs/", "https://grafana.example.com/d/"},
	} {
		text := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: steelyard-links\n  annotations: " +
			"{config.kubernetes.io/local-config: 'true'}\ndata: " + data + "\n"
		if err := os.WriteFile(filepath.Join(overlay, "links.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		objects := buildAt(t, overlay)
		for alert, rule := range alertsOf(t, objects) {
			links := rule["annotations"].(map[string]any)
			if !strings.HasPrefix(fmt.Sprint(links["runbook_url"]), want[0]+"symptoms.md#") ||
				!strings.HasPrefix(fmt.Sprint(links["dashboard"]), want[1]+"steelyard") {
				t.Errorf("%s: %v", alert, links)
			}
		}
		if slices.ContainsFunc(objects, func(o object) bool { return o.GetName() == "steelyard-links" }) {
			t.Error("what holds the addresses is applied, too")
		}
	}
}

// Who operates Steelyard needs what signed its certificate, and neither the Secret, which has a key, too, nor the
// account of the control plane, which may write that Secret.
func TestPeopleWhoOperateNeedNoSecretAndNoAccountOfSteelyard(t *testing.T) {
	for where, objects := range map[string][]object{"base": build(t, "base"), "chart": render(t, "", nil)} {
		for _, role := range []string{"steelyard-viewer", "steelyard-operator"} {
			var r rbac.Role
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(find(t, objects, "Role", role).Object,
				&r); err != nil {
				t.Fatal(err)
			}
			want := rbac.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"},
				ResourceNames: []string{"steelyard-trust"}, Verbs: []string{"get"}}
			if len(r.Rules) != 2 || !cmp.Equal(r.Rules[1], want) {
				t.Errorf("%s of %s: %+v, want as the second rule %+v", role, where, r.Rules, want)
			}
		}
	}
	for _, path := range []string{"docs/kubernetes.md", "manifests/chart/templates/NOTES.txt"} {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		tokens := regexp.MustCompile(`create token (\{\{ \$name \}\}\S*|\S+)`).FindAllStringSubmatch(string(text), -1)
		for _, m := range tokens {
			if !strings.HasSuffix(m[1], "-oncall") {
				t.Errorf("%s: %s is of an account that does more than a person may", path, m[0])
			}
		}
		if len(tokens) == 0 {
			t.Errorf("%s does not say how to log in", path)
		}
	}
}
