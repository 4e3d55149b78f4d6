package manifests

import (
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	core "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/internal/api"
)

// served is what the EndpointSlice of the Service "llama" lists: addresses of a network for documentation, at which
// nothing answers. A loopback address is one that the API server refuses.
var served = []string{"192.0.2.1", "192.0.2.2"}

// otherReplica is a Pod of Steelyard besides the one that runs.
const otherReplica = "203.0.113.1"

// accountToken is where Kubernetes mounts the token of a Pod's ServiceAccount.
const accountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// TestTheBaseIsClosedAndItsCommandsWorkAsInstalled: the containers of the Deployment with the ConfigMap, of which only
// the listeners, the root of the mounts and the way to the API server are others, and with a token of the
// ServiceAccount, which may do what the Roles say and nothing else.
func TestTheBaseIsClosedAndItsCommandsWorkAsInstalled(t *testing.T) {
	c := startCluster(t)
	p := &production{t: t, dir: proctest.Dir(t), objects: build(t, "base")}
	p.apply(c)
	admin, err := c.server.Client()
	p.must(err)
	makeEndpoints(t, admin)
	token, kubeconfig := p.account(c)
	mayDoNothingElse(t, c, p.token)

	p.makeCertificates(kubeconfig)
	before := secretsOf(t, admin)
	p.makeCertificates(kubeconfig) // another replica, or the next version
	p.apply(c)                     // and again, by GitOps
	if difference := cmp.Diff(before, secretsOf(t, admin)); difference != "" {
		t.Errorf("the Secrets have changed:\n%s", difference)
	}
	p.secrets = before
	p.authority = x509.NewCertPool()
	p.authority.AppendCertsFromPEM([]byte(before["steelyard-envoy-tls"]["ca.crt"]))
	mounted := p.serve(p.configuration(kubeconfig))

	p.envoyHas("steelyard-envoy-tls", served[0]+":8000", served[1]+":8000")
	p.onlyWithATokenAndACertificate()
	p.looksForTheOther()
	var cluster struct {
		Problems []struct{ Severity, Message string }
	}
	p.must(p.get("/api/v1/clusters/llama", &cluster))
	for _, problem := range cluster.Problems {
		if strings.Contains(problem.Message, "may not") || strings.Contains(problem.Message, "forbidden") {
			t.Errorf("the Role is too narrow: %s", problem.Message)
		}
	}
	p.commands(token)
	p.people(c, admin)
	p.followsTheConfigMap(mounted)
}

// apply applies what is not run here.
func (p *production) apply(c *cluster) {
	p.t.Helper()
	c.mustApply(p.t, find(p.t, p.objects, "Namespace", namespace))
	for _, o := range p.objects {
		switch o.GetKind() {
		case "ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Secret":
			c.mustApply(p.t, o)
		}
	}
}

// account writes a token of the ServiceAccount, and a kubeconfig with it.
func (p *production) account(c *cluster) (token, kubeconfig string) {
	p.t.Helper()
	var err error
	p.token, err = c.server.Token(p.t.Context(), namespace, "steelyard", time.Hour)
	p.must(err)
	token, kubeconfig = filepath.Join(p.dir, "token"), filepath.Join(p.dir, "kubeconfig")
	write(p.t, token, p.token)
	writeKubeconfig(p.t, c, kubeconfig, token)
	return token, kubeconfig
}

// configuration returns the text of the ConfigMap, with listeners of this machine.
func (p *production) configuration(kubeconfig string) string {
	ports, err := proc.FreeAddresses(2)
	p.must(err)
	p.xds, p.admin = ports[0], ports[1]
	config := at[string](p.t, find(p.t, p.objects, "ConfigMap", "steelyard"), "data", "steelyard.yaml")
	config = replaced(p.t, config, "0.0.0.0:18000", p.xds)
	config = replaced(p.t, config, "0.0.0.0:19000", p.admin)
	config = strings.ReplaceAll(config, "/etc/", p.dir+"/etc/")
	return config + "\nkubernetes: {kubeconfig: " + kubeconfig + "}\n"
}

// makeCertificates runs the first container of the Pod. Its folder is mounted twice in the second one.
func (p *production) makeCertificates(kubeconfig string) {
	p.t.Helper()
	binary, err := proc.BuildSteelyard()
	p.must(err)
	pod := deployment(p.t, p.objects, "steelyard")
	own := filepath.Join(p.dir, "tls")
	p.must(os.MkdirAll(own, 0o755))
	for _, m := range pod.Containers[0].VolumeMounts {
		at := filepath.Join(p.dir, m.MountPath)
		p.must(os.MkdirAll(filepath.Dir(at), 0o755))
		if _, err := os.Lstat(at); m.Name == "tls" && err != nil {
			p.must(os.Symlink(own, at))
		}
	}
	args := append(slices.Clone(pod.InitContainers[0].Args), "--kubeconfig", kubeconfig)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "/etc/steelyard-tls", own)
	}
	if out, err := exec.CommandContext(p.t.Context(), binary, args...).CombinedOutput(); err != nil {
		p.t.Fatalf("steelyard %v: %v\n%s", args, err, out)
	}
}

