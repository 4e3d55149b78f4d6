package envoybootstrap

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
)

// EnvoyVersion is the version of Envoy that the bootstraps are for, and tested with.
const EnvoyVersion = "1.40"

// xdsCluster is the name of the cluster that reaches Steelyard.
const xdsCluster = "steelyard_xds"

// pickerCluster is the name of the cluster that reaches the picker.
const pickerCluster = "steelyard_picker"

//go:embed bootstrap.tmpl
var templateText string

//go:embed istio.tmpl
var istioText string

// Render returns a complete bootstrap for Envoy 1.40 as YAML with comments. The
// error names every option that is wrong and what would be right.
func Render(o Options) ([]byte, error) {
	if len(o.Further) > 0 {
		return nil, errors.New("cluster: a bootstrap has one: want one cluster, or what to attach to an Envoy")
	}
	if o.Shadow {
		return nil, errors.Join(o.withDefaults().checkShadow(), errors.New("shadow: it is for requests of clusters "+
			"that an Envoy already has: want what to attach to it"))
	}
	return render("bootstrap", o)
}

// RenderAttach returns what to add to an existing Envoy configuration so that Envoy
// follows Steelyard's weights and reports its requests, as YAML with comments. The
// lines for the router filter are a comment themselves, because only the reader knows
// the filter's place. It takes the same options; Listen, Admin,
// NodeID, Zone, IdleTimeout and AccessLog have no meaning there. FormCDS has two YAML documents: the bootstrap's part,
// and the clusters.
func RenderAttach(o Options) ([]byte, error) { return render("attach", o) }

// Parts are what an Envoy of another control plane needs, each YAML with comments.
type Parts struct {
	Bootstrap []byte // a mapping to merge into its bootstrap: the connection to Steelyard, load reports, the runtime
	Clusters  []byte // a list: those of Options.Cluster
	Router    []byte // a mapping to merge into the configuration of the router filter: the upstream log
	Route     []byte // a mapping to merge into the action of a route to Parts.Target: its timeout and retries
	Target    string // the cluster that routes name

	// With a picker or the module:
	Filters []byte // a list of one HTTP filter, which a route switches on: it names the endpoint of each request
	Manager []byte // a mapping to merge into the connection manager that has the filter
	Picked  string // the cluster for requests with PickedHeader, in ModeFailsafe
}

// RenderParts returns the parts for one cluster.
func RenderParts(o Options) (p Parts, err error) {
	v := view{Options: o.withDefaults(), Several: true}
	p.Target = v.Target()
	all := map[string]*[]byte{"addition": &p.Bootstrap, "clusters": &p.Clusters, "upstream log": &p.Router,
		"patience": &p.Route}
	if v.Picks() {
		p.Picked = v.PickedCluster()
		all["picker filter"], all["early"] = &p.Filters, &p.Manager
	}
	for name, part := range all {
		if *part, err = renderView(name, o, v); err != nil {
			return Parts{}, err
		}
	}
	return p, nil
}

// RenderSecrets returns the files for Options.SecretsDir, by name: each names the files of a certificate or of
// authorities, and the folder that Envoy watches for their replacement.
func RenderSecrets(o Options) (map[string][]byte, error) {
	out := make(map[string][]byte)
	for _, s := range (view{Options: o.withDefaults()}).secrets() {
		text, err := renderView("secret", o, s)
		if err != nil {
			return nil, err
		}
		out[s.File] = text
	}
	return out, nil
}

func render(name string, o Options) ([]byte, error) {
	return renderView(name, o, view{Options: o.withDefaults()})
}

// renderView renders a part of the template with data, if the options are valid.
func renderView(name string, o Options, data any) ([]byte, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	t := template.New("").Option("missingkey=error")
	t.Funcs(template.FuncMap{
		"quote": quote, "host": host, "port": port, "isIP": isIP, "duration": duration, "indent": indent,
		"comment": comment,
		"include": func(name string, data any) (string, error) {
			var b bytes.Buffer
			err := t.ExecuteTemplate(&b, name, data)
			return strings.Trim(b.String(), "\n"), err
		},
	})
	for _, text := range []string{templateText, istioText} {
		if _, err := t.Parse(text); err != nil {
			return nil, fmt.Errorf("reading the bootstrap template: %w", err)
		}
	}
	var out bytes.Buffer
	if err := t.ExecuteTemplate(&out, name, data); err != nil {
		return nil, fmt.Errorf("rendering the bootstrap: %w", err)
	}
	return bytes.TrimLeft(out.Bytes(), "\n"), nil
}

// A view is what the template sees: the options and the names that follow from
// them.
type view struct {
	Options
	Several bool // the cluster is one of several
}

// Failsafe reports whether there is a fallback to go to.
func (v view) Failsafe() bool { return v.Mode == ModeFailsafe }

// UpstreamLog reports whether Envoy logs the start and end of every request to Steelyard.
func (v view) UpstreamLog() bool { return !v.NoUpstreamLog }

