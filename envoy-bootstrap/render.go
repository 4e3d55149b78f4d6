package envoybootstrap

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"text/template"
	"time"
)

// xdsCluster is the name of the cluster that reaches Steelyard.
const xdsCluster = "steelyard_xds"

//go:embed bootstrap.tmpl
var templateText string

// Render returns a complete bootstrap for Envoy 1.40 as YAML with comments. The
// error names every option that is wrong and what would be right.
func Render(o Options) ([]byte, error) { return render("bootstrap", o) }

// RenderAttach returns what to add to an existing Envoy configuration so that Envoy
// follows Steelyard's weights and reports its requests, as YAML with comments. The
// lines for the router filter are a comment themselves, because only the reader knows
// the filter's place. It takes the same options; Listen, Admin,
// NodeID, Zone, IdleTimeout and AccessLog have no meaning there.
func RenderAttach(o Options) ([]byte, error) { return render("attach", o) }

func render(name string, o Options) ([]byte, error) {
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
	if _, err := t.Parse(templateText); err != nil {
		return nil, fmt.Errorf("reading the bootstrap template: %w", err)
	}
	var out bytes.Buffer
	if err := t.ExecuteTemplate(&out, name, view{o}); err != nil {
		return nil, fmt.Errorf("rendering the bootstrap: %w", err)
	}
	return bytes.TrimLeft(out.Bytes(), "\n"), nil
}

// A view is what the template sees: the options and the names that follow from
// them.
type view struct{ Options }

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
		return v.Cluster + "_failsafe"
	}
	return v.Cluster
}

// FallbackCluster is the cluster that balances without Steelyard.
func (v view) FallbackCluster() string { return v.Cluster + "_fallback" }

// Service is the EDS resource that carries the weights.
func (v view) Service() string {
	if v.Failsafe() {
		return failsafeService(v.Cluster)
	}
	return v.Cluster
}

// FallbackService is the EDS resource that carries the fallback's members.
func (v view) FallbackService() string { return fallbackService(v.Cluster) }

// XDSCluster is the cluster that reaches Steelyard.
func (v view) XDSCluster() string { return xdsCluster }

// LBPolicy is Envoy's name of the policy.
func (v view) LBPolicy() string { return strings.ToUpper(string(v.Policy)) }

// ActiveRequestBias is the exponent of the open requests under LEAST_REQUEST.
func (v view) ActiveRequestBias() float64 { return activeRequestBias }

// SANType is the kind of name that Steelyard's certificate is searched for.
func (v view) SANType() string {
	if isIP(v.TLS.ServerName) {
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

// comment makes every line of a rendered part a comment: what belongs into a
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
