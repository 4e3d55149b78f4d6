package envoybootstrap

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"

	"steelyard/e2e/rig/proc/proctest"
)

// attached is an existing Envoy with what is to be attached; the clusters of FormCDS are those of its CDS file.
func attached(t *testing.T, o Options, target string) (bootstrap []byte, found map[string]*clusterv3.Cluster) {
	t.Helper()
	text, err := RenderAttach(o)
	if err != nil {
		t.Fatal(err)
	}
	own, cds, split := strings.Cut(string(text), "---\n")
	if split != (o.Form == FormCDS) {
		t.Fatalf("form %s has two documents: %t", o.Form, split)
	}
	dynamic := ""
	if split {
		file := filepath.Join(t.TempDir(), "cds.yaml")
		if err := os.WriteFile(file, []byte(cds), 0o600); err != nil {
			t.Fatal(err)
		}
		dynamic = fmt.Sprintf("dynamic_resources: {cds_config: {resource_api_version: V3, path_config_source: "+
			"{path: %q}}}\n", file)
	}
	listener := existingListener
	if split {
		listener = strings.Replace(listener, "route_config:", "route_config:\n            validate_clusters: false", 1)
	}
	bootstrap = fmt.Appendf(nil, proctest.Existing+dynamic+"%s"+listener+"%s", own, target, forTheRouter(text))
	found = clusters(decode(t, bootstrap))
	if !split {
		return bootstrap, found
	}
	for _, resource := range resources(t, []byte(cds)).GetResources() {
		c := unpack(t, resource, &clusterv3.Cluster{})
		found[c.GetName()] = c
	}
	return bootstrap, found
}

// resources reads a file of resources as Envoy does.
func resources(t *testing.T, text []byte) *discoveryv3.DiscoveryResponse {
	t.Helper()
	var tree any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	asJSON, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	r := new(discoveryv3.DiscoveryResponse)
	if err := protojson.Unmarshal(asJSON, r); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return r
}

func TestSeveralClustersAreAttachedWithEachSharedBlockOnceInEveryForm(t *testing.T) {
	for _, form := range []Form{FormStatic, FormCDS, FormADS} {
		t.Run(string(form), func(t *testing.T) {
			o := llama(ModeFailsafe)
			o.Further, o.Form = []string{"embed", "rerank"}, form
			text, err := RenderAttach(o)
			if err != nil {
				t.Fatal(err)
			}
			for block, want := range map[string]int{"\ncluster_manager:": 1, "\nlayered_runtime:": 1,
				"\nstatic_resources:": 1, "\n#     upstream_log:": 1, "- name: steelyard_xds\n": 1,
				"\ndynamic_resources:": map[Form]int{FormADS: 1}[form]} {
				if n := strings.Count(string(text), block); n != want {
					t.Errorf("%q is there %d times, want %d", block, n, want)
				}
			}
			bootstrap, found := attached(t, o, "rerank_failsafe")
			want := []string{"embed", "embed_failsafe", "embed_fallback", "llama", "llama_failsafe", "llama_fallback",
				"rerank", "rerank_failsafe", "rerank_fallback", "steelyard_xds"}
			if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
				t.Errorf("clusters %q, want %q", got, want)
			}
			for name, service := range map[string]string{"embed": "embed/failsafe",
				"embed_fallback": "embed/fallback"} {
				eds := found[name].GetEdsClusterConfig()
				if eds.GetServiceName() != service || (eds.GetEdsConfig().GetAds() != nil) != (form == FormADS) {
					t.Errorf("%s: %v", name, eds)
				}
			}
			accepted(t, bootstrap)
		})
	}
}

