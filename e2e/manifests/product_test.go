package manifests

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	core "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
)

// served is what the EndpointSlice of the Service "llama" lists: addresses of a network for documentation, at which
// nothing answers. A loopback address is one that the API server refuses.
var served = []string{"192.0.2.1", "192.0.2.2"}

// TestSteelyardGetsReadyWithWhatTheBaseGivesIt: the binary with the configuration of the ConfigMap, of which only the
// two listeners and the way to the API server are others, and with a token of the ServiceAccount, which may do what the
// Role says and nothing else.
func TestSteelyardGetsReadyWithWhatTheBaseGivesIt(t *testing.T) {
	c := startCluster(t)
	base := build(t, "base")
	for _, kind := range []string{"Namespace", "ServiceAccount", "Role", "RoleBinding", "ConfigMap"} {
		c.mustApply(t, find(t, base, kind, "steelyard"))
	}
	admin, err := c.server.Client()
	if err != nil {
		t.Fatal(err)
	}
	makeEndpoints(t, admin)

	dir := proctest.Dir(t)
	token := filepath.Join(dir, "token")
	text, err := c.server.Token(t.Context(), namespace, "steelyard", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	write(t, token, text)
	mayDoNothingElse(t, c, text)

	addresses, err := proc.FreeAddresses(2)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	writeKubeconfig(t, c, kubeconfig, token)
	config := at[string](t, find(t, base, "ConfigMap", "steelyard"), "data", "steelyard.yaml")
	config = replaced(t, config, "0.0.0.0:18000", addresses[0])
	config = replaced(t, config, "0.0.0.0:19000", addresses[1])
	config += "\nkubernetes: {kubeconfig: " + kubeconfig + "}\n"
	mounted := filepath.Join(dir, "mounted")
	mount(t, mounted, "..first", config)

	binary, err := proc.BuildSteelyard()
	if err != nil {
		t.Fatal(err)
	}
	args := deployment(t, base, "steelyard").Containers[0].Args
	if want := []string{"serve", "--config", "/etc/steelyard/steelyard.yaml"}; !cmp.Equal(args[:3], want) {
		t.Fatalf("the container runs %v, want %v first", args, want)
	}
	proctest.Steelyard(t, proc.SteelyardConfig{Path: binary,
		Config: filepath.Join(mounted, "steelyard.yaml"),
		Admin:  addresses[1], Dir: dir, Args: args[3:]})
	probe := deployment(t, base, "steelyard").Containers[0].ReadinessProbe.HTTPGet.Path
	eventually(t, "it is ready", func() error {
		return proc.AnswersHTTP("http://" + addresses[1] + probe)(t.Context())
	})
	var cluster struct {
		Endpoints []struct {
			Address string
		}
		Problems []struct{ Severity, Message string }
	}
	eventually(t, "it has the endpoints of the slice", func() error {
		get(t, "http://"+addresses[1]+"/api/v1/clusters/llama", &cluster)
		var got []string
		for _, e := range cluster.Endpoints {
			got = append(got, e.Address)
		}
		if want := []string{served[0] + ":8000", served[1] + ":8000"}; !cmp.Equal(got, want) {
			return fmt.Errorf("it has %v, want %v", got, want)
		}
		return nil
	})
	for _, p := range cluster.Problems {
		if strings.Contains(p.Message, "may not") || strings.Contains(p.Message, "forbidden") {
			t.Errorf("the Role is too narrow: %s", p.Message)
		}
	}
	followsTheConfigMap(t, mounted, config, addresses[1])
}

// mount writes a ConfigMap's file as a kubelet does: in a folder behind the link "..data", which is replaced when the
// ConfigMap has changed.
func mount(t *testing.T, dir, generation, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, generation), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, generation, "steelyard.yaml"), text)
	link := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(generation, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "steelyard.yaml")
	if err := os.Symlink(filepath.Join("..data", "steelyard.yaml"), file); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
}

// followsTheConfigMap changes the mounted file. Steelyard runs the new configuration without a restart.
func followsTheConfigMap(t *testing.T, mounted, text, admin string) {
	t.Helper()
	var status struct {
		Generation int `json:"config_generation"`
	}
	get(t, "http://"+admin+"/api/v1/status", &status)
	before := status.Generation
	mount(t, mounted, "..second", replaced(t, text, "engine: vllm", "engine: sglang"))
	eventually(t, "the new configuration runs", func() error {
		get(t, "http://"+admin+"/api/v1/status", &status)
		if status.Generation == before {
			return fmt.Errorf("generation %d runs still", before)
		}
		return nil
	})
}

// makeEndpoints writes what the controllers and a kubelet would for two Pods behind the Service.
func makeEndpoints(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	yes, port, portName := true, int32(8000), "http"
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "llama-1",
			Labels: map[string]string{discoveryv1.LabelServiceName: "llama"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port}},
	}
	pods := client.CoreV1().Pods(namespace)
	for i, address := range served {
		vllm := deployment(t, build(t, "overlays/example-envoy"), "llama")
		pod, err := pods.Create(t.Context(), &core.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("llama-%d", i), Labels: map[string]string{
				"app.kubernetes.io/name": "llama"}},
			Spec: vllm,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{address},
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes},
			TargetRef:  &core.ObjectReference{Kind: "Pod", Name: pod.Name, Namespace: namespace, UID: pod.UID},
		})
	}
	if _, err := client.DiscoveryV1().EndpointSlices(namespace).
		Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// mayDoNothingElse tries what a Role that is too wide would allow.
func mayDoNothingElse(t *testing.T, c *cluster, token string) {
	t.Helper()
	options := rest.AnonymousClientConfig(c.server.Admin())
	options.BearerToken = token
	client, err := kubernetes.NewForConfig(options)
	if err != nil {
		t.Fatal(err)
	}
	own, all := client.CoreV1(), metav1.ListOptions{}
	if _, err := client.DiscoveryV1().EndpointSlices(namespace).List(t.Context(), all); err != nil {
		t.Errorf("it may not list EndpointSlices: %v", err)
	}
	for what, try := range map[string]func() error{
		"list Secrets":    func() error { _, err := own.Secrets(namespace).List(t.Context(), all); return err },
		"list ConfigMaps": func() error { _, err := own.ConfigMaps(namespace).List(t.Context(), all); return err },
		"list the Pods of another namespace": func() error {
			_, err := own.Pods("kube-system").List(t.Context(), all)
			return err
		},
		"list EndpointSlices everywhere": func() error {
			_, err := client.DiscoveryV1().EndpointSlices("").List(t.Context(), all)
			return err
		},
		"get a Pod": func() error {
			_, err := own.Pods(namespace).Get(t.Context(), "llama-0", metav1.GetOptions{})
			return err
		},
		"delete a Pod": func() error {
			return own.Pods(namespace).Delete(t.Context(), "llama-0", metav1.DeleteOptions{})
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("it may %s: error %v", what, err)
		}
	}
}

// writeKubeconfig makes one whose token and namespace are those of the Pod.
func writeKubeconfig(t *testing.T, c *cluster, path, token string) {
	t.Helper()
	if err := c.server.WriteKubeconfig(path, "", token); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	config.Contexts[config.CurrentContext].Namespace = namespace
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func replaced(t *testing.T, text, part, by string) string {
	t.Helper()
	if strings.Count(text, part) != 1 {
		t.Fatalf("%q is not there once in:\n%s", part, text)
	}
	return strings.Replace(text, part, by, 1)
}

func get(t *testing.T, url string, into any) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s answers %s: %v\n%s", url, resp.Status, err, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("%s: %v", url, err)
	}
}
