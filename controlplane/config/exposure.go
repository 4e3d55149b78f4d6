package config

import (
	"net"
	"net/netip"
	"strings"
)

// Loopback reports whether only processes of this machine can connect to a listener, given its host:port.
func Loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// verifies reports whether clients need a certificate.
func (x *XDS) verifies() bool { return x.TLS != nil && x.TLS.ClientCAFile != "" }

// Open reports whether clients of other machines can connect without a certificate.
func (x *XDS) Open() bool { return !x.verifies() && !Loopback(x.Listen) }

// checkExposure wants client certificates where other machines can connect.
func (d *decoder) checkExposure(x *XDS) {
	if x.Open() && !x.Insecure {
		d.fail(&x.Listen, "other machines can connect to %s, and could steer the traffic without a client "+
			"certificate: add tls: with client_ca_file:, or write insecure: true to do without", x.Listen)
	}
	if len(x.Clients) > 0 && !x.verifies() {
		d.fail(&x.Clients, "clients are known by their certificates, and none are asked for: add tls: with "+
			"client_ca_file:, or remove this list")
	}
	for i := range x.Clients {
		d.checkClient(&x.Clients[i])
	}
}

// Open reports whether clients of other machines can connect without a certificate.
func (g *EnvoyGateway) Open() bool {
	return (g.TLS == nil || g.TLS.ClientCAFile == "") && !Loopback(g.Listen)
}

// checkEnvoyGateway wants client certificates where other machines can connect, and names by which Envoys find pools.
func (d *decoder) checkEnvoyGateway(g *EnvoyGateway, clusters []Cluster) {
	d.checkListen(&g.Listen)
	if g.Open() && !g.Insecure {
		d.fail(&g.Listen, "other machines can connect to %s: add tls: with client_ca_file:, or write insecure: true "+
			"to do without", g.Listen)
	}
	d.checkModule(g)
	for i := range clusters {
		if p := clusters[i].Endpoints.InferencePool; p != nil && p.Name != "" {
			d.checkPoolCluster(&clusters[i].Name, p)
		}
	}
}

// checkModule wants an address and Gateways for the module, or neither.
func (d *decoder) checkModule(g *EnvoyGateway) {
	d.checkReachable(&g.ModuleXDS)
	switch {
	case g.ModuleXDS != "" && !d.written(&g.ModuleGateways):
		d.conflict(&g.ModuleXDS, &g.ModuleGateways, "it has no effect without the Gateways whose Envoys have the "+
			"module: add module_gateways: [NAMESPACE/NAME], or remove this line")
	case g.ModuleXDS == "" && d.written(&g.ModuleGateways):
		d.conflict(&g.ModuleGateways, &g.ModuleXDS, "the module in their Envoys has no address of Steelyard: add "+
			"module_xds: HOST:PORT, or remove this line")
	}
	lines := map[string]int{}
	for i := range g.ModuleGateways {
		gateway := &g.ModuleGateways[i]
		namespace, name, _ := strings.Cut(*gateway, "/")
		if !namespaceName.MatchString(namespace) || !objectName.MatchString(name) {
			d.refuse(gateway, "is not a Gateway: write NAMESPACE/NAME")
		}
		d.checkTwice(gateway, *gateway, lines, "Gateway")
	}
}

// checkPoolCluster wants the name that a pool's cluster has without an item of its own: Envoys ask for it until
// Envoy Gateway has translated its Gateways again.
func (d *decoder) checkPoolCluster(name *string, p *InferencePool) {
	switch {
	case p.Namespace == "":
		d.fail(&p.Namespace, "missing: with envoy_gateway, write the namespace of the pool, because the cluster has "+
			"its name, NAMESPACE.%s", p.Name)
	case *name != poolCluster(p.Namespace, p.Name):
		d.refuse(name, "is not the name by which the Envoys of Envoy Gateway know the pool: write %s",
			shown(poolCluster(p.Namespace, p.Name)))
	}
}

func (d *decoder) checkClient(r *ClientRule) {
	scheme, rest, uri := strings.Cut(r.SAN, "://")
	host, _, _ := strings.Cut(rest, "/")
	switch {
	case uri && (scheme == "" || host == ""):
		d.refuse(&r.SAN, "is not a valid URI: for example, spiffe://prod/ns/*/sa/envoy")
	case uri && strings.Contains(scheme+host, "*"):
		d.refuse(&r.SAN, "has a * in its scheme or trust domain, which would accept the names of any authority: write "+
			"them out")
	case !uri && strings.Contains(r.SAN, "/"):
		d.refuse(&r.SAN, "is neither a DNS name nor a URI: for example, *.envoys.example.com or "+
			"spiffe://prod/ns/*/sa/envoy")
	case !uri && strings.Trim(r.SAN, "*.") == "":
		d.refuse(&r.SAN, "would accept every name: write at least the domain, such as *.envoys.example.com")
	case len(r.SAN) > longestSAN:
		d.refuse(&r.SAN, "has %d bytes: write at most %d", len(r.SAN), longestSAN)
	}
	for i := range r.Clusters {
		name := &r.Clusters[i]
		switch {
		case *name == "":
			d.fail(name, "is empty: write the name of a cluster, or * for all")
		case strings.Contains(*name, "/"):
			d.refuse(name, "has a slash in it: write the name of the cluster, which stands for its variants too")
		}
	}
}

// longestSAN is how long a SPIFFE ID can be, in bytes.
const longestSAN = 2048

// Closed reports whether callers need a token.
func (a *Admin) Closed() bool { return a.TokensFile != "" || a.Kubernetes }

// checkAdmin wants TLS and tokens where other machines can connect.
func (d *decoder) checkAdmin(a *Admin) {
	d.checkListen(&a.Listen)
	d.checkAllowedHosts(a)
	if a.AnonymousView && !a.Closed() {
		d.conflict(&a.AnonymousView, &a.TokensFile, "everyone may view already, because there are no tokens: add "+
			"tokens_file:, or remove this line")
	}
	if a.Insecure || Loopback(a.Listen) {
		return
	}
	switch {
	case a.TLS == nil && !a.Closed():
		d.fail(&a.Listen, "other machines can connect to %s: add tls: and tokens_file:, or write insecure: true to do "+
			"without", a.Listen)
	case a.TLS == nil:
		d.fail(&a.Listen, "other machines can connect to %s, and tokens would cross the network in plain text: add "+
			"tls:, or write insecure: true to do without", a.Listen)
	case !a.Closed():
		d.fail(&a.Listen, "other machines can connect to %s: add tokens_file: (on Kubernetes: kubernetes: true), or "+
			"write insecure: true to do without", a.Listen)
	}
}