// secretsOf are the Secrets of the namespace.
func secretsOf(t *testing.T, client kubernetes.Interface) map[string]map[string]string {
	t.Helper()
	all, err := client.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]string{}
	for _, s := range all.Items {
		out[s.Name] = map[string]string{}
		for key, value := range s.Data {
			out[s.Name][key] = string(value)
		}
	}
	return out
}

// run runs a command as kubectl exec would, with the container's environment.
func (p *production) run(token string, args ...string) (string, error) {
	binary, err := proc.BuildSteelyard()
	p.must(err)
	command := exec.CommandContext(p.t.Context(), binary, args...)
	_, port, err := net.SplitHostPort(p.admin)
	p.must(err)
	for _, e := range deployment(p.t, p.objects, "steelyard").Containers[0].Env {
		value := strings.ReplaceAll(e.Value, "/etc/", p.dir+"/etc/")
		value = strings.ReplaceAll(value, accountToken, token)
		command.Env = append(command.Env, e.Name+"="+strings.ReplaceAll(value, ":19000", ":"+port))
	}
	out, err := command.CombinedOutput()
	return string(out), err
}

// commands need no option in the Pod.
func (p *production) commands(token string) {
	p.t.Helper()
	out, err := p.run(token, "drain", "llama", "llama-0", "--reason", "new driver")
	if err != nil || !strings.Contains(out, "of llama is drained until") {
		p.t.Errorf("drain: %v\n%s", err, out)
	}
	out, _ = p.run(token, "status") // which is 1, because nothing answers at the model servers
	if !strings.Contains(out, "system:serviceaccount:steelyard:steelyard") || !strings.Contains(out, "new driver") {
		p.t.Errorf("status:\n%s", out)
	}
	if out, err := p.run(token, "undrain", "llama", "llama-0"); err != nil {
		p.t.Errorf("undrain: %v\n%s", err, out)
	}
}

// people may do what the Role that is bound to them says.
func (p *production) people(c *cluster, client kubernetes.Interface) {
	p.t.Helper()
	for _, who := range []struct{ name, role, says string }{
		{"alice", "steelyard-operator", "of llama is drained until"},
		{"bob", "steelyard-viewer", "bob has the role view, and this needs operate"},
		{"carol", "", "bind the Role steelyard-viewer or"},
	} {
		p.bind(client, who.name, who.role)
		text, err := c.server.Token(p.t.Context(), namespace, who.name, time.Hour)
		p.must(err)
		token := filepath.Join(p.dir, who.name)
		write(p.t, token, text)
		out, err := p.run(token, "drain", "llama", "llama-0")
		if (err == nil) != (who.name == "alice") || !strings.Contains(out, who.says) {
			p.t.Errorf("a drain by %s: %v\n%s", who.name, err, out)
		}
	}
}

// bind makes a ServiceAccount, which stands for a person here, with a Role.
func (p *production) bind(client kubernetes.Interface, name, role string) {
	p.t.Helper()
	_, err := client.CoreV1().ServiceAccounts(namespace).Create(p.t.Context(),
		&core.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	p.must(err)
	if role == "" {
		return
	}
	_, err = client.RbacV1().RoleBindings(namespace).Create(p.t.Context(), &rbac.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: role},
		Subjects:   []rbac.Subject{{Kind: "ServiceAccount", Name: name, Namespace: namespace}},
	}, metav1.CreateOptions{})
	p.must(err)
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
func (p *production) followsTheConfigMap(folder string) {
	p.t.Helper()
	var status struct {
		Generation int `json:"config_generation"`
	}
	p.must(p.get("/api/v1/status", &status))
	before := status.Generation
	text, err := os.ReadFile(filepath.Join(folder, "steelyard.yaml"))
	p.must(err)
	mount(p.t, folder, "..second", replaced(p.t, string(text), "engine: vllm", "engine: sglang"))
	eventually(p.t, "the new configuration runs", func() error {
		if err := p.get("/api/v1/status", &status); err != nil || status.Generation != before {
			return err
		}
		return fmt.Errorf("generation %d runs still", before)
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
	xds, xdsName := int32(18000), "tcp-xds"
	other := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "steelyard-xds-1",
			Labels: map[string]string{discoveryv1.LabelServiceName: "steelyard-xds"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &xdsName, Port: &xds}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{otherReplica}}},
	}
	for _, s := range []*discoveryv1.EndpointSlice{slice, other} {
		if _, err := client.DiscoveryV1().EndpointSlices(namespace).
			Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// looksForTheOther waits until it has tried to connect to the other replica, which the slice of its Service has.
func (p *production) looksForTheOther() {
	p.t.Helper()
	eventually(p.t, "it looks for the other replica", func() error {
		var s api.Status
		err := p.get("/api/v1/status", &s)
		if err == nil && (len(s.Replicas.Others) != 1 || s.Replicas.Others[0].Address != otherReplica+":18000") {
			err = fmt.Errorf("%+v", s.Replicas)
		}
		return err
	})
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
		"get another Secret": func() error {
			_, err := own.Secrets(namespace).Get(t.Context(), "other", metav1.GetOptions{})
			return err
		},
		"make a Secret": func() error {
			_, err := own.Secrets(namespace).Create(t.Context(), &core.Secret{ObjectMeta: metav1.ObjectMeta{
				Name: "other"}}, metav1.CreateOptions{})
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
