package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"steelyard/controlplane/admin"
	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery"
	"steelyard/controlplane/discovery/kubernetes"
	"steelyard/internal/api"
)

// kubernetesAPI is the client of the Kubernetes API, made for the first cluster that needs it.
type kubernetesAPI struct {
	client    *kubernetes.Client // nil before
	connected chan struct{}      // closed when there is a client
	pod       api.OwnPod         // that this process runs in
}

func newKubernetesAPI(cfg *config.Config) kubernetesAPI {
	k := kubernetesAPI{connected: make(chan struct{}),
		pod: kubernetes.OwnPod(context.Background(), kubernetes.TokenFile)}
	if cfg.Kubernetes.Kubeconfig != "" { // which has the rights
		k.pod.ServiceAccount = ""
	}
	return k
}

// known is the client; nil before there is one.
func (k *kubernetesAPI) known() *kubernetes.Client {
	select {
	case <-k.connected:
		return k.client
	default:
		return nil
	}
}

// review asks the Kubernetes API who has a token, for the admin listener.
func (k *kubernetesAPI) review(ctx context.Context, token string) (r admin.Reviewed, err error) {
	client := k.known()
	if client == nil {
		return r, errors.New("Steelyard has no access to the Kubernetes API yet")
	}
	h, err := client.Review(ctx, token)
	r.Name = h.Name
	switch {
	case h.MayUpdate:
		r.Role = admin.RoleOperate
	case h.MayGet:
		r.Role = admin.RoleView
	}
	return r, err
}

// connectKubernetes makes the client that cfg needs. Nothing is asked yet.
func (d *Daemon) connectKubernetes(cfg *config.Config) error {
	needed := slices.ContainsFunc(cfg.Clusters, func(c config.Cluster) bool { return c.Endpoints.InKubernetes() })
	needed = needed || cfg.Pools != nil || cfg.Admin.Kubernetes
	if r := d.replicas(cfg); r != nil && r.Service != "" {
		needed = true
	}
	leased := cfg.Lease(d.inCluster()) == config.LeaseKubernetes
	if !needed && !leased || d.kubernetes.client != nil {
		return nil
	}
	client, err := kubernetes.New(kubernetes.Options{
		Kubeconfig: cfg.Kubernetes.Kubeconfig, Requested: d.metrics.KubernetesRequested, Log: d.options.Log,
	})
	if err != nil && !needed {
		return withoutLease(err)
	}
	if err != nil {
		return err
	}
	d.kubernetes.client = client
	close(d.kubernetes.connected)
	return nil
}

// inCluster reports whether other replicas may be found in Kubernetes without a section replicas.
func (d *Daemon) inCluster() bool { return kubernetes.InPod() || d.options.Service != "" }

// withoutLease is why the replicas of Pods cannot have one queue.
func withoutLease(err error) error {
	return fmt.Errorf("replicas agree by a Lease in Kubernetes on the one that grants the places of queues, and "+
		"cannot: %w; or write replicas: {lease: redis, peers: [HOST:PORT]} with a section redis, or "+
		"replicas: {lease: none} if this replica is the only one", err)
}

// run watches over the API server, until ctx is done.
func (k *kubernetesAPI) run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-k.connected:
		return k.client.Run(ctx)
	}
}

// source makes the source of endpoints that e names. There is a client, because the configuration was applied.
func (k *kubernetesAPI) source(e config.Endpoints, report func(error), log *slog.Logger) discovery.Discoverer {
	if p := e.InferencePool; p != nil {
		return k.client.Pool(kubernetes.PoolConfig{
			Namespace: p.Namespace, Name: p.Name, MetricsPort: p.MetricsPort, Family: p.IPFamily,
		}, report, log)
	}
	return k.client.Service(serviceOf(e.Kubernetes), report, log)
}

func serviceOf(s *config.KubernetesService) kubernetes.ServiceConfig {
	return kubernetes.ServiceConfig{
		Namespace: s.Namespace, Service: s.Service, Selector: s.Selector,
		Port: string(s.Port), MetricsPort: string(s.MetricsPort), Family: s.IPFamily,
	}
}

// checkKubeconfig reports a kubeconfig, and rights of the Pod, that cannot be used.
func checkKubeconfig(ctx context.Context, cfg *config.Config, c *config.Checker) {
	if path := &cfg.Kubernetes.Kubeconfig; *path != "" {
		if err := kubernetes.CheckKubeconfig(ctx, *path); err != nil {
			c.Fail(path, "%v: write the path of a kubeconfig with a current context", err)
		}
	}
	checkLease(ctx, cfg, c)
}

// checkLease complains of a queue in a Pod that cannot ask for the Lease of its replicas.
func checkLease(ctx context.Context, cfg *config.Config, c *config.Checker) {
	leased := kubernetes.InPod() && cfg.Kubernetes.Kubeconfig == "" && cfg.Lease(true) == config.LeaseKubernetes
	i := slices.IndexFunc(cfg.Clusters, func(c config.Cluster) bool { return c.Queue != nil })
	if !leased || i < 0 {
		return
	}
	if err := kubernetes.CheckPod(ctx); err != nil {
		c.Fail(&cfg.Clusters[i].Queue, "%v", withoutLease(err))
	}
}

// CheckSelectors is a check of config.Load. It reads no file: the syntax of a selector is that of client-go, which
// package config does not know.
func CheckSelectors(cfg *config.Config, c *config.Checker) {
	for i := range cfg.Clusters {
		if s := cfg.Clusters[i].Endpoints.Kubernetes; s != nil && s.Selector != "" {
			if err := kubernetes.CheckSelector(s.Selector); err != nil {
				c.Fail(&s.Selector, "%v: write a label selector, such as app=llama", err)
			}
		}
	}
}
