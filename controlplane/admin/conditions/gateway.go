package conditions

import (
	"strings"
	"time"

	"steelyard/internal/api"
)

// Envoy Gateway asks when what it makes of a Gateway's objects changes. Annotations of a route with its own prefix do
// that, and labels and other annotations do not.
const (
	askAgain = "Correct what is named, then annotate a route of the Gateway: Envoy Gateway does not ask again by " +
		"itself."
	askCommand = `kubectl -n NAMESPACE annotate httproute NAME --overwrite "gateway.envoyproxy.io/asked=$(date)"`
)

// gatewayConditions are about what is read and written in the Kubernetes API, and the gateway that asks.
func gatewayConditions(p *Observation) (out []condition) {
	process, g := api.Subject{Kind: api.SubjectProcess}, &p.Status.EnvoyGateway
	out = poolConditions(p)
	if pods := p.Status.Pods; pods.Error != "" {
		f := newCondition(kindPods, api.SeverityWarning, process, "Pods cannot be acted on").explain(
			InOneLine(pods.Error), api.BlameNo,
			"The Kubernetes API does not answer, or refuses what the section kubernetes asks for.",
			"Correct what is named: Steelyard asks again within a minute.", rightsCommand(&p.Status, pods.Error))
		f.pendingFor = passing
		out = append(out, f)
	}
	switch {
	case g.LastError != "":
		out = append(out, newCondition(kindGateway, api.SeverityError, process,
			"Envoy Gateway gets no usable answer").explain(g.LastError, api.BlameUnknown,
			"It keeps the configuration that its Envoys have: what was changed since is not in force.",
			askAgain, askCommand))
	case g.Enabled && g.Calls == 0 && noEnvoys(p) && p.Status.Pools.Found > p.Status.Pools.Pickers:
		f := newCondition(kindGateway, api.SeverityWarning, process, "Envoy Gateway has not asked yet").explain(
			"There are InferencePools, and no Envoy follows Steelyard.", api.BlameNo,
			"It asks when a Gateway has a route, and each time that one of its objects changes.",
			"See whether extensionManager is in the configuration of Envoy Gateway, and what it logs.",
			"kubectl -n envoy-gateway-system logs deploy/envoy-gateway --tail 20")
		f.pendingFor = time.Minute
		out = append(out, f)
	}
	var refused []string
	for _, pool := range g.Pools {
		if pool.Reason != "" {
			refused = append(refused, sprint("%s/%s of Gateway %s: %s", pool.Namespace, pool.Name, pool.Gateway,
				pool.Reason))
		}
	}
	if len(refused) > 0 {
		f := newCondition(kindGateway, api.SeverityError, process,
			"A route names an InferencePool that is not served").explain(
			strings.Join(api.Limit(refused, 3), "; "), api.BlameNo, "Its requests are answered with 503.",
			askAgain, askCommand)
		f.ID += "/pools"
		out = append(out, f)
	}
	if len(g.Ignored) > 0 {
		f := newCondition(kindGateway, api.SeverityWarning, process, "Part of a route has no effect").explain(
			strings.Join(api.Limit(g.Ignored, 3), "; "), api.BlameNo,
			"Requests follow the weights all the same, unless their route names no cluster.",
			"Correct what is named: Envoy Gateway asks again when the route changes.", "")
		f.ID += "/ignored"
		out = append(out, f)
	}
	return out
}

// poolConditions are about InferencePools, whichever gateway sends requests to them.
func poolConditions(p *Observation) (out []condition) {
	process, pools := api.Subject{Kind: api.SubjectProcess}, &p.Status.Pools
	if pools.Error != "" {
		severity, then := api.SeverityWarning, "pools that are known stay."
		if !pools.Answered {
			severity, then = api.SeverityError, "Steelyard is not ready before it knows all pools."
		}
		f := newCondition(kindPools, severity, process, "InferencePools cannot be read").explain(
			InOneLine(pools.Error), api.BlameNo, "The Kubernetes API does not answer, or refuses; "+then,
			"Correct what is named: Steelyard tries again every few seconds.",
			rightsCommand(&p.Status, pools.Error))
		f.pendingFor, f.rank = passing, Rank(severity)
		out = append(out, f)
	}
	if pools.StatusError != "" {
		f := newCondition(kindPools, api.SeverityWarning, process,
			"The status of InferencePools is not written").explain(pools.StatusError, api.BlameNo,
			"The Kubernetes API does not answer, or refuses. No request is affected.",
			"Correct what is named: Steelyard tries again within a minute.",
			rightsCommand(&p.Status, pools.StatusError))
		f.ID += "/status"
		f.pendingFor = passing
		out = append(out, f)
	}
	if len(pools.Unserved) > 0 {
		var all []string
		for _, pool := range api.Limit(pools.Unserved, 3) {
			all = append(all, sprint("%s/%s: %s", pool.Namespace, pool.Name, pool.Reason))
		}
		f := newCondition(kindPools, api.SeverityWarning, process, "InferencePools have no cluster").explain(
			strings.Join(all, "; "), api.BlameNo,
			sprint("No Envoy can follow them. There are %d.", len(pools.Unserved)),
			"Correct what is named.", "")
		f.ID += "/unserved"
		out = append(out, f)
	}
	return out
}
