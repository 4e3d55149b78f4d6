package assignment_test

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
)

// text writes every field that Build sets, one endpoint per line, in a form that does not depend on the version of
// protobuf (prototext and protojson vary their white space on purpose).
func text(m *endpointv3.ClusterLoadAssignment) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster %s\n", m.GetClusterName())
	if p := m.GetPolicy(); p != nil {
		if p.GetEndpointStaleAfter() != nil {
			fmt.Fprintf(&b, "policy endpoint_stale_after %v\n", p.GetEndpointStaleAfter().AsDuration())
		}
		for _, d := range p.GetDropOverloads() {
			fmt.Fprintf(&b, "policy drop %s %d %v\n", d.GetCategory(), d.GetDropPercentage().GetNumerator(),
				d.GetDropPercentage().GetDenominator())
		}
		fmt.Fprintf(&b, "policy overprovisioning_factor %d\n", p.GetOverprovisioningFactor().GetValue())
		if p.GetWeightedPriorityHealth() {
			b.WriteString("policy UNEXPECTED weighted_priority_health\n")
		}
	}
	for _, l := range m.GetEndpoints() {
		fmt.Fprintf(&b, "locality zone %q weight %d priority %d\n", l.GetLocality().GetZone(),
			l.GetLoadBalancingWeight().GetValue(), l.GetPriority())
		for _, e := range l.GetLbEndpoints() {
			fmt.Fprintf(&b, "  %s\n", endpointText(e))
		}
	}
	return b.String()
}

func endpointText(e *endpointv3.LbEndpoint) string {
	line := fmt.Sprintf("%s weight %d", address(e), e.GetLoadBalancingWeight().GetValue())
	if e.GetHealthStatus() != corev3.HealthStatus_UNKNOWN {
		line += " " + e.GetHealthStatus().String()
	}
	for name, fields := range e.GetMetadata().GetFilterMetadata() {
		f := fields.GetFields()
		line += fmt.Sprintf(" %s{overloaded %v, reason %q, %d fields}", name, f["overloaded"].GetBoolValue(),
			f["reason"].GetStringValue(), len(f))
	}
	return line
}

func address(e *endpointv3.LbEndpoint) string {
	a := e.GetEndpoint().GetAddress().GetSocketAddress()
	return net.JoinHostPort(a.GetAddress(), strconv.Itoa(int(a.GetPortValue())))
}