// TestEachOfSeveralAttachedClustersHasItsPicker, which is off until a route switches it on.
func TestEachOfSeveralAttachedClustersHasItsPicker(t *testing.T) {
	for name, set := range map[string]func(*Options){
		"module": func(o *Options) { o.Module = true },
		"picker": func(o *Options) { o.Picker = "127.0.0.1:18002" },
	} {
		o := llama(ModeFailsafe)
		o.Further = []string{"embed"}
		set(&o)
		text, err := RenderAttach(o)
		if err != nil {
			t.Fatal(err)
		}
		asks := map[string]string{"module": `\"cluster\":\"%s\"`,
			"picker": "{key: x-steelyard-cluster, value: %q}"}[name]
		const on = `{"steelyard.%s": {"@type": type.googleapis.com/envoy.config.route.v3.FilterConfig, config: {}}}` +
			"\n"
		for _, cluster := range []string{"llama", "embed"} {
			for _, want := range []string{fmt.Sprintf("- name: \"steelyard.%s\"\n#       disabled: true\n", cluster),
				fmt.Sprintf(on, cluster), fmt.Sprintf("- name: %q\n", cluster+"_picked"), fmt.Sprintf(asks, cluster)} {
				if n := strings.Count(string(text), want); n != 1 {
					t.Errorf("%s: %q is there %d times, want once", name, want, n)
				}
			}
		}
	}
}

