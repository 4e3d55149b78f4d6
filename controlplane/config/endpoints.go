package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// host:port texts, the endpoints of a cluster, and how they are scraped.

func parsePort(text string) (int, bool) {
	port, err := strconv.ParseUint(text, 10, 16)
	return int(port), err == nil
}

// checkListen wants IP:port; an empty host means all interfaces.
func (d *decoder) checkListen(listen *string) {
	host, text, err := net.SplitHostPort(*listen)
	if err != nil {
		d.refuse(listen, "is not host:port: for example, 127.0.0.1:18000")
		return
	}
	if _, ok := parsePort(text); !ok {
		d.fail(listen, "%s is not a valid port: write 1 to 65535, or 0 for a free one", shown(text))
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" && host != "localhost" {
		d.fail(listen, "%s is a hostname: write an IP of this machine, 127.0.0.1 for local clients only or 0.0.0.0 "+
			"for all", shown(host))
	}
}

// checkSameListen complains of two listeners of one address.
func (d *decoder) checkSameListen(cfg *Config) {
	type listener struct {
		section string
		listen  *string
	}
	all := []listener{{"xds", &cfg.XDS.Listen}, {"admin", &cfg.Admin.Listen}}
	if cfg.EnvoyGateway != nil {
		all = append(all, listener{"envoy_gateway", &cfg.EnvoyGateway.Listen})
	}
	for i, second := range all {
		for _, first := range all[:i] {
			if samePort(*first.listen, *second.listen) {
				d.conflict(second.listen, first.listen, "%s, %s, takes the port that %s listens on, %s: give each its "+
					"own", second.section, d.value(second.listen), first.section, d.value(first.listen))
			}
		}
	}
}

// samePort reports whether two listeners cannot both have what they want.
func samePort(a, b string) bool {
	host1, port1, err1 := net.SplitHostPort(a)
	host2, port2, err2 := net.SplitHostPort(b)
	return err1 == nil && err2 == nil && port1 == port2 && port1 != "0" &&
		(host1 == host2 || everyInterface(host1) || everyInterface(host2))
}

func everyInterface(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// checkHostPort wants host:port of a server to connect to.
func (d *decoder) checkHostPort(address *string) {
	text := *address
	if _, rest, ok := strings.Cut(text, "://"); ok {
		d.fail(address, "%s is a URL: write %s; TLS is tls:, the user username:, the password password_file:",
			shown(text), withPort(rest, "6379"))
		return
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		d.fail(address, "%s is not host:port: for example, %s", shown(text), withPort(text, "6379"))
		return
	}
	if number, ok := parsePort(port); !ok || number == 0 {
		d.fail(address, "%s is not a valid port: write 1 to 65535", shown(port))
	}
	if _, err := netip.ParseAddr(host); err != nil && !hostname.MatchString(host) {
		d.fail(address, "%s is not a valid host: write its name or IP", shown(host))
	}
}

// checkAllowedHosts wants names, without what else a URL has.
func (d *decoder) checkAllowedHosts(a *Admin) {
	lines := map[string]int{}
	for i := range a.AllowedHosts {
		host := &a.AllowedHosts[i]
		name := strings.TrimPrefix(*host, "*.")
		_, err := netip.ParseAddr(name)
		switch _, rest, url := strings.Cut(*host, "://"); {
		case url:
			d.refuse(host, "is a URL: write the host name in it, such as %s", shown(hostOf(rest)))
		case strings.Contains(name, "*"):
			d.fail(host, "%s: a * stands for all names below one: for example, *.example.com", shown(*host))
		case err == nil:
			d.refuse(host, "is an IP address, under which it is always asked: remove it")
		case hostOf(name) != name:
			d.refuse(host, "has a port or a path: write only the host name, %s", shown(hostOf(name)))
		case !hostname.MatchString(name) || len(name) > longestHostname:
			d.refuse(host, "is not a valid host name: for example, steelyard.example.com")
		}
		d.checkTwice(host, *host, lines, "name")
	}
}

// hostOf is the part before a port or a path.
func hostOf(text string) string {
	if i := strings.IndexAny(text, ":/"); i >= 0 {
		return text[:i]
	}
	return text
}

// hostname allows "_" because SRV names and Kubernetes headless names have it.
var hostname = regexp.MustCompile(`^` + hostLabel + `(\.` + hostLabel + `)*\.?$`)

const hostLabel = `[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?`

const longestHostname = 253 // RFC 1035, as text

// withPort is an example made of what the user wrote.
func withPort(text, port string) string {
	text = text[strings.LastIndex(text, "@")+1:]
	text, _, _ = strings.Cut(text, "/")
	if problem := withoutBrackets(text); problem != "" {
		return problem
	}
	if ip, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return net.JoinHostPort(ip.String(), port)
	}
	host, given, err := net.SplitHostPort(text)
	switch {
	case err == nil && hostname.MatchString(host):
		return net.JoinHostPort(host, given)
	case hostname.MatchString(text):
		return net.JoinHostPort(text, port)
	}
	return "127.0.0.1:" + port
}

