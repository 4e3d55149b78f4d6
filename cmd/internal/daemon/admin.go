package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"steelyard/controlplane/admin"
	"steelyard/controlplane/config"
)

// openAdmin reads what the admin listener needs: its certificate and the tokens.
func (d *Daemon) openAdmin(cfg config.Admin) (err error) {
	if d.adminTLS, err = d.serverTLS(cfg.TLS, "admin.tls"); err != nil {
		return err
	}
	options := admin.AccessOptions{Loopback: config.Loopback(cfg.Listen), TLS: cfg.TLS != nil,
		TokensFile: cfg.TokensFile, AnonymousView: cfg.AnonymousView, Insecure: cfg.Insecure}
	if cfg.Kubernetes {
		options.Review = d.kubernetes.review
	}
	d.access = admin.NewAccess(options)
	if cfg.TokensFile == "" {
		return nil
	}
	tokens, err := readTokens(context.Background(), cfg.TokensFile)
	if err != nil {
		return fmt.Errorf("admin.tokens_file: %w", err)
	}
	d.access.SetTokens(tokens, nil)
	return nil
}

// adminSocket is the admin listener, with TLS if it is configured.
func (d *Daemon) adminSocket() net.Listener {
	if d.adminTLS == nil {
		return d.adminListener
	}
	return tls.NewListener(d.adminListener, d.adminTLS)
}

func (d *Daemon) adminScheme() string {
	if d.adminTLS == nil {
		return "http"
	}
	return "https"
}

// warnOfExposure logs what a configuration leaves open to other machines, each time that it is applied.
func (d *Daemon) warnOfExposure(cfg *config.Config) {
	if cfg.XDS.Open() {
		d.options.Log.Warn("the xDS port is open to other machines without client certificates, as xds.insecure "+
			"allows: every client can read the servers' addresses and steer the traffic", "listen", cfg.XDS.Listen)
	}
	if g := cfg.EnvoyGateway; g != nil && g.Open() {
		d.options.Log.Warn("the listener for Envoy Gateway is open to other machines without client certificates, as "+
			"envoy_gateway.insecure allows: every client can read the addresses of the pools' servers",
			"listen", g.Listen)
	}
	if a := cfg.Admin; a.Insecure && !config.Loopback(a.Listen) && (a.TLS == nil || !a.Closed()) {
		d.options.Log.Warn("the admin listener is open to other machines, as admin.insecure allows", "listen", a.Listen,
			"tls", a.TLS != nil, "tokens", a.Closed())
	}
}
