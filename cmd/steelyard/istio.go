package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"steelyard/controlplane/discovery/kubernetes"
	envoybootstrap "steelyard/envoy-bootstrap"
)

// formIstio is the form of what a gateway of Istio needs.
const formIstio = "istio"

// istioFlags declares those of the form.
func (b *bootstrap) istioFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&b.gateway, "gateway", "", "with --form istio: NAMESPACE/NAME of the gateway's Deployment, or of the "+
		"Gateway whose Deployment Istio makes")
	f.StringArrayVar(&b.poolsOf, "pools-of", nil, "with --form istio, instead of --cluster or besides: a namespace "+
		"whose InferencePools are served, each with the Service that has its selector; asks the Kubernetes API of "+
		"kubectl; repeat for more, as the files replace the gateway's former ones")
	f.BoolVar(&b.mesh, "mesh", false, "with --form istio: speak the mutual TLS of the mesh to the model servers, "+
		"which all have sidecars")
}

// checkIstio refuses what is without effect on a gateway of Istio, and names what is missing.
func (b *bootstrap) checkIstio(f *pflag.FlagSet) error {
	for _, flag := range append([]string{"attach", "shadow", "affinity"}, ofWhole...) {
		if f.Changed(flag) {
			return usagef("--%s has no effect with --form istio: the gateway that you have, and its routes, stay as "+
				"they are", flag)
		}
	}
	for _, flag := range []string{"tls", "tls-dir", "config-dir"} {
		if f.Changed(flag) {
			return usagef("--%s has no effect with --form istio: mount the certificates in the gateway, and name them "+
				"by --xds-ca-file and the flags next to it", flag)
		}
	}
	var missing []string
	if b.gateway == "" {
		missing = append(missing, "--gateway NAMESPACE/NAME")
	}
	if b.out == "" {
		missing = append(missing, "--out FOLDER")
	}
	if len(missing) > 0 {
		return usagef("--form istio needs %s", strings.Join(missing, " and "))
	}
	return nil
}

// writeIstio writes the files for a gateway of Istio, and prints what to do with them.
func (b *bootstrap) writeIstio(ctx context.Context, stdout io.Writer) error {
	o := b.options
	o.Form, o.NoUpstreamLog, o.NoLoadReports, o.NoRuntime = "", !b.upstreamLog, !b.loadReports, !b.runtimeLayer
	g := envoybootstrap.IstioGateway{Mesh: b.mesh}
	g.Namespace, g.Name, _ = strings.Cut(b.gateway, "/")
	named := map[string]bool{}
	for _, name := range b.names {
		cluster, service, ok := strings.Cut(name, "=")
		if !ok {
			return usagef("--cluster %s: with --form istio, write NAME=SERVICE:PORT, such as "+
				"models.llama=llama.models.svc.cluster.local:8000", name)
		}
		named[cluster] = true
		g.Services = append(g.Services, envoybootstrap.IstioService{Cluster: cluster, Address: service})
	}
	if len(b.poolsOf) > 0 {
		found, err := servicesOf(ctx, b.poolsOf, named)
		if err != nil {
			return err
		}
		g.Services = append(g.Services, found...)
	}
	files, err := envoybootstrap.RenderIstio(g, o)
	if err != nil {
		return usageError{err}
	}
	if err := writeAll(b.out, files); err != nil {
		return err
	}
	at := func(name string) string { return filepath.Join(b.out, name) }
	_, err = fmt.Fprintf(stdout, `1. kubectl apply -f %s
2. kubectl -n %s patch deployment %s --patch-file %s
   or, for a Gateway whose Deployment Istio makes:
   kubectl -n %[2]s patch gateways.gateway.networking.k8s.io %[3]s --type merge --patch-file %[5]s
3. When "steelyard status" shows all Envoys of the gateway at each cluster:
   kubectl apply -f %[6]s
`, at(envoybootstrap.IstioClusters), g.Namespace, g.Name, at(envoybootstrap.IstioDeployment),
		at(envoybootstrap.IstioOwnGateway), at(envoybootstrap.IstioRoutes))
	return err
}

// servicesOf returns the Services of the InferencePools of namespaces, besides those of clusters that were named.
func servicesOf(
	ctx context.Context, namespaces []string, named map[string]bool,
) ([]envoybootstrap.IstioService, error) {
	path, err := kubeconfig()
	if err != nil {
		return nil, err
	}
	api, err := kubernetes.New(kubernetes.Options{Kubeconfig: path, Log: slog.New(slog.DiscardHandler),
		Requested: func(string, string, string) {}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	defer cancel()
	var all []envoybootstrap.IstioService
	var errs []error
	for _, namespace := range namespaces {
		pools, err := api.PairedPools(ctx, namespace)
		if err == nil && len(pools) == 0 {
			err = fmt.Errorf("--pools-of %s: there is no InferencePool without an endpointPickerRef", namespace)
		}
		errs = append(errs, err)
		for _, p := range pools {
			if cluster := namespace + "." + p.Name; !named[cluster] {
				address, err := addressOf(namespace, cluster, p)
				errs = append(errs, err)
				all = append(all, envoybootstrap.IstioService{Cluster: cluster, Address: address})
			}
		}
	}
	return all, errors.Join(errs...)
}

// addressOf returns the Service of a pool, as Istio knows it.
func addressOf(namespace, cluster string, p kubernetes.PairedPool) (string, error) {
	if p.AppProtocol != "" && p.AppProtocol != "http" {
		return "", fmt.Errorf("InferencePool %s/%s: its appProtocol is %s, and only http is served: write --cluster "+
			"for the others, without --pools-of", namespace, p.Name, p.AppProtocol)
	}
	var addresses []string
	for _, s := range p.Services {
		addresses = append(addresses, fmt.Sprintf("%s.%s.svc.cluster.local:%d", s.Service, namespace, s.Port))
	}
	switch len(addresses) {
	case 0:
		return "", fmt.Errorf("InferencePool %s/%s: no Service has its selector, and its port, as a number, as "+
			"targetPort: make one, or add --cluster %s=SERVICE.%[1]s.svc.cluster.local:PORT", namespace, p.Name,
			cluster)
	case 1:
		return addresses[0], nil
	}
	return "", fmt.Errorf("InferencePool %s/%s: several Services have its Pods: add --cluster %s= and the one that "+
		"routes name: %s", namespace, p.Name, cluster, strings.Join(addresses, ", "))
}

// kubernetesTimeout bounds what the Kubernetes API is asked.
const kubernetesTimeout = 30 * time.Second

// kubeconfig is the file that kubectl uses.
func kubeconfig() (string, error) {
	if path := os.Getenv("KUBECONFIG"); path != "" {
		return path, nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".kube", "config"), err
}