func (d *decoder) checkEndpoints(c *Cluster) {
	e := &c.Endpoints
	if d.written(&c.Endpoints) {
		d.checkOneSource(e)
	}
	lines := map[string]int{}
	for i := range e.Static {
		s := &e.Static[i]
		d.checkAddress(&s.Address)
		d.checkTwice(&s.Address, s.Address, lines, "address")
		d.checkMetricsPath(&s.MetricsPath)
	}
	if e.DNS != nil {
		d.checkDNS(e.DNS)
	}
	if k := e.Kubernetes; k != nil {
		d.checkService(e, k)
	}
	if p := e.InferencePool; p != nil {
		d.checkObjectName(&p.Name)
		d.checkNamespace(&p.Namespace)
	}
}

// checkService wants either a name or a selector. Package daemon checks the selector's syntax, which is client-go's.
func (d *decoder) checkService(e *Endpoints, k *KubernetesService) {
	d.checkNamespace(&k.Namespace)
	d.checkObjectName(&k.Service)
	switch {
	case k.Service == "" && k.Selector == "" && !d.written(&k.Service) && !d.written(&k.Selector):
		d.fail(&e.Kubernetes, "there is no Service: write service: with its name, or selector: with its labels")
	case k.Service != "" && k.Selector != "":
		d.conflict(&k.Selector, &k.Service, "there are service and selector: keep one of them, or make a cluster of "+
			"each")
	}
}

// namespaceName and objectName are what Kubernetes allows (RFC 1123, label and subdomain).
var (
	namespaceName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	objectName    = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
)

func (d *decoder) checkNamespace(namespace *string) {
	if *namespace != "" && !namespaceName.MatchString(*namespace) {
		d.refuse(namespace, "is not a valid namespace: write its name, in lower-case letters, digits and -")
	}
}

func (d *decoder) checkObjectName(name *string) {
	switch {
	case *name == "" || objectName.MatchString(*name):
	case strings.Contains(*name, "/"):
		d.refuse(name, "has a / in it: write the name only, and the namespace as namespace:")
	default:
		d.refuse(name, "is not a valid name of a Kubernetes object: write it in lower-case letters, digits, - and .")
	}
}

func (d *decoder) checkOneSource(e *Endpoints) {
	var found, all []string
	for _, source := range fieldsOf(reflect.ValueOf(e).Elem()) {
		all = append(all, source.key+":")
		if d.written(source.value.Addr().Interface()) {
			found = append(found, source.key)
		}
	}
	last := len(all) - 1
	switch {
	case len(found) == 0:
		d.fail(e, "there is no source of endpoints: write one of %s or %s", strings.Join(all[:last], ", "), all[last])
	case len(found) > 1:
		d.fail(e, "there are %s: keep one of them, or make a cluster of each", strings.Join(found, " and "))
	}
}

// checkAddress wants IP:port and writes it in the one canonical form, in which
// the other sources of endpoints and the members of in-flight sets are compared.
func (d *decoder) checkAddress(address *string) {
	ap, err := netip.ParseAddrPort(*address)
	if err != nil {
		d.fail(address, "%s", addressProblem(*address))
		return
	}
	ip := ap.Addr().Unmap()
	switch {
	case ap.Port() == 0:
		d.refuse(address, "has port 0: write the serving port, 1 to 65535")
	case ip.IsUnspecified() || ip.IsMulticast():
		d.refuse(address, "is not the address of one server: write its IP")
	case ip.Zone() != "":
		d.refuse(address, "has an IPv6 zone, which Envoy does not take: write an address without %%%s", ip.Zone())
	}
	*address = netip.AddrPortFrom(ip, ap.Port()).String()
}

// withoutBrackets is the message for an IPv6 address and a port that may have been meant by text; else empty. A last
// group of one to three digits belongs to the address: hosts are often numbered so.
func withoutBrackets(text string) string {
	at := max(0, strings.LastIndexByte(text, ':'))
	ip, err := netip.ParseAddr(text[:at])
	if err != nil || !ip.Is6() {
		return ""
	}
	number, ok := parsePort(text[at+1:])
	meant := quotedIPv6(netip.AddrPortFrom(ip, uint16(number)).String())
	switch whole, err := netip.ParseAddr(text); {
	case !ok || number == 0 || err == nil && number < 1000:
		return ""
	case err != nil:
		return fmt.Sprintf("%s is an IPv6 address without brackets: write %s", shown(text), meant)
	default:
		return fmt.Sprintf("%s ends in a port or has none: write %s, or %s with the serving port", shown(text), meant,
			quotedIPv6(net.JoinHostPort(whole.String(), "8000")))
	}
}

