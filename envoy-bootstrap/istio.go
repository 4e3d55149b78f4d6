package envoybootstrap

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
)

// An IstioGateway is a gateway of Istio that is to follow Steelyard's weights.
type IstioGateway struct {
	Namespace string
	Name      string // of its Deployment, or of the Gateway (Gateway API) whose Deployment Istio makes
	Services  []IstioService
	Mesh      bool // the model servers take the mutual TLS of the mesh only
}

// An IstioService is one that routes of a gateway name, and whose requests go by the weights of a cluster.
type IstioService struct {
	Cluster string // of Steelyard
	Address string // HOST:PORT, the host as Istio knows it
}

// IstioFiles are what to apply for a gateway, by the names of the files: first 1, then one of 2, then 3.
type IstioFiles map[string][]byte

// The names in IstioFiles.
const (
	IstioClusters   = "1-clusters.yaml"   // objects that change no route
	IstioDeployment = "2-deployment.yaml" // a patch of the gateway's Deployment
	IstioOwnGateway = "2-gateway.yaml"    // a patch of a Gateway whose Deployment Istio makes
	IstioRoutes     = "3-routes.yaml"     // the object that has the routes' requests go by the weights
)

// RenderIstio returns what to apply so that a gateway of Istio follows Steelyard. The options are those of all its
// services; Cluster, Further, Form, Mode, Fallback, Known, InPlaceOf, MeshSNI and what RenderAttach ignores are set
// or ignored. The error names what is wrong, and what would be right.
func RenderIstio(g IstioGateway, o Options) (IstioFiles, error) {
	if err := errors.Join(g.validate(), o.forIstio()); err != nil {
		return nil, err
	}
	v := istioView{IstioGateway: g}
	for _, s := range g.Services {
		one := s.options(o, g.Mesh)
		aggregate, err := render("aggregate", one)
		if err != nil {
			return nil, err
		}
		members, err := render("members", one)
		if err != nil {
			return nil, err
		}
		v.view = view{Options: one.withDefaults()}
		v.Each = append(v.Each, istioService{v.view, unlisted(string(aggregate))[0], unlisted(string(members))})
	}
	files := IstioFiles{}
	for name, part := range map[string]string{IstioClusters: "istio clusters", IstioDeployment: "istio deployment",
		IstioOwnGateway: "istio gateway", IstioRoutes: "istio routes"} {
		text, err := renderView(part, v.Options, v)
		if err != nil {
			return nil, err
		}
		files[name] = text
	}
	return files, nil
}

// options returns what the clusters of a service are rendered from.
func (s IstioService) options(o Options, mesh bool) Options {
	host, port, _ := net.SplitHostPort(s.Address)
	o.Cluster, o.Known, o.LogOwn = s.Cluster, []string{s.Address}, true
	o.InPlaceOf = fmt.Sprintf("outbound|%s||%s", port, host)
	if mesh {
		o.MeshSNI = fmt.Sprintf("outbound_.%s_._.%s", port, host)
		// The trust domain is the authority's to check: it is none of the Service's names.
		o.MeshIdentity = fmt.Sprintf("spiffe://[^/]+/ns/%s/sa/[^/]+", strings.Split(host, ".")[1])
	}
	return o
}

// forIstio refuses what a gateway of Istio cannot have from here.
func (o Options) forIstio() error {
	switch {
	case o.Picker != "" || o.Module || o.Affinity != "":
		return errors.New("form istio: a picker, the module and affinity need routes of their own: want none of them")
	case o.Mode == ModeShedding:
		return errors.New("form istio: without a fallback a gateway would depend on Steelyard: want mode failsafe")
	case len(o.Fallback) > 0:
		return errors.New("form istio: each cluster falls back on its Service: want no fallback")
	case o.SecretsDir != "":
		return errors.New("form istio: mount the certificates in the gateway, and name them by --xds-ca-file and the " +
			"flags next to it: want no --tls")
	}
	return nil
}

func (g IstioGateway) validate() error {
	var errs []error
	if !isLabel(g.Namespace) || !isLabel(g.Name) {
		errs = append(errs, fmt.Errorf("gateway %q: want NAMESPACE/NAME, such as istio-ingress/gateway",
			g.Namespace+"/"+g.Name))
	}
	if len(g.Services) == 0 {
		errs = append(errs, errors.New("form istio: want a cluster and its Service"))
	}
	seen := map[string]bool{}
	for _, s := range g.Services {
		if err := CheckAddress("service", s.Address, "llama.models.svc.cluster.local:8000"); err != nil {
			errs = append(errs, err)
			continue
		}
		host, _, _ := net.SplitHostPort(s.Address)
		if isIP(host) || strings.Count(host, ".") < 2 || strings.HasSuffix(host, ".svc") {
			errs = append(errs, fmt.Errorf("service %q: Istio knows Services by their whole names: want one such as "+
				"llama.models.svc.cluster.local:8000", s.Address))
		}
		if g.Mesh && !inNamespace.MatchString(host) {
			errs = append(errs, fmt.Errorf("service %q: in the mesh, servers are known by its namespace: want "+
				"NAME.NAMESPACE.svc.DOMAIN:PORT", s.Address))
		}
		if seen[s.Address] || seen[s.Cluster] {
			errs = append(errs, fmt.Errorf("cluster %s, service %s: one of them is given twice", s.Cluster, s.Address))
		}
		seen[s.Address], seen[s.Cluster] = true, true
	}
	return errors.Join(errs...)
}

// inNamespace matches the whole name of a Service of Kubernetes.
var inNamespace = regexp.MustCompile(`^[a-z0-9-]+\.[a-z0-9-]+\.svc\.`)

// isLabel reports whether a name can be that of a namespace or a label's value.
func isLabel(s string) bool {
	for _, r := range s {
		if !(r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z') {
			return false
		}
	}
	return s != "" && len(s) <= 45 // the names of objects have more
}

// An istioView is what the template sees.
type istioView struct {
	view
	IstioGateway
	Each []istioService
}

// An istioService has the clusters of a service, each a YAML mapping.
type istioService struct {
	view
	Aggregate string
	Members   []string
}

// The names of the objects.
func (v istioView) BootstrapName() string  { return "steelyard-" + v.Name + "-bootstrap" }
func (v istioView) DeploymentName() string { return "steelyard-" + v.Name + "-deployment" }
func (v istioView) ClustersName() string   { return "steelyard-" + v.Name + "-clusters" }
func (v istioView) RoutesName() string     { return "steelyard-" + v.Name + "-routes" }

// unlisted returns the items of a rendered list, which empty lines set apart.
func unlisted(list string) (items []string) {
	for item := range strings.SplitSeq(strings.Trim(list, "\n"), "\n\n") {
		lines := strings.Split(item, "\n")
		for i, l := range lines {
			if !strings.HasPrefix(l, "#") {
				lines[i] = l[min(2, len(l)):]
			}
		}
		items = append(items, strings.Join(lines, "\n"))
	}
	return items
}
