package envoybootstrap

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Mode is what an Envoy does beyond following the weights. The two exclude each
// other: an aggregate cluster does not enforce drop_overloads.
type Mode string

// The modes.
const (
	// ModeFailsafe has Envoy balance on its own when the weights get too old.
	ModeFailsafe Mode = "failsafe"
	// ModeShedding has Envoy refuse the share of requests that Steelyard sets
	// while the whole pool is saturated. Without Steelyard the last weights stay.
	ModeShedding Mode = "shedding"
)

// Policy is Envoy's load balancing policy under the weights.
type Policy string

// The policies.
const (
	PolicyLeastRequest Policy = "least_request" // lowers a weight by the requests that this Envoy has open there
	PolicyRoundRobin   Policy = "round_robin"   // follows the weights exactly
)

// activeRequestBias is the exponent with which open requests lower a weight under
// PolicyLeastRequest. In simulation 2 was never worse than ROUND_ROBIN with fresh
// weights, and with late ones never worse than Envoy's least request without any: at
// a service of 50 ms and scrapes every second, the p99 of the wait is 9.9 mean
// services by least request only, 13.7 by weights over ROUND_ROBIN, 11.1 over a
// bias of 1, Envoy's default, and 9.5 over 2.
const activeRequestBias = 2

// hashBalanceFactor bounds the requests of an endpoint under Options.Affinity, in per cent of the mean. The less, the
// more conversations leave their endpoint; at 150 a hot one takes half more than its part.
const hashBalanceFactor = 150

// modulePrefixBytes is how much of a body the module reads with Options.Prefix: a quarter of Envoy's buffer.
const modulePrefixBytes = 256 << 10

// The defaults of Options.
const (
	DefaultListen      = "127.0.0.1:10000"
	DefaultAdmin       = "127.0.0.1:9901"
	DefaultIdleTimeout = 10 * time.Minute
)

// Options are the choices that a bootstrap is rendered from. Addresses are
// host:port; IPv6 hosts stand in brackets. The zero value of every field but
// Cluster and XDS means its default.
type Options struct {
	Cluster string // name of the cluster in Steelyard's config; required
	// Further are more such clusters, of RenderAttach only.
	Further []string
	Form    Form   // of RenderAttach: FormStatic when empty
	XDS     string // Steelyard's xDS listener, with an IP or a host name; required
	Mode    Mode   // ModeFailsafe when empty

	Listen string // where clients connect; DefaultListen when empty. Port 0 lets the kernel choose
	Admin  string // Envoy's admin listener; DefaultAdmin when empty. Port 0 lets the kernel choose

	// NodeID is the name under which Steelyard shows this Envoy. When empty it
	// is the cluster's name with "-envoy", for a file that many Envoys share:
	// each is then started with --service-node, which wins over the file.
	NodeID string
	Zone   string // the Envoy's own zone, sent to Steelyard; none when empty

	Policy Policy // PolicyLeastRequest when empty

	// Fallback are endpoints that ModeFailsafe uses when the weights are stale,
	// as host:port; a host name stands for all its addresses. When empty the
	// fallback's members come from Steelyard too, and the last ones stay: an
	// Envoy that starts while Steelyard is down then has none.
	Fallback []string

	// Known are members of ModeFailsafe's last resort, as IP:port, or as NAME:port for all of them: those that were
	// known when the clusters were made. An Envoy that has not heard of Steelyard since its start uses them. None when
	// empty.
	Known []string

	// InPlaceOf is the name of a cluster of another control plane that ModeFailsafe takes the place of: the one that
	// routes name already. When empty, they name CLUSTER_failsafe.
	InPlaceOf string

	// IdleTimeout is how long a request may go without a byte in either
	// direction before it is reset; DefaultIdleTimeout when 0. It has to outlast
	// the longest wait in a model server's queue.
	IdleTimeout time.Duration

	TLS      TLS // of the connection to Steelyard; plain text when zero
	ModelTLS TLS // of the connections to the model servers; plain text when zero
	// MeshSNI has Envoy speak the mutual TLS of Istio's mesh to the model servers, with this server name. When empty,
	// it speaks plain text, or as ModelTLS says. MeshIdentity is a regular expression of the servers' SPIFFE IDs.
	MeshSNI, MeshIdentity string
	// SecretsDir is the folder, on Envoy's machine, of the files that RenderSecrets returns. Envoy then reads
	// certificates, keys and authorities again when they change. When empty it reads them at its start only.
	SecretsDir string

	// Picker is the `steelyard picker` that names the endpoint of each request, with an IP or a host name; none when
	// empty. It is to be near: on Envoy's machine, or in its pod.
	Picker string
	// Prefix has the endpoint chosen by the body: before the request goes on, the module reads its first part, or the
	// picker is sent it, up to Envoy's buffer (1 MiB).
	Prefix bool
	// Module names the endpoint of each request inside Envoy, by the shared library of envoy-module.
	Module bool

	// Affinity is a header that names the conversation of a request: requests with one value go to the same endpoint,
	// while that has no more than its part of this Envoy's requests. None when empty.
	Affinity string

	// Ready is the path at which the listener answers 200 while the cluster has healthy endpoints, else 503; none when
	// empty. It is not for RenderAttach.
	Ready string

	// Shadow, of RenderAttach only, has an Envoy report the requests that it sends through clusters of its own. No
	// request goes by the weights, and none are sent to it.
	Shadow bool

	AccessLog bool // one line per request on standard output

	// Envoy's reports of its requests, which can be switched off one by one. Without any,
	// Steelyard computes the weights only from the model servers' metrics.
	// LogOwn has Envoy log only requests of routes to Steelyard's clusters; in ModeFailsafe only.
	LogOwn        bool
	NoUpstreamLog bool // no entry for each request that begins or ends at an endpoint
	NoLoadReports bool // no reports, at intervals, of the requests in progress at each endpoint
	NoRuntime     bool // no runtime layer of Steelyard's: the log then stays on and immediate, whatever it costs
}

