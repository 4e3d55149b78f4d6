package envoybootstrap

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func istioGateway(mesh bool) IstioGateway {
	return IstioGateway{Namespace: "models", Name: "eg", Mesh: mesh, Services: []IstioService{
		{"models.llama", "llama.models.svc.cluster.local:8000"}, {"models.embed", "embed.models.svc.cluster.local:80"}}}
}

// patchesOf returns what the patches of an EnvoyFilter add, by the names of clusters and of others, and which clusters
// they remove.
func patchesOf(t *testing.T, text []byte) (added map[string]map[string]any, removed []string) {
	t.Helper()
	documents := strings.Split(string(text), "\n---\n")
	var filter struct {
		Spec struct {
			WorkloadSelector struct {
				Labels map[string]string `json:"labels"`
			} `json:"workloadSelector"`
			ConfigPatches []struct {
				ApplyTo string `json:"applyTo"`
				Match   struct {
					Context string `json:"context"`
					Cluster struct {
						Name string `json:"name"`
					} `json:"cluster"`
				} `json:"match"`
				Patch struct {
					Operation string         `json:"operation"`
					Value     map[string]any `json:"value"`
				} `json:"patch"`
			} `json:"configPatches"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(documents[len(documents)-1]), &filter); err != nil {
		t.Fatal(err)
	}
	if l := filter.Spec.WorkloadSelector.Labels; len(l) != 1 || l["steelyard.dev/gateway"] != "eg" {
		t.Errorf("the workloads are those with %v", l)
	}
	added = map[string]map[string]any{}
	for _, p := range filter.Spec.ConfigPatches {
		if p.Match.Context != "GATEWAY" {
			t.Errorf("a patch is for %q", p.Match.Context)
		}
		if p.Patch.Operation == "REMOVE" {
			removed = append(removed, p.Match.Cluster.Name)
			continue
		}
		added[p.Patch.Value["name"].(string)] = p.Patch.Value
	}
	return added, removed
}

// TestAGatewayOfIstioKeepsItsRoutes: the cluster of each Service is replaced under its name, by a step of its own, when
// its members are there.
func TestAGatewayOfIstioKeepsItsRoutes(t *testing.T) {
	files, err := RenderIstio(istioGateway(false), Options{XDS: "steelyard:18000"})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 4 {
		t.Errorf("there are %d files", len(files))
	}
	members, removed := patchesOf(t, files[IstioClusters])
	if len(members) != 7 || len(removed) != 0 || members["envoy.filters.http.router"] == nil {
		t.Errorf("step 1 adds %d and removes %v", len(members), removed)
	}
	for name, c := range members {
		if c["transport_socket"] != nil {
			t.Errorf("%s has a transport socket without --mesh", name)
		}
	}
	targets, removed := patchesOf(t, files[IstioRoutes])
	want := []string{"outbound|8000||llama.models.svc.cluster.local", "outbound|80||embed.models.svc.cluster.local"}
	if slices.Sort(removed); !slices.Equal(removed, want) || len(targets) != 2 {
		t.Errorf("step 3 adds %d and removes %v", len(targets), removed)
	}
	for _, name := range want {
		kind := targets[name]["cluster_type"].(map[string]any)
		for _, member := range kind["typed_config"].(map[string]any)["clusters"].([]any) {
			if members[member.(string)] == nil {
				t.Errorf("%s has the member %s, which no step adds", name, member)
			}
		}
	}
}

// TestInAStrictMeshAllMembersSpeakItsTLS: the fallbacks as well, which nobody would miss before Steelyard is away.
// Other namespaces have certificates of the same authority.
func TestInAStrictMeshAllMembersSpeakItsTLS(t *testing.T) {
	files, err := RenderIstio(istioGateway(true), Options{XDS: "steelyard:18000"})
	if err != nil {
		t.Fatal(err)
	}
	members, _ := patchesOf(t, files[IstioClusters])
	for _, cluster := range []string{"models.llama", "models.llama_fallback", "models.llama_known", "models.embed",
		"models.embed_fallback", "models.embed_known"} {
		socket, _ := members[cluster]["transport_socket"].(map[string]any)
		if socket == nil {
			t.Errorf("%s has no transport socket", cluster)
			continue
		}
		want := "outbound_.8000_._.llama.models.svc.cluster.local"
		if strings.HasPrefix(cluster, "models.embed") {
			want = "outbound_.80_._.embed.models.svc.cluster.local"
		}
		if sni := socket["typed_config"].(map[string]any)["sni"]; sni != want {
			t.Errorf("%s names the server %v", cluster, sni)
		}
		identity := regexp.MustCompile("^(?:" + identityOf(t, socket) + ")$") // Envoy's match is a full one
		for id, ok := range map[string]bool{"spiffe://cluster.local/ns/models/sa/llama": true,
			"spiffe://example.com/ns/models/sa/default": true, "spiffe://cluster.local/ns/models2/sa/llama": false,
			"spiffe://cluster.local/ns/elsewhere/sa/ns/models/sa/llama": false,
			"https://cluster.local/ns/models/sa/llama":                  false} {
			if identity.MatchString(id) != ok {
				t.Errorf("%s: whether %s is a model server: want %t", cluster, id, ok)
			}
		}
	}
}

// identityOf returns what a transport socket wants of the server's certificate.
func identityOf(t *testing.T, socket map[string]any) string {
	t.Helper()
	text, err := yaml.Marshal(socket)
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Config struct {
			Common struct {
				Combined struct {
					Default struct {
						Names []struct {
							Type    string `json:"san_type"`
							Matcher struct {
								Regex struct {
									Regex string `json:"regex"`
								} `json:"safe_regex"`
							} `json:"matcher"`
						} `json:"match_typed_subject_alt_names"`
					} `json:"default_validation_context"`
				} `json:"combined_validation_context"`
			} `json:"common_tls_context"`
		} `json:"typed_config"`
	}
	if err := yaml.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	names := s.Config.Common.Combined.Default.Names
	if len(names) != 1 || names[0].Type != "URI" {
		t.Fatalf("it checks the names %+v", names)
	}
	return names[0].Matcher.Regex.Regex
}

func TestWhatAGatewayOfIstioCannotHaveIsRefused(t *testing.T) {
	service := func(address string) func(*IstioGateway, *Options) {
		return func(g *IstioGateway, _ *Options) { g.Services[0].Address = address }
	}
	for name, c := range map[string]struct {
		change func(*IstioGateway, *Options)
		want   string
	}{
		"no gateway": {func(g *IstioGateway, _ *Options) { g.Name = "" }, "want NAMESPACE/NAME"},
		"a long name": {func(g *IstioGateway, _ *Options) { g.Name = strings.Repeat("a", 46) },
			"want NAMESPACE/NAME"},
		"no Service":   {func(g *IstioGateway, _ *Options) { g.Services = nil }, "want a cluster and its Service"},
		"a short name": {service("llama.models.svc:8000"), "whole names"},
		"a Service of no namespace in the mesh": {func(g *IstioGateway, _ *Options) {
			g.Mesh, g.Services[0].Address = true, "llm.example.com:8000"
		}, "want NAME.NAMESPACE.svc.DOMAIN:PORT"},
		"no port":         {service("llama.models.svc.cluster.local"), "want HOST:PORT"},
		"a Service twice": {service("embed.models.svc.cluster.local:80"), "given twice"},
		"mode shedding":   {func(_ *IstioGateway, o *Options) { o.Mode = ModeShedding }, "want mode failsafe"},
		"a fallback":      {func(_ *IstioGateway, o *Options) { o.Fallback = []string{"a:1"} }, "want no fallback"},
		"a picker":        {func(_ *IstioGateway, o *Options) { o.Picker = "a:1" }, "want none of them"},
		"the module":      {func(_ *IstioGateway, o *Options) { o.Module = true }, "want none of them"},
		"affinity":        {func(_ *IstioGateway, o *Options) { o.Affinity = "x-user" }, "want none of them"},
		"a folder":        {func(_ *IstioGateway, o *Options) { o.SecretsDir = "/certs" }, "want no --tls"},
		"a cluster's name": {func(g *IstioGateway, _ *Options) { g.Services[0].Cluster = "a/b" },
			"a slash is not allowed"},
		"Steelyard nowhere": {func(_ *IstioGateway, o *Options) { o.XDS = "steelyard" }, "want HOST:PORT"},
	} {
		g, o := istioGateway(false), Options{XDS: "steelyard:18000"}
		c.change(&g, &o)
		if _, err := RenderIstio(g, o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, want %q", name, err, c.want)
		}
	}
}
