package kubernetes

import (
	"log/slog"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	source "steelyard/controlplane/discovery/kubernetes"
	"steelyard/e2e/rig/leasetest"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/internal/lease"
)

func TestALeaseInKubernetesKeepsTheContract(t *testing.T) {
	server, name := apiServer(t), "contract"
	path := filepath.Join(proctest.Dir(t), "kubeconfig")
	if err := server.WriteKubeconfig(path, "", ""); err != nil {
		t.Fatal(err)
	}
	steelyard, err := source.New(source.Options{Kubeconfig: path, Requested: func(_, _, _ string) {},
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	leases := client(t, server).CoordinationV1().Leases(steelyard.Namespace())
	leasetest.Contract(t, leasetest.Shelf{
		Store: func() lease.Store { return steelyard.Lease(name) },
		Lose: func() {
			err := leases.Delete(t.Context(), name, meta.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
		},
	})
}