func addressProblem(text string) string {
	if _, rest, ok := strings.Cut(text, "://"); ok {
		bare := withPort(rest, "8000")
		if _, err := netip.ParseAddrPort(bare); err != nil {
			return addressProblem(bare)
		}
		return fmt.Sprintf("%s is a URL: write %s", shown(text), quotedIPv6(bare))
	}
	if bare := strings.TrimSpace(text); bare != text {
		return fmt.Sprintf("%s has white space around it: write %s", shown(text), shown(bare))
	}
	if problem := withoutBrackets(text); problem != "" {
		return problem
	}
	if ip, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return fmt.Sprintf("%s has no port: write %s with the serving port", shown(text),
			quotedIPv6(net.JoinHostPort(ip.String(), "8000")))
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, "8000"
	}
	number, portOK := parsePort(port)
	_, ipErr := netip.ParseAddr(host)
	switch {
	case host == "localhost" && portOK:
		return fmt.Sprintf("%s is a hostname, and static endpoints are IPs: write %s", shown(host),
			net.JoinHostPort("127.0.0.1", port))
	case ipErr == nil && (!portOK || number == 0):
		return fmt.Sprintf("%s has no port that exists: write 1 to 65535 after the colon", shown(text))
	case dotted.MatchString(host):
		return fmt.Sprintf("%s is not a valid IP: its four numbers must be 0 to 255, without leading zeros",
			shown(host))
	case hostname.MatchString(host) && portOK:
		return fmt.Sprintf("%s is a hostname, and static endpoints are IPs: write endpoints: {dns: {name: %s, port: "+
			"%d}} instead of static:", shown(host), host, number)
	}
	return fmt.Sprintf("%s is not IP:port: for example, 10.0.0.1:8000", shown(text))
}

// dotted is what looks like an IPv4 address, or an attempt at one.
var dotted = regexp.MustCompile(`^[0-9]+(\.[0-9]+)*$`)

// quotedIPv6 puts quotes around what YAML takes for a list.
func quotedIPv6(address string) string {
	if strings.HasPrefix(address, "[") {
		return strconv.Quote(address)
	}
	return address
}

func (d *decoder) checkDNS(dns *DNS) {
	if name := dns.Name; name != "" && (!hostname.MatchString(name) || len(name) > longestHostname) {
		d.fail(&dns.Name, "%s is not a valid DNS name: write only the name, such as llama.models.svc.cluster.local; "+
			"the port is port:", shown(name))
	} else if _, err := netip.ParseAddr(name); err == nil {
		d.fail(&dns.Name, "%s is an IP: write endpoints: {static: [{address: %s}]}", shown(name),
			withPort(name, strconv.Itoa(cmp.Or(dns.Port, 8000))))
	}
	switch {
	case dns.Type == DNSTypeSRV && dns.Port != 0:
		d.conflict(&dns.Port, &dns.Type, "%d is not used: SRV records carry their port; remove this line", dns.Port)
	case dns.Type != DNSTypeSRV && dns.Port == 0:
		d.conflict(&dns.Port, &dns.Type, "%s records carry no port: write the serving port, 1 to 65535, as port:",
			dns.Type)
	}
}

func (d *decoder) checkScrape(c *Cluster) {
	s := &c.Scrape
	d.checkTimeout(&s.Timeout, &s.Interval)
	d.checkMetricsPath(&s.Path)
	if s.TLS != nil {
		d.checkPair(&s.TLS.CertFile, &s.TLS.KeyFile)
		if s.Scheme != "https" {
			d.conflict(&s.TLS, &s.Scheme, "the scheme is %s: write scheme: https, or remove this section",
				d.value(&s.Scheme))
		}
	}
	if !s.Disabled && s.Interval > c.Weighting.Hold {
		d.conflict(&s.Interval, &c.Weighting.Hold, "scrape.interval, %s, is above weighting.hold, %s, so reports "+
			"would be stale between two scrapes: write an interval of at most %s, or a longer hold",
			d.value(&s.Interval), d.value(&c.Weighting.Hold), DurationText(c.Weighting.Hold))
	}
}

// checkMetricsPath wants a path as in a request.
func (d *decoder) checkMetricsPath(path *string) {
	switch u, err := url.ParseRequestURI(*path); {
	case *path == "":
	case strings.Contains(*path, "://"):
		d.refuse(path, "is a URL: write only the path, such as /metrics; the port is port:")
	case !strings.HasPrefix(*path, "/"):
		d.refuse(path, "does not start with /: write /%s", shown(*path))
	case err != nil || strings.ContainsAny(*path, " #") || u.Host != "":
		d.refuse(path, "is not a valid path of a URL: for example, /metrics, with special characters escaped")
	}
}