// TestModelServersThatSpeakTLSDoSoInTheFallbackToo: without it everything is green until Steelyard is gone.
func TestModelServersThatSpeakTLSDoSoInTheFallbackToo(t *testing.T) {
	pki := newPKI(t)
	for _, form := range []Form{FormStatic, FormCDS, FormADS} {
		for _, watched := range []bool{false, true} {
			o := llama(ModeFailsafe)
			o.Form = form
			o.TLS = TLS{CAFile: pki.ca, CertFile: pki.cert, KeyFile: pki.key}
			o.ModelTLS = TLS{CAFile: pki.ca, CertFile: pki.cert, KeyFile: pki.key, ServerName: "models.internal"}
			if watched {
				o.SecretsDir = t.TempDir()
				secrets, err := RenderSecrets(o)
				if err != nil {
					t.Fatal(err)
				}
				for name, text := range secrets {
					if err := os.WriteFile(filepath.Join(o.SecretsDir, name), text, 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			bootstrap, found := attached(t, o, "llama_failsafe")
			for name, want := range map[string]string{"llama": "models.internal", "llama_fallback": "models.internal",
				"llama_failsafe": "", "steelyard_xds": "127.0.0.1"} {
				socket := found[name].GetTransportSocket()
				if (socket == nil) != (want == "") {
					t.Errorf("%s %s: transport socket %v", form, name, socket)
					continue
				}
				if want == "" {
					continue
				}
				c := unpack(t, socket.GetTypedConfig(), &tlsv3.UpstreamTlsContext{}).GetCommonTlsContext()
				check := c.GetValidationContext()
				if watched {
					check = c.GetCombinedValidationContext().GetDefaultValidationContext()
				}
				if san := check.GetMatchTypedSubjectAltNames(); len(san) != 1 ||
					san[0].GetMatcher().GetExact() != want {
					t.Errorf("%s %s: expects %v, want %s", form, name, san, want)
				}
			}
			accepted(t, bootstrap)
		}
	}
}

func TestSecretsNameTheFilesAndTheFolderToWatch(t *testing.T) {
	o := llama(ModeFailsafe)
	o.TLS = TLS{CAFile: "/ca/ca.crt", CertFile: "/tls/tls.crt", KeyFile: "/tls/tls.key"}
	o.ModelTLS = TLS{CAFile: "/models/ca.crt"}
	o.SecretsDir = "/etc/envoy"
	secrets, err := RenderSecrets(o)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for file, text := range secrets {
		all := resources(t, text).GetResources()
		if len(all) != 1 {
			t.Fatalf("%s has %d resources", file, len(all))
		}
		s := unpack(t, all[0], &tlsv3.Secret{})
		c, v := s.GetTlsCertificate(), s.GetValidationContext()
		got[file] = strings.Join([]string{s.GetName(), c.GetCertificateChain().GetFilename(),
			c.GetPrivateKey().GetFilename(), c.GetWatchedDirectory().GetPath(), v.GetTrustedCa().GetFilename(),
			v.GetWatchedDirectory().GetPath()}, " ")
	}
	want := map[string]string{
		"steelyard-certificate.yaml": "steelyard_certificate /tls/tls.crt /tls/tls.key /tls  ",
		"steelyard-authorities.yaml": "steelyard_authorities    /ca/ca.crt /ca",
		"models-authorities.yaml":    "models_authorities    /models/ca.crt /models",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	for _, c := range clusters(rendered(t, o)) {
		if c.GetName() != xdsCluster {
			continue
		}
		common := unpack(t, c.GetTransportSocket().GetTypedConfig(), &tlsv3.UpstreamTlsContext{}).GetCommonTlsContext()
		source := common.GetTlsCertificateSdsSecretConfigs()[0].GetSdsConfig().GetPathConfigSource()
		if source.GetPath() != "/etc/envoy/steelyard-certificate.yaml" ||
			source.GetWatchedDirectory().GetPath() != "/etc/envoy" {
			t.Errorf("the certificate comes from %v", source)
		}
	}
}

func TestWhatCannotBeAttachedIsAnErrorWithWhatToWrite(t *testing.T) {
	for want, change := range map[string]func(*Options){
		`cluster "llama": it is given twice`: func(o *Options) { o.Further = []string{"llama"} },
		`cluster "a b": want printable`:      func(o *Options) { o.Further = []string{"a b"} },
		"fallback: its endpoints belong to one": func(o *Options) {
			o.Further, o.Fallback = []string{"x"}, []string{"a:1"}
		},
		`form "lds": want static or cds or ads`:         func(o *Options) { o.Form = "lds" },
		"secrets: there is nothing to read without TLS": func(o *Options) { o.SecretsDir = "/x" },
		"model tls: no CA file given":                   func(o *Options) { o.ModelTLS.CertFile = "x" },
		"model tls: want both a certificate file and a k": func(o *Options) {
			o.ModelTLS = TLS{CAFile: "a", KeyFile: "b"}
		},
	} {
		o := llama(ModeFailsafe)
		change(&o)
		if text, err := RenderAttach(o); err == nil || !strings.Contains(err.Error(), want) || text != nil {
			t.Errorf("%v, want %q", err, want)
		}
	}
	o := llama(ModeFailsafe)
	o.Further = []string{"embed"}
	if _, err := Render(o); err == nil || !strings.Contains(err.Error(), "a bootstrap has one") {
		t.Errorf("a bootstrap of two clusters: %v", err)
	}
}

// TestAShadowAddsNothingThatARequestCouldGoThrough in every form: one cluster for each name, without weights, that no
// route names.
func TestAShadowAddsNothingThatARequestCouldGoThrough(t *testing.T) {
	for _, form := range []Form{FormStatic, FormCDS, FormADS} {
		t.Run(string(form), func(t *testing.T) {
			o := llama(ModeFailsafe)
			o.Further, o.Form, o.Shadow = []string{"embed"}, form, true
			bootstrap, found := attached(t, o, "steelyard_xds") // any cluster that is there
			want := []string{"embed_shadow", "llama_shadow", "steelyard_xds"}
			if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
				t.Errorf("clusters %q, want %q", got, want)
			}
			for name, service := range map[string]string{"embed_shadow": "embed/members",
				"llama_shadow": "llama/members"} {
				if got := found[name].GetEdsClusterConfig().GetServiceName(); got != service {
					t.Errorf("%s asks for %q, want %q", name, got, service)
				}
			}
			accepted(t, bootstrap)
		})
	}
	o := llama(ModeFailsafe)
	o.Shadow = true
	if _, err := Render(o); err == nil || !strings.Contains(err.Error(), "shadow: it is for requests of clusters") {
		t.Errorf("a whole bootstrap: %v", err)
	}
}