// A Form is how an Envoy gets the clusters that RenderAttach returns.
type Form string

// The forms.
const (
	FormStatic Form = "static" // in its bootstrap; assignments come by a stream for each name
	FormCDS    Form = "cds"    // from a CDS file or server; assignments come by a stream for each name
	FormADS    Form = "ads"    // in its bootstrap; all assignments come by one stream
)

// TLS has the certificates of Envoy's connections to a server. Envoy reads the files, on its machine.
type TLS struct {
	CAFile   string // verifies the server; required for TLS
	CertFile string // shown to the server; only with KeyFile
	KeyFile  string // of CertFile
	// ServerName is expected in the server's certificate. When empty it is the host of XDS, or, for model servers, any
	// name: they are known by IP addresses, and the authority vouches for them.
	ServerName string
}

// withDefaults fills in what was left empty.
func (o Options) withDefaults() Options {
	o.Mode = cmp.Or(o.Mode, ModeFailsafe)
	o.Form = cmp.Or(o.Form, FormStatic)
	o.Listen = cmp.Or(o.Listen, DefaultListen)
	o.Admin = cmp.Or(o.Admin, DefaultAdmin)
	o.NodeID = cmp.Or(o.NodeID, o.Cluster+"-envoy")
	o.Policy = cmp.Or(o.Policy, PolicyLeastRequest)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, DefaultIdleTimeout)
	if host, _, err := net.SplitHostPort(o.XDS); err == nil && o.TLS != (TLS{}) {
		o.TLS.ServerName = cmp.Or(o.TLS.ServerName, host)
	}
	return o
}

