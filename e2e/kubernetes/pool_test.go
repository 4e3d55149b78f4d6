package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	source "steelyard/controlplane/discovery/kubernetes"
	"steelyard/e2e/rig/kube"
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	inferencePools = schema.GroupVersionResource{Group: "inference.networking.k8s.io", Version: "v1",
		Resource: "inferencepools"}
)

// installPools installs the InferencePool's definition of the module that e2e/kubernetes/inferencepool pins.
func installPools(t testing.TB, s *kube.Server) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json",
		"sigs.k8s.io/gateway-api-inference-extension")
	cmd.Dir = "inferencepool"
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod download: %v\n%s", err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(module.Dir, "config", "crd", "bases",
		"inference.networking.k8s.io_inferencepools.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var definition unstructured.Unstructured
	if err := yaml.Unmarshal(text, &definition.Object); err != nil {
		t.Fatal(err)
	}
	d, err := s.Dynamic()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = d.Resource(definitions).Create(t.Context(), &definition, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the next test begins without
		ctx := context.Background()
		if err := d.Resource(definitions).Delete(ctx, definition.GetName(), meta.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		eventually(t, "the API has no InferencePools any more", func() error {
			_, err := d.Resource(definitions).Get(ctx, definition.GetName(), meta.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("the definition is still there (%w)", err)
		})
	})
	eventually(t, "the API has InferencePools", func() error {
		_, err := d.Resource(inferencePools).List(t.Context(), meta.ListOptions{})
		return err
	})
}

// pickerPort is the port of the Service that pools name as their picker.
const pickerPort = 9002

// pool writes an InferencePool, or replaces it.
func (r room) pool(s *kube.Server, name string, labels map[string]string, ports ...int64) {
	r.t.Helper()
	selected := map[string]any{}
	for k, v := range labels {
		selected[k] = v
	}
	var targets []any
	for _, p := range ports {
		targets = append(targets, map[string]any{"number": p})
	}
	made := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
		"metadata": map[string]any{"name": name, "namespace": r.name},
		"spec": map[string]any{
			"selector":    map[string]any{"matchLabels": selected},
			"targetPorts": targets,
			"endpointPickerRef": map[string]any{"name": "picker", "kind": "Service",
				"port": map[string]any{"number": int64(pickerPort)}},
		},
	}}
	d, err := s.Dynamic()
	r.must(err)
	_, err = d.Resource(inferencePools).Namespace(r.name).Apply(r.t.Context(), name, made,
		meta.ApplyOptions{FieldManager: "test", Force: true})
	r.must(err)
}

// TestAnInferencePoolSelectsPodsAndPorts, by its own definition and with no more rights than are documented.
func TestAnInferencePoolSelectsPodsAndPorts(t *testing.T) {
	s := apiServer(t)
	r := newRoom(t, client(t, s))
	r.account()
	r.grant(r.name, readPools, readPods)
	llama := map[string]string{"app": "llama", "topology.kubernetes.io/zone": "zone-a"}
	a := r.pod(pod{name: "a", ips: []string{"10.0.0.1", "2001:db8::1"}, labels: llama, node: "node-1",
		annotations: map[string]string{"steelyard.dev/capacity": "32"}})
	r.pod(pod{name: "b", ips: []string{"10.0.0.2"}, labels: llama, node: "node-1"})
	r.pod(pod{name: "starting", ips: []string{"10.0.0.3"}, labels: llama, unready: true})
	r.pod(pod{name: "other", ips: []string{"10.0.0.9"}, labels: map[string]string{"app": "mixtral"}})

	c := connect(t, s, "", r.tokenFile(s))
	v := pool(t, c, source.PoolConfig{Namespace: r.name, Name: "llama", MetricsPort: 9000})
	v.faulty("the Kubernetes API has no inferencepools.inference.networking.k8s.io/v1", "CustomResourceDefinitions")
	installPools(t, s)
	v.faulty("there is no InferencePool " + r.name + "/llama")
	r.pool(s, "llama", map[string]string{"app": "llama"}, 8000, 8001)
	v.becomes("10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8000", "10.0.0.2:8001")
	if e := v.one("10.0.0.1:8001"); e.ID != string(a) || e.Capacity != 32 || e.Pod != "a" || e.Node != "node-1" ||
		e.Zone != "zone-a" || e.MetricsPort != 9000 {
		t.Errorf("it is %+v", e)
	}

	r.pool(s, "llama", map[string]string{"app": "llama"}, 8000)
	v.becomes("10.0.0.1:8000", "10.0.0.2:8000")
	r.terminate("b") // which its node keeps, as long as requests run
	v.becomes("10.0.0.1:8000", "-10.0.0.2:8000")
	r.remove("b")
	v.becomes("10.0.0.1:8000")
	// A Pod that takes over the address is another endpoint.
	r.remove("a")
	v.becomes() // the only other Pod is not ready
	again := r.pod(pod{name: "a", ips: []string{"10.0.0.1"}, labels: llama})
	eventually(t, "the new Pod is there", func() error {
		if set, err := v.now(); err != nil || len(set) != 1 || set[0].ID != string(again) {
			return fmt.Errorf("endpoints %+v (%w)", set, err)
		}
		return nil
	})
	r.pool(s, "llama", map[string]string{"app": "mixtral"}, 8000)
	v.becomes("10.0.0.9:8000")
}
