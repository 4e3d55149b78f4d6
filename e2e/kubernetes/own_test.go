package kubernetes

import (
	"os"
	"path/filepath"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	source "steelyard/controlplane/discovery/kubernetes"
	"steelyard/internal/api"
)

// The commands of incidents name the Pod and whose rights it has, by the token that a kubelet asks for.
func TestAProcessKnowsItsPodByItsToken(t *testing.T) {
	r := newRoom(t, client(t, apiServer(t)))
	accounts := r.client.CoreV1().ServiceAccounts(r.name)
	_, err := accounts.Create(t.Context(), &core.ServiceAccount{ObjectMeta: meta.ObjectMeta{Name: "balancer"}},
		meta.CreateOptions{})
	r.must(err)
	made, err := r.client.CoreV1().Pods(r.name).Create(t.Context(), &core.Pod{
		ObjectMeta: meta.ObjectMeta{Name: "steelyard-7c9d4b6f8-fghjk"},
		Spec: core.PodSpec{ServiceAccountName: "balancer",
			Containers: []core.Container{{Name: "steelyard", Image: "steelyard"}}}}, meta.CreateOptions{})
	r.must(err)
	answer, err := accounts.CreateToken(t.Context(), "balancer", &authentication.TokenRequest{
		Spec: authentication.TokenRequestSpec{BoundObjectRef: &authentication.BoundObjectReference{APIVersion: "v1",
			Kind: "Pod", Name: made.Name, UID: made.UID}}}, meta.CreateOptions{})
	r.must(err)
	file := filepath.Join(t.TempDir(), "token")
	r.must(os.WriteFile(file, []byte(answer.Status.Token), 0o600))
	want := api.OwnPod{Namespace: r.name, Name: made.Name, ServiceAccount: "balancer"}
	if got := source.OwnPod(t.Context(), file); got != want {
		t.Errorf("it is %+v, want %+v", got, want)
	}
	r.must(os.WriteFile(file, []byte("made.up"), 0o600))
	if got := source.OwnPod(t.Context(), file); got != (api.OwnPod{}) {
		t.Errorf("of no token it is %+v", got)
	}
}