// validate reports everything that is wrong, each with what to write instead.
// It is for options with their defaults.
func (o Options) validate() error {
	return errors.Join(
		checkCluster(o.Cluster),
		CheckAddress("xds", o.XDS, "127.0.0.1:18000"),
		oneOf("mode", o.Mode, ModeFailsafe, ModeShedding),
		oneOf("lb-policy", o.Policy, PolicyLeastRequest, PolicyRoundRobin),
		checkListener("listen", o.Listen, DefaultListen),
		checkListener("admin", o.Admin, DefaultAdmin),
		o.checkDistinct(),
		checkText("node id", o.NodeID),
		checkText("zone", o.Zone),
		o.checkFallback(),
		o.checkKnown(),
		o.checkPicker(),
		o.checkAffinity(),
		o.checkIdleTimeout(),
		o.checkReady(),
		o.checkFurther(),
		oneOf("form", o.Form, FormStatic, FormCDS, FormADS),
		o.TLS.validate("tls"),
		o.ModelTLS.validate("model tls"),
		o.checkSecretsDir(),
		o.checkShadow(),
	)
}

func (o Options) checkReady() error {
	if o.Ready != "" && !strings.HasPrefix(o.Ready, "/") {
		return fmt.Errorf("ready %q: want a path, such as /ready", o.Ready)
	}
	return checkText("ready", o.Ready)
}

func checkCluster(name string) error {
	switch {
	case name == "":
		return errors.New("cluster: no name given: want the name of a cluster in Steelyard's config")
	case strings.Contains(name, "/"):
		return fmt.Errorf("cluster %q: a slash is not allowed: it sets the variants of a cluster apart, such as %q",
			name, fallbackService("llama"))
	case name == pickerCluster:
		return fmt.Errorf("cluster %q: this is the name of the connection to the picker: want another name", name)
	case name == xdsCluster:
		return fmt.Errorf("cluster %q: this is the name of the connection to Steelyard: want another name", name)
	}
	return checkText("cluster", name)
}

// checkText refuses what a name must not contain.
func checkText(what, s string) error {
	for _, r := range s {
		if !unicode.IsPrint(r) || unicode.IsSpace(r) || r == unicode.ReplacementChar {
			return fmt.Errorf("%s %q: want printable characters without spaces", what, s)
		}
	}
	return nil
}

// CheckAddress wants a host, IP or name, and a port that can be connected to.
func CheckAddress(what, addr, example string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || checkText(what, host) != nil {
		return fmt.Errorf("%s %q: want HOST:PORT, such as %s or [::1]:18000", what, addr, example)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%s %q: want a port from 1 to 65535, such as %s", what, addr, example)
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		return fmt.Errorf("%s %q: one can listen there, and not connect to it: want the address at which it is "+
			"reached, such as %s", what, addr, example)
	}
	return nil
}

// checkListener wants an IP and a port. Envoy resolves no names to listen on.
func checkListener(what, addr, example string) error {
	if _, err := netip.ParseAddrPort(addr); err != nil {
		return fmt.Errorf("%s %q: want IP:PORT, such as %s", what, addr, example)
	}
	return nil
}

func (o Options) checkDistinct() error {
	a, errA := netip.ParseAddrPort(o.Listen)
	b, errB := netip.ParseAddrPort(o.Admin)
	if errA == nil && errB == nil && a == b && a.Port() != 0 {
		return fmt.Errorf("listen and admin are both %s: want two ports", o.Listen)
	}
	return nil
}

func (o Options) checkFallback() error {
	if len(o.Fallback) > 0 && o.Mode == ModeShedding {
		return errors.New("fallback: mode shedding has none, because an aggregate cluster does not enforce " +
			"drop_overloads: want mode failsafe, or no fallback")
	}
	var errs []error
	for _, addr := range o.Fallback {
		errs = append(errs, CheckAddress("fallback", addr, "llama.svc:8000"))
	}
	return errors.Join(errs...)
}

func (o Options) checkKnown() error {
	var errs []error
	for _, addr := range o.Known {
		errs = append(errs, CheckAddress("known", addr, "10.0.0.1:8000"))
	}
	return errors.Join(errs...)
}

