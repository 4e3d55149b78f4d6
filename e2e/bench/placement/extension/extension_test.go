package extension

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"steelyard/e2e/rig/kube"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	envoybootstrap "steelyard/envoy-bootstrap"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Connections that client-go keeps for the next request.
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
	)
}

const (
	listener = "ingress"
	cluster  = "models"
)

// rendered returns the bootstrap of an Envoy without the picker, and with it.
func rendered(t *testing.T, servers ...string) (without, with []byte) {
	t.Helper()
	without, err := envoybootstrap.Render(envoybootstrap.Options{
		Cluster: cluster, XDS: "127.0.0.1:18000", NodeID: "envoy-1", Listen: "127.0.0.1:0", Admin: "127.0.0.1:0",
		NoUpstreamLog: true, NoLoadReports: true, NoRuntime: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	with, err = Bootstrap(without, listener, cluster, "127.0.0.1:9002", servers)
	if err != nil {
		t.Fatal(err)
	}
	return without, with
}

func TestEnvoyAcceptsTheConfigurationThatAsksThePicker(t *testing.T) {
	_, text := rendered(t, "127.0.1.1:8000", "127.0.1.2:8000")
	if said, err := proc.ValidateEnvoy(t.Context(), proctest.Dir(t), text); err != nil {
		t.Error(err)
	} else if strings.Contains(said, "deprecated") {
		t.Errorf("Envoy warns:\n%s", said)
	}
}

// Retries, outlier detection, limits and connections are those of the other rows.
func TestOnlyTheChoiceOfTheServerDiffersFromOtherRows(t *testing.T) {
	without, with := rendered(t, "127.0.1.1:8000")
	_, listeners, pool, err := proc.ReadBootstrap(without, listener, cluster)
	if err != nil {
		t.Fatal(err)
	}
	_, asking, chosen, err := proc.ReadBootstrap(with, listener, cluster)
	if err != nil {
		t.Fatal(err)
	}
	ignore := cmp.FilterPath(func(p cmp.Path) bool {
		key, ok := p.Last().(cmp.MapIndex)
		return ok && slices.Contains([]string{"type", "eds_cluster_config", "load_assignment", "lb_policy",
			"least_request_lb_config", "load_balancing_policy", "zone_aware_lb_config"}, key.Key().String())
	}, cmp.Ignore())
	if diff := cmp.Diff(pool, chosen, ignore); diff != "" {
		t.Errorf("the clusters differ (-other rows +this one):\n%s", diff)
	}
	filters := cmp.FilterPath(func(p cmp.Path) bool {
		key, ok := p.Last().(cmp.MapIndex)
		return ok && slices.Contains([]string{"http_filters", "cluster"}, key.Key().String())
	}, cmp.Ignore())
	if diff := cmp.Diff(listeners, asking, filters); diff != "" {
		t.Errorf("the listeners differ (-other rows +this one):\n%s", diff)
	}
}

func TestServersThatCannotBePodsOfAPoolAreRefused(t *testing.T) {
	for want, servers := range map[string][]string{
		"the ports 8000 and 8001": {"127.0.1.1:8000", "127.0.1.2:8001"},
		"missing port":            {"127.0.1.1"},
	} {
		if _, err := Start(t.Context(), t.TempDir(), servers); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want an error with %q", servers, err, want)
		}
	}
}

// TestPodsAreReadyWhileTheirServersAreHealthy, as a kubelet would have it.
func TestPodsAreReadyWhileTheirServersAreHealthy(t *testing.T) {
	api, err := kube.Start(t.Context(), kube.Options{Dir: proctest.Dir(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Stop() })
	servers, err := modelsim.StartServers(2, func(int) modelsim.Options { return modelsim.Options{} })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = servers.Close() })
	p, err := startProber(t.Context(), api, servers.Addresses())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})

	p.waitReady(t, true, true)
	servers[0].SetServingFault(modelsim.ServingUnavailable)
	p.waitReady(t, false, true)
	servers[0].SetServingFault(modelsim.ServingHealthy)
	p.waitReady(t, true, true)
	servers[1].SetFrozen(true) // it still answers /health
	if err := servers[0].Close(); err != nil {
		t.Fatal(err)
	}
	p.waitReady(t, false, true)
}

// waitReady waits until the Pods are ready as wanted.
func (p *prober) waitReady(t *testing.T, want ...bool) {
	t.Helper()
	var last error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if last = p.ready(t.Context(), want); last == nil {
			return
		}
	}
	t.Fatal(last)
}

func (p *prober) ready(ctx context.Context, want []bool) error {
	all, err := p.pods.List(ctx, meta.ListOptions{LabelSelector: labelKey + "=" + labelValue})
	if err != nil {
		return err
	}
	var got []bool
	for _, pod := range all.Items {
		if len(pod.Status.Conditions) != 1 || pod.Status.PodIP != "127.0.0.1" {
			return errors.New("the status of " + pod.Name + " is incomplete")
		}
		got = append(got, pod.Status.Conditions[0].Status == core.ConditionTrue)
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("ready are %v, want %v", got, want)
	}
	return nil
}
