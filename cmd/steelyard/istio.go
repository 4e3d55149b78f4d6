package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	envoybootstrap "steelyard/envoy-bootstrap"
)

// formIstio is the form of what a gateway of Istio needs.
const formIstio = "istio"

// istioFlags declares those of the form.
func (b *bootstrap) istioFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&b.gateway, "gateway", "", "with --form istio: NAMESPACE/NAME of the gateway's Deployment, or of the "+
		"Gateway whose Deployment Istio makes")
	f.BoolVar(&b.mesh, "mesh", false, "with --form istio: speak the mutual TLS of the mesh to the model servers, "+
		"which all have sidecars")
}

// writeIstio writes the files for a gateway of Istio, and prints what to do with them.
func (b *bootstrap) writeIstio(stdout io.Writer) error {
	o := b.options
	o.Form, o.NoUpstreamLog, o.NoLoadReports, o.NoRuntime = "", !b.upstreamLog, !b.loadReports, !b.runtimeLayer
	if b.out == "" || b.secured || b.attach || b.affinity != "" {
		return usagef("--form istio needs --out, and has no --tls, --attach and --affinity")
	}
	g := envoybootstrap.IstioGateway{Mesh: b.mesh}
	g.Namespace, g.Name, _ = strings.Cut(b.gateway, "/")
	for _, name := range b.names {
		cluster, service, ok := strings.Cut(name, "=")
		if !ok {
			return usagef("--cluster %s: with --form istio, write NAME=SERVICE:PORT, such as "+
				"models.llama=llama.models.svc.cluster.local:8000", name)
		}
		g.Services = append(g.Services, envoybootstrap.IstioService{Cluster: cluster, Address: service})
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