func (o Options) checkPicker() error {
	switch {
	case o.Prefix && o.Picker == "" && !o.Module:
		return errors.New("prefix: bodies are for a picker or the module: want one of them too")
	case o.Picker == "":
		return nil
	case o.Module:
		return errors.New("picker and module: both name the endpoint of a request: want one of them")
	}
	return CheckAddress("picker", o.Picker, "127.0.0.1:18002")
}

// notOfClients are headers that say how a request is sent, or that differ with each. The host is not among the headers
// that Envoy hashes.
var notOfClients = []string{"accept-encoding", "connection", "content-encoding", "content-length", "content-type",
	"date", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
	"x-forwarded-proto", "x-gateway-destination-endpoint", "x-request-id"}

func (o Options) checkAffinity() error {
	switch {
	case o.Affinity == "":
		return nil
	case o.Mode == ModeShedding:
		return errors.New("affinity: in mode shedding requests with the header would never be refused: want mode " +
			"failsafe")
	case o.Picker != "" || o.Module:
		return errors.New("affinity and a picker: both choose the endpoint of a request: want one of them")
	case len(o.Further) > 0:
		return errors.New("affinity: want one cluster")
	}
	if slices.Contains(notOfClients, o.Affinity) || strings.HasPrefix(o.Affinity, "x-envoy-") {
		return fmt.Errorf("affinity %q: no conversation is named by this header, which HTTP or Envoy sets: want one "+
			"of your clients, such as x-conversation-id", o.Affinity)
	}
	for _, r := range o.Affinity {
		if !(r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z') {
			return fmt.Errorf("affinity %q: want the name of a header in lower case, such as x-conversation-id",
				o.Affinity)
		}
	}
	return nil
}

func (o Options) checkIdleTimeout() error {
	if o.IdleTimeout < time.Second {
		return fmt.Errorf("idle timeout %s: want at least 1s", o.IdleTimeout)
	}
	return nil
}

func (o Options) checkFurther() error {
	var errs []error
	seen := map[string]bool{o.Cluster: true}
	for _, name := range o.Further {
		if seen[name] {
			errs = append(errs, fmt.Errorf("cluster %q: it is given twice", name))
		}
		seen[name] = true
		errs = append(errs, checkCluster(name))
	}
	if len(o.Further) > 0 && len(o.Fallback) > 0 {
		errs = append(errs, errors.New("fallback: its endpoints belong to one cluster, and there are several: want "+
			"one cluster, or no fallback"))
	}
	return errors.Join(errs...)
}

// checkShadow refuses what is for requests that follow the weights.
func (o Options) checkShadow() error {
	switch {
	case !o.Shadow:
		return nil
	case o.Mode == ModeShedding, len(o.Fallback) > 0, o.Picker != "", o.Module, o.Affinity != "", o.ModelTLS != TLS{}:
		return errors.New("shadow: no request goes through clusters of Steelyard: want no mode, fallback, picker, " +
			"module, affinity or TLS to model servers")
	case o.NoUpstreamLog:
		return errors.New("shadow: the times of answers come with the upstream log: want it too")
	}
	return nil
}

func (o Options) checkSecretsDir() error {
	if o.SecretsDir != "" && o.TLS == (TLS{}) && o.ModelTLS == (TLS{}) {
		return errors.New("secrets: there is nothing to read without TLS: want a CA file too")
	}
	return nil
}

func (t TLS) validate(what string) error {
	switch {
	case t == TLS{}:
		return nil
	case t.CAFile == "":
		return fmt.Errorf("%s: no CA file given: without it Envoy takes any certificate for the server's", what)
	case (t.CertFile == "") != (t.KeyFile == ""):
		return fmt.Errorf("%s: want both a certificate file and a key file, or neither", what)
	}
	return nil
}

func oneOf[T ~string](what string, got T, allowed ...T) error {
	names := make([]string, len(allowed))
	for i, a := range allowed {
		if got == a {
			return nil
		}
		names[i] = string(a)
	}
	return fmt.Errorf("%s %q: want %s", what, got, strings.Join(names, " or "))
}
