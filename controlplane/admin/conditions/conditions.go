package conditions

import "slices"

// conditions returns all conditions at a moment.
func conditions(p *Observation) []condition {
	out := slices.Concat(processConditions(p), edgeConditions(p), gatewayConditions(p))
	for i := range p.Clusters {
		c := &p.Clusters[i]
		out = append(out, clusterConditions(p, c)...)
		for k := range c.Endpoints {
			out = append(out, endpointConditions(p, c, &c.Endpoints[k])...)
		}
	}
	for i := range p.Clients {
		out = append(out, clientConditions(p, &p.Clients[i])...)
	}
	out = append(out, leftConditions(p)...)
	for i := range out {
		out[i].Command = asRun(&p.Status, out[i].Command)
	}
	return out
}
