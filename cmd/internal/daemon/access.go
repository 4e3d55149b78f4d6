package daemon

import (
	"steelyard/controlplane/config"
	"steelyard/internal/api"
	"steelyard/xds/access"
)

// rulesOf returns the rules on clients of the xDS port; nil where all may use everything.
func rulesOf(cfg config.XDS, replicas []string) []access.Rule {
	var rules []access.Rule
	for _, r := range cfg.Clients {
		rules = append(rules, access.Rule(r))
	}
	if rules == nil {
		return nil // everything is allowed
	}
	for _, name := range replicas {
		rules = append(rules, access.Rule{SAN: name, Clusters: []string{"*"}})
	}
	return rules
}

// viewAccess returns who may use the xDS port, and who was denied.
func (d *Daemon) viewAccess() api.XDSAccess {
	cfg := d.configuration().XDS
	return api.XDSAccess{
		Loopback: config.Loopback(cfg.Listen), TLS: cfg.TLS != nil,
		ClientCertificates: cfg.TLS != nil && cfg.TLS.ClientCAFile != "",
		Insecure:           cfg.Open(), Rules: len(cfg.Clients), Denied: d.guard.Denied(),
	}
}
