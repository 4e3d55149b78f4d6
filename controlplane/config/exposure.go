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

// checkEnvoyGateway wants client certificates where other machines can connect.
func (d *decoder) checkEnvoyGateway(g *EnvoyGateway) {
	d.checkListen(&g.Listen)
	if g.Open() && !g.Insecure {
		d.fail(&g.Listen, "other machines can connect to %s: add tls: with client_ca_file:, or write insecure: true "+
			"to do without", g.Listen)
	}
	d.checkReachable(&g.ModuleXDS)
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
