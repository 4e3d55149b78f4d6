package queue

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"steelyard/e2e/rig/kube"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
)

// inKubernetes keeps the lease in a real API server, with the rights that the base gives. Another holder has renewed it
// by a clock that is an hour ahead, and never does again.
func inKubernetes(t *testing.T) keeping {
	t.Helper()
	s, err := kube.Start(t.Context(), kube.Options{Dir: proctest.Dir(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	token := filepath.Join(proctest.Dir(t), "token")
	if err := grant(t.Context(), s, token); err != nil {
		t.Fatal(err)
	}
	return keeping{address: s.Address(), top: func(link string, i int, replicas string) string {
		path := filepath.Join(filepath.Dir(token), fmt.Sprint("kubeconfig-", i))
		if err := s.WriteKubeconfig(path, "https://"+link, token); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("kubernetes: {kubeconfig: %q}\nreplicas: {lease: kubernetes, %s}", path, replicas)
	}}
}

// grant makes a service account with the Role of the base, and writes its token.
func grant(ctx context.Context, s *kube.Server, path string) error {
	const namespace, name = "default", "steelyard"
	client, err := s.Client()
	if err != nil {
		return err
	}
	root, err := proc.Root()
	if err != nil {
		return err
	}
	file, err := os.Open(filepath.Join(root, "manifests", "base", "role.yaml"))
	if err != nil {
		return err
	}
	defer file.Close()
	d := yaml.NewYAMLOrJSONDecoder(file, 4096)
	var role rbac.Role
	var binding rbac.RoleBinding
	if err := d.Decode(&role); err != nil {
		return err
	}
	if err := d.Decode(&binding); err != nil {
		return err
	}
	binding.Subjects[0].Namespace = namespace
	account := &core.ServiceAccount{ObjectMeta: meta.ObjectMeta{Name: name}}
	if _, err = client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, meta.CreateOptions{}); err != nil {
		return err
	}
	if _, err := client.RbacV1().Roles(namespace).Create(ctx, &role, meta.CreateOptions{}); err != nil {
		return err
	}
	if _, err := client.RbacV1().RoleBindings(namespace).Create(ctx, &binding, meta.CreateOptions{}); err != nil {
		return err
	}
	ahead, holder, epoch := meta.NewMicroTime(time.Now().Add(time.Hour)), "elsewhere", int32(7)
	_, err = client.CoordinationV1().Leases(namespace).Create(ctx, &coordination.Lease{
		ObjectMeta: meta.ObjectMeta{Name: "steelyard-queue", Annotations: map[string]string{
			"steelyard.dev/owner": `{"id": "x", "name": "elsewhere", "address": "127.0.0.1:1"}`}},
		Spec: coordination.LeaseSpec{HolderIdentity: &holder, RenewTime: &ahead, LeaseTransitions: &epoch},
	}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	token, err := s.Token(ctx, namespace, name, time.Hour)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(token), 0o600)
}