// LoadReports reports whether Envoy reports the requests in progress at intervals.
func (v view) LoadReports() bool { return !v.NoLoadReports }

// Runtime reports whether Steelyard may switch the log while Envoy runs.
func (v view) Runtime() bool { return !v.NoRuntime }

// Target is the cluster that routes name.
func (v view) Target() string {
	if v.Failsafe() {
		return cmp.Or(v.InPlaceOf, v.Cluster+"_failsafe")
	}
	return v.Cluster
}

// FallbackCluster is the cluster that balances without Steelyard.
func (v view) FallbackCluster() string { return v.Cluster + "_fallback" }

// ReadyBy is the cluster that has endpoints while requests can be sent somewhere, with weights or without.
func (v view) ReadyBy() string {
	if v.Failsafe() {
		return v.FallbackCluster()
	}
	return v.Cluster
}

// KnownCluster is the last resort of an Envoy that has not heard of Steelyard.
func (v view) KnownCluster() string { return v.Cluster + "_known" }

// Service is the EDS resource that carries the weights.
func (v view) Service() string {
	if v.Failsafe() {
		return failsafeService(v.Cluster)
	}
	return v.Cluster
}

// FallbackService is the EDS resource that carries the fallback's members.
func (v view) FallbackService() string { return fallbackService(v.Cluster) }

// MembersService is the EDS resource that carries the members for a policy that hashes.
func (v view) MembersService() string { return v.Cluster + "/members" }

// Each returns a view for each cluster.
func (v view) Each() []view {
	v.Several = len(v.Further) > 0
	all := []view{v}
	for _, name := range v.Further {
		next := v
		next.Cluster, next.Further = name, nil
		all = append(all, next)
	}
	return all
}

// Targets are the clusters that routes name, for a comment, and PickedTargets those for requests that a picker named an
// endpoint for.
func (v view) Targets() string       { return v.either(view.Target) }
func (v view) PickedTargets() string { return v.either(view.PickedCluster) }

func (v view) either(of func(view) string) string {
	var names []string
	for _, one := range v.Each() {
		name, _ := quote(of(one)) // a string can be encoded
		names = append(names, name)
	}
	return strings.Join(names, " or ")
}

// ADS and CDS report how the Envoy gets assignments and clusters.
func (v view) ADS() bool { return v.Form == FormADS }
func (v view) CDS() bool { return v.Form == FormCDS }

// A tlsView is what the template sees of TLS to a server.
type tlsView struct {
	TLS
	HTTP2                    bool
	Certificate, Authorities secret
	Watched                  bool // by secrets
}

// A secret is a file that names others. Certificate or CA is set.
type secret struct {
	Name, File, Path  string
	CertFile, KeyFile string
	CAFile            string
}

// PathDir is the folder of the file itself.
func (s secret) PathDir() string { return path.Dir(s.Path) }

// Dir is the folder that Envoy watches.
func (s secret) Dir() string { return path.Dir(cmp.Or(s.CertFile, s.CAFile)) }

func (v view) tlsOf(name string, t TLS) tlsView {
	file := func(what string) secret {
		f := strings.ReplaceAll(name, "_", "-") + "-" + what + ".yaml"
		return secret{Name: name + "_" + what, File: f, Path: path.Join(v.SecretsDir, f)}
	}
	out := tlsView{TLS: t, Certificate: file("certificate"), Authorities: file("authorities"),
		Watched: v.SecretsDir != ""}
	out.Certificate.CertFile, out.Certificate.KeyFile = t.CertFile, t.KeyFile
	out.Authorities.CAFile = t.CAFile
	return out
}

// XDSTLS and ModelsTLS are TLS to Steelyard and to the model servers.
func (v view) XDSTLS() tlsView {
	t := v.tlsOf("steelyard", v.TLS)
	t.HTTP2 = true
	return t
}
func (v view) ModelsTLS() tlsView { return v.tlsOf("models", v.ModelTLS) }

// secrets are the files of SecretsDir.
func (v view) secrets() []secret {
	var out []secret
	for _, t := range []tlsView{v.XDSTLS(), v.ModelsTLS()} {
		if t.CAFile != "" {
			out = append(out, t.Authorities)
		}
		if t.CertFile != "" {
			out = append(out, t.Certificate)
		}
	}
	return out
}

// XDSCluster is the cluster that reaches Steelyard.
func (v view) XDSCluster() string { return xdsCluster }

// A modelRoute sends the requests that match to a cluster.
type modelRoute struct {
	view
	Match, To string
	HashBy    string // the header by which the cluster chooses; empty: it has another policy
}

// PickedHeader is what the picker adds to a request that it named an endpoint for.
const PickedHeader = "x-gateway-destination-endpoint"

// PickedHeader returns the header that a picker sets.
func (v view) PickedHeader() string { return PickedHeader }

