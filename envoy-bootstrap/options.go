package envoybootstrap

import "time"

// Mode is what an Envoy does beyond following the weights; the two exclude each
// other, because an aggregate cluster does not enforce drop_overloads.
type Mode string

// The modes.
const (
	// ModeFailsafe has Envoy balance on its own when the weights get too old.
	ModeFailsafe Mode = "failsafe"
	// ModeShedding has Envoy refuse the share of requests that Steelyard names
	// while the whole pool is saturated. Without Steelyard the last weights stay.
	ModeShedding Mode = "shedding"
)

// Policy is Envoy's load balancing policy under the weights.
type Policy string

// The policies.
const (
	PolicyRoundRobin   Policy = "round_robin"
	PolicyLeastRequest Policy = "least_request"
)

// Options are the choices that a bootstrap is rendered from. Addresses are
// host:port; IPv6 hosts stand in brackets. The zero value of every field but
// Cluster and XDS means its default.
type Options struct {
	Cluster string // name of the cluster in Steelyard's config; required
	XDS     string // Steelyard's xDS listener; required
	Mode    Mode   // ModeFailsafe when empty

	Listen string // where clients connect; 127.0.0.1:10000 when empty. Port 0 lets the kernel choose
	Admin  string // Envoy's admin listener; 127.0.0.1:9901 when empty. Port 0 lets the kernel choose

	NodeID string // unique among the Envoys; hostname, "/" and the listen address when empty
	Zone   string // the Envoy's own zone, reported to Steelyard; none when empty

	Policy Policy // PolicyRoundRobin when empty

	// Fallback are endpoints that ModeFailsafe uses when the weights are stale,
	// as host:port; a host name stands for all its addresses. When empty the
	// fallback's members come from Steelyard as well, and the last ones stay.
	Fallback []string

	// IdleTimeout is how long a request may go without a byte in either
	// direction before it is reset; 10m when 0. It has to outlast the longest
	// wait in a model server's queue.
	IdleTimeout time.Duration

	TLS TLS // of the connection to Steelyard; plain text when zero

	AccessLog bool // one line per request on standard output
}

// TLS is how an Envoy and Steelyard prove to each other who they are. Files are
// read by Envoy, on its machine.
type TLS struct {
	CAFile     string // verifies Steelyard; setting it turns TLS on
	CertFile   string // shown to Steelyard
	KeyFile    string // of CertFile
	ServerName string // expected in Steelyard's certificate, and sent as SNI; the host of XDS when empty
}
