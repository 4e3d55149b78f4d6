package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"steelyard/cmd/internal/picker"
	envoybootstrap "steelyard/envoy-bootstrap"
	"steelyard/internal/credentials"
)

func pickerCommand() *cobra.Command {
	var o picker.Options
	var tls pickerTLS
	var l logging
	c := &cobra.Command{
		Use:   "picker --steelyard HOST:PORT --cluster NAME",
		Short: "Name the endpoint of each request, for Envoys and gateways that ask (ext_proc)",
		Long: `Name the endpoint of each request, from the loads that a running Steelyard streams.
Envoy or a gateway asks it over ext_proc, with the Endpoint Picker protocol of the
Gateway API Inference Extension. It needs only headers, with --prefix also the prompt.

Weights need no picker and no hop. A picker is worth its hop if requests end before the
next push of weights, if they should wait in a queue, or if a gateway asks for one.

If the picker is away, or Steelyard for more than 3 s, proxies follow the last weights.`,
		Example: `  steelyard picker --steelyard 10.0.0.5:18000 --cluster llama --listen 127.0.0.1:18002
  steelyard bootstrap --cluster llama --xds 10.0.0.5:18000 --picker 127.0.0.1:18002`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := envoybootstrap.CheckAddress("--steelyard", o.Steelyard, "10.0.0.5:18000"); err != nil {
				return usageError{err}
			}
			if err := tls.load(&o); err != nil {
				return usageError{err}
			}
			return l.during(func(log *slog.Logger) error {
				o.Log = log
				p, err := picker.New(o)
				if err != nil {
					return err
				}
				return p.Run(untilSignal(os.Interrupt, syscall.SIGTERM))
			})
		},
	}
	host, _ := os.Hostname()
	f := c.Flags()
	f.StringVar(&o.Steelyard, "steelyard", "", "Steelyard's xDS listener, HOST:PORT (required)")
	f.StringArrayVar(&o.Clusters, "cluster", nil, "a cluster of Steelyard's configuration; repeat for more "+
		"(required). With several, proxies name one in the gRPC metadata x-steelyard-cluster")
	c.MarkFlagRequired("steelyard")
	c.MarkFlagRequired("cluster")
	f.StringVar(&o.Listen, "listen", "127.0.0.1:18002", "where proxies connect, HOST:PORT")
	f.StringVar(&o.Admin, "admin", "127.0.0.1:18003", "listener of /metrics, /healthz and /readyz, HOST:PORT")
	f.StringVar(&o.Name, "name", host, "name under which Steelyard shows this picker")
	f.BoolVar(&o.Strict, "strict", false, "answer 503 if no endpoint can be named, as the Endpoint Picker protocol "+
		"asks; otherwise the proxy balances such requests on its own")
	f.BoolVar(&o.Single, "single", false, "name no others for retries: agentgateway and Envoy AI Gateway read no list")
	f.BoolVar(&o.Prefix, "prefix", false, "prefer endpoints that have a part of the prompt in their prefix cache, by "+
		"the answers that went through this picker; needs a proxy that sends bodies (bootstrap --prefix)")
	f.StringVar(&tls.certFile, "tls-cert-file", "", "certificate of the listener for proxies, PEM (turns TLS on)")
	f.StringVar(&tls.keyFile, "tls-key-file", "", "key of that certificate, PEM")
	f.BoolVar(&tls.insecure, "insecure", false, "allow a listener off loopback without TLS")
	f.StringVar(&tls.caFile, "steelyard-ca-file", "", "authorities of Steelyard's certificate, PEM (turns TLS on)")
	f.StringVar(&tls.clientCertFile, "steelyard-cert-file", "", "client certificate for Steelyard, PEM")
	f.StringVar(&tls.clientKeyFile, "steelyard-key-file", "", "key of that certificate, PEM")
	f.StringVar(&tls.serverName, "steelyard-server-name", "", "name in Steelyard's certificate (default: its host)")
	l.flags(c)
	return c
}

// pickerTLS is the files of both sides.
type pickerTLS struct {
	certFile, keyFile                     string
	insecure                              bool
	caFile, clientCertFile, clientKeyFile string
	serverName                            string
}

// load sets the credentials of o. Its errors name the flag that is missing.
func (t pickerTLS) load(o *picker.Options) error {
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	ip, err := netip.ParseAddr(host)
	loopback := err == nil && ip.IsLoopback()
	switch {
	case (t.certFile == "") != (t.keyFile == ""):
		return errors.New("--tls-cert-file and --tls-key-file belong together")
	case (t.clientCertFile == "") != (t.clientKeyFile == ""):
		return errors.New("--steelyard-cert-file and --steelyard-key-file belong together")
	case t.clientCertFile != "" && t.caFile == "":
		return errors.New("--steelyard-cert-file needs --steelyard-ca-file")
	case t.serverName != "" && t.caFile == "":
		return errors.New("--steelyard-server-name needs --steelyard-ca-file")
	case t.certFile == "" && !loopback && !t.insecure:
		return fmt.Errorf("--listen %s is not on loopback: add --tls-cert-file and --tls-key-file, or --insecure",
			o.Listen)
	}
	if t.certFile != "" {
		o.ServerTLS = &credentials.Server{CertFile: t.certFile, KeyFile: t.keyFile}
	}
	if t.caFile != "" {
		o.ClientTLS = &credentials.Client{CAFile: t.caFile, CertFile: t.clientCertFile, KeyFile: t.clientKeyFile,
			ServerName: t.serverName}
	}
	return nil
}
