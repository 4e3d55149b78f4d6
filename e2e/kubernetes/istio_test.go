package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
)

// TestBootstrapFindsTheServicesOfInferencePools: the real API fills in a Service's targetPort, and takes pools without
// a picker.
func TestBootstrapFindsTheServicesOfInferencePools(t *testing.T) {
	s := apiServer(t)
	r := newRoom(t, client(t, s))
	installPools(t, s)
	d, err := s.Dynamic()
	r.must(err)
	_, err = d.Resource(inferencePools).Namespace(r.name).Create(t.Context(), &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
			"metadata": map[string]any{"name": "llama"}, "spec": map[string]any{
				"selector":    map[string]any{"matchLabels": map[string]any{"app": "llama"}},
				"targetPorts": []any{map[string]any{"number": int64(8000)}}}}}, meta.CreateOptions{})
	r.must(err)
	_, err = r.client.CoreV1().Services(r.name).Create(t.Context(), &core.Service{
		ObjectMeta: meta.ObjectMeta{Name: "vllm"}, Spec: core.ServiceSpec{Selector: map[string]string{"app": "llama"},
			Ports: []core.ServicePort{{Port: 8000}}}}, meta.CreateOptions{})
	r.must(err)

	binary, err := proc.BuildSteelyard()
	r.must(err)
	dir := proctest.Dir(t)
	r.must(s.WriteKubeconfig(filepath.Join(dir, "kubeconfig"), "", ""))
	cmd := exec.CommandContext(t.Context(), binary, "bootstrap", "--form", "istio", "--gateway", "models/eg", "--xds",
		"steelyard-xds.steelyard.svc:18000", "--pools-of", r.name, "--out", dir)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "kubeconfig"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	routes, err := os.ReadFile(filepath.Join(dir, "3-routes.yaml"))
	r.must(err)
	if want := "outbound|8000||vllm." + r.name + ".svc.cluster.local"; !strings.Contains(string(routes), want) {
		t.Errorf("step 3 has no %s:\n%s", want, routes)
	}
}
