package daemon

import (
	"steelyard/controlplane/admin"
	"steelyard/controlplane/config"
	"steelyard/controlplane/view"
	"steelyard/xds/access"
)

// rulesOf returns the rules on clients of the xDS port; nil where all may use everything.
func rulesOf(cfg config.XDS) []access.Rule {
	var rules []access.Rule
	for _, r := range cfg.Clients {
		rules = append(rules, access.Rule(r))
	}
	return rules
}

// viewAccess returns who may use the xDS port, and who was denied.
func (d *Daemon) viewAccess() admin.XDSAccess {
	d.mu.Lock()
	cfg := d.config.XDS
	d.mu.Unlock()
	a := admin.XDSAccess{
		Loopback: config.Loopback(cfg.Listen), TLS: cfg.TLS != nil,
		ClientCertificates: cfg.TLS != nil && cfg.TLS.ClientCAFile != "",
		Insecure:           cfg.Open(), Rules: len(cfg.Clients),
	}
	for _, n := range d.guard.Denied() {
		a.Denied = append(a.Denied, admin.DeniedClients{Kind: n.Kind, Count: n.Count, LastAt: view.At(n.At),
			LastClient: n.Client, LastPeer: n.Peer, LastCluster: n.Cluster})
	}
	return a
}
