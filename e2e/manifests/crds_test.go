package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A source is a Go module that holds CustomResourceDefinitions, and the files of it that are needed.
type source struct {
	module, sum string // path@version, and its checksum as in a go.sum
	files       []string
	only        []string // names of the definitions to take out of a file with many; none: all
}

// They are in no go.mod: nothing of them is compiled.
var sources = []source{
	{module: "github.com/prometheus-operator/prometheus-operator@v0.85.0",
		sum: "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
		files: []string{"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
			"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"}},
	{module: "github.com/cert-manager/cert-manager@v1.21.2",
		sum:   "h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68=",
		files: []string{"deploy/crds/cert-manager.io_certificates.yaml", "deploy/crds/cert-manager.io_issuers.yaml"}},
	{module: "github.com/kedacore/keda/v2@v2.21.0", sum: "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=",
		files: []string{"config/crd/bases/keda.sh_scaledobjects.yaml"}},
	{module: "github.com/envoyproxy/gateway@v1.9.1", sum: "h1:vAVp6/AlBXJ1aOhp1mxL7fNEzVEfjADUguUhm2wzxQY=",
		files: []string{
			"charts/gateway-helm/charts/crds/crds/generated/gateway.envoyproxy.io_backendtrafficpolicies.yaml",
			"charts/gateway-helm/charts/crds/crds/generated/gateway.envoyproxy.io_envoypatchpolicies.yaml",
			"charts/gateway-helm/charts/crds/crds/generated/gateway.envoyproxy.io_envoyproxies.yaml"}},
	{module: "istio.io/api@v1.31.1", sum: "h1:5Yb5ihcz4YQsCkciusK7DnFpBMwRB6EFWeUKH1Atuyk=",
		files: []string{"kubernetes/customresourcedefinitions.gen.yaml"},
		only:  []string{"envoyfilters.networking.istio.io"}},
	{module: "github.com/projectcontour/contour@v1.33.8", sum: "h1:QoOfwqWws+CVRFpsRC2+f1DmB5IdurtyUtepIsiWfE0=",
		files: []string{"examples/contour/01-crds.yaml"},
		only:  []string{"httpproxies.projectcontour.io"}},
}

// definitions downloads the modules, as go.mod's are, and returns what is needed of them.
func definitions(t *testing.T) (out []object) {
	t.Helper()
	for _, s := range sources {
		command := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", s.module)
		var errs bytes.Buffer
		command.Stderr = &errs
		text, err := command.Output()
		var got struct{ Dir, Sum, Error string }
		if json.Unmarshal(text, &got) != nil || err != nil || got.Error != "" {
			t.Fatalf("go mod download %s: %v %s%s", s.module, err, got.Error, errs.String())
		}
		if got.Sum != s.sum {
			t.Fatalf("%s has the checksum %s, want %s", s.module, got.Sum, s.sum)
		}
		for _, file := range s.files {
			text, err := os.ReadFile(filepath.Join(got.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, chosen(parse(t, file, text), s.only)...)
		}
	}
	return out
}

func chosen(objects []object, only []string) (out []object) {
	for _, o := range objects {
		wanted := len(only) == 0
		for _, name := range only {
			wanted = wanted || o.GetName() == name
		}
		if wanted && o.GetKind() == "CustomResourceDefinition" {
			out = append(out, o)
		}
	}
	return out
}

func unstructuredString(o object, path ...string) (string, bool, error) {
	return unstructured.NestedString(o.Object, path...)
}

// established returns an error until the API server serves a definition.
func established(o object) error {
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return nil
		}
	}
	return fmt.Errorf("%s is not established", o.GetName())
}