// Routes are those to the model servers, the first that matches applies.
func (v view) Routes() []modelRoute {
	all := []modelRoute{{view: v, Match: "{prefix: /}", To: v.Target()}}
	with := func(header string) string {
		return "{prefix: /, headers: [{name: " + header + ", present_match: true}]}"
	}
	switch {
	case v.Picks() && v.Failsafe():
		return slices.Insert(all, 0, modelRoute{view: v, Match: with(PickedHeader), To: v.PickedCluster()})
	case v.Affinity != "":
		return slices.Insert(all, 0, modelRoute{view: v, Match: with(v.Affinity), To: v.AffinityCluster(),
			HashBy: v.Affinity})
	}
	return all
}

// ItsRoutes names the routes of the listener whose router filter reports.
func (v view) ItsRoutes() string {
	if v.Shadow {
		return "routes to model servers"
	}
	return "these routes"
}

// ShadowCluster is the cluster by which an Envoy subscribes without following.
func (v view) ShadowCluster() string { return v.Cluster + "_shadow" }

// AffinityCluster is the cluster for requests that name their conversation.
func (v view) AffinityCluster() string { return v.Cluster + "_affinity" }

// HashBalanceFactor is how much of the mean of its requests an endpoint may have for a conversation to stay there, in
// per cent.
func (v view) HashBalanceFactor() int { return hashBalanceFactor }

// PickedCluster is the cluster for requests that the picker named an endpoint for.
func (v view) PickedCluster() string {
	if v.Failsafe() {
		return v.Cluster + "_picked"
	}
	return v.Cluster
}

// Picks reports whether an endpoint is named for each request, by a picker or by the module.
func (v view) Picks() bool { return v.Picker != "" || v.Module }

// FilterName is the name, in YAML, of the filter that names endpoints. One of several is switched on by the routes of
// its cluster.
func (v view) FilterName() (string, error) {
	switch {
	case v.Several:
		return quote("steelyard." + v.Cluster)
	case v.Module:
		return "envoy.filters.http.dynamic_modules", nil
	}
	return "envoy.filters.http.ext_proc", nil
}

// SwitchedOn is what a route has to switch the filter of its cluster on, as YAML. An empty config keeps the filter's.
func (v view) SwitchedOn() (string, error) {
	name, err := v.FilterName()
	return "{" + name + ": {\"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig, config: {}}}", err
}

// ModuleConfig is the configuration of the module's filter, JSON.
func (v view) ModuleConfig() (string, error) {
	prefixBytes := 0
	if v.Prefix {
		prefixBytes = modulePrefixBytes
	}
	serverName := v.TLS.ServerName
	if host, _, err := net.SplitHostPort(v.XDS); err == nil && host == serverName {
		serverName = "" // the module's own default, which a module of 0.1.0 has as well
	}
	text, err := json.Marshal(struct {
		Steelyard   string `json:"steelyard"`
		Cluster     string `json:"cluster"`
		Name        string `json:"name"`
		CAFile      string `json:"ca_file,omitempty"`
		CertFile    string `json:"cert_file,omitempty"`
		KeyFile     string `json:"key_file,omitempty"`
		ServerName  string `json:"server_name,omitempty"`
		PrefixBytes int    `json:"prefix_bytes,omitempty"`
	}{v.XDS, v.Cluster, v.NodeID, v.TLS.CAFile, v.TLS.CertFile, v.TLS.KeyFile, serverName, prefixBytes})
	return string(text), err
}

// PickerCluster is the cluster that reaches the picker.
func (v view) PickerCluster() string { return pickerCluster }

// LBPolicy is Envoy's name of the policy.
func (v view) LBPolicy() string { return strings.ToUpper(string(v.Policy)) }

// ActiveRequestBias is the exponent of the open requests under LEAST_REQUEST.
func (v view) ActiveRequestBias() float64 { return activeRequestBias }

// SANType is the kind of name that the server's certificate is searched for.
func (t tlsView) SANType() string {
	if isIP(t.ServerName) {
		return "IP_ADDRESS"
	}
	return "DNS"
}

func failsafeService(cluster string) string { return cluster + "/failsafe" }
func fallbackService(cluster string) string { return cluster + "/fallback" }

// quote writes a string so that YAML reads exactly it: JSON's strings are YAML's.
func quote(s string) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(s)
	return strings.TrimSpace(b.String()), err
}

func host(addr string) (string, error) {
	h, _, err := net.SplitHostPort(addr)
	return h, err
}

func port(addr string) (uint64, error) {
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(p, 10, 16)
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// duration writes a duration as protobuf's JSON does: decimal seconds.
func duration(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}

// indent moves every line of a rendered part to the right.
func indent(spaces int, text string) string {
	return prefixed(strings.Repeat(" ", spaces), text)
}

// comment makes every line of a rendered part a comment: what belongs in a
// place that only the reader knows.
func comment(spaces int, text string) string {
	return prefixed("#"+strings.Repeat(" ", spaces), text)
}

func prefixed(prefix, text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if l != "" {
			lines[i] = prefix + l
		}
	}
	return strings.Join(lines, "\n")
}
