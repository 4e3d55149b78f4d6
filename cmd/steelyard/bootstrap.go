package main

import (
	"github.com/spf13/cobra"

	envoybootstrap "steelyard/envoy-bootstrap"
)

func bootstrapCommand() *cobra.Command {
	var o envoybootstrap.Options
	var attach bool
	upstreamLog, loadReports, runtimeLayer := true, true, true
	c := &cobra.Command{
		Use:   "bootstrap --cluster NAME --xds HOST:PORT",
		Short: "Print a complete bootstrap for Envoy 1.40",
		Long: `Print a complete bootstrap for Envoy 1.40 whose one cluster follows Steelyard,
or, with --attach, what an Envoy that has a configuration already needs for that.

Envoy tells Steelyard of its requests, too: when each begins and ends at a model
server, and how many are in progress. No request ever waits for that.

Two modes, of which Envoy can do only one at a time:
  failsafe  when no weights have come for push.endpoint_stale_after of
            Steelyard's configuration, Envoy balances by itself
  shedding  Envoy refuses the share of requests that Steelyard names while the
            whole pool is saturated (set shedding.enabled)`,
		Example: `  steelyard bootstrap --cluster llama --xds 10.0.0.5:18000 > envoy.yaml
  envoy -c envoy.yaml --service-node "$(hostname)"
  steelyard bootstrap --attach --cluster llama --xds 10.0.0.5:18000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.NoUpstreamLog, o.NoLoadReports, o.NoRuntime = !upstreamLog, !loadReports, !runtimeLayer
			render := envoybootstrap.Render
			if attach {
				render = envoybootstrap.RenderAttach
			}
			text, err := render(o)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&o.Cluster, "cluster", "", "name of the cluster in Steelyard's configuration (required)")
	f.StringVar(&o.XDS, "xds", "", "Steelyard's xDS listener, HOST:PORT (required)")
	c.MarkFlagRequired("cluster")
	c.MarkFlagRequired("xds")
	f.StringVar((*string)(&o.Mode), "mode", string(envoybootstrap.ModeFailsafe), "failsafe or shedding")
	f.StringVar(&o.Listen, "listen", envoybootstrap.DefaultListen, "where clients connect, HOST:PORT")
	f.StringVar(&o.Admin, "admin", envoybootstrap.DefaultAdmin, "Envoy's admin listener, HOST:PORT")
	f.StringVar(&o.NodeID, "node-id", "", "name under which Steelyard shows this Envoy (default: the cluster's name "+
		"with -envoy; --service-node overrides it)")
	f.StringVar(&o.Zone, "zone", "", "zone of this Envoy")
	f.StringVar((*string)(&o.Policy), "lb-policy", string(envoybootstrap.PolicyLeastRequest),
		"Envoy's policy under the weights: least_request, which also counts the requests that this Envoy has open, or "+
			"round_robin, which follows them exactly")
	f.StringArrayVar(&o.Fallback, "fallback", nil, "with failsafe: an endpoint to use when the weights are stale, "+
		"HOST:PORT; repeat for more (default: the last ones that Steelyard sent)")
	f.DurationVar(&o.IdleTimeout, "idle-timeout", envoybootstrap.DefaultIdleTimeout,
		"how long a request may go without a byte before it is reset")
	f.BoolVar(&attach, "attach", false, "print only what to add to an existing Envoy configuration")
	f.BoolVar(&o.AccessLog, "access-log", false, "log a line for each request on Envoy's standard output")
	f.BoolVar(&upstreamLog, "upstream-log", true,
		"report the start and end of each request at a model server to Steelyard")
	f.BoolVar(&loadReports, "load-reports", true, "report the requests in progress to Steelyard, at intervals")
	f.BoolVar(&runtimeLayer, "runtime-layer", true, "let Steelyard switch the upstream log between immediate, "+
		"batched and off")
	f.StringVar(&o.TLS.CAFile, "xds-ca-file", "", "authorities of Steelyard's certificate, PEM, on Envoy's machine "+
		"(turns TLS on)")
	f.StringVar(&o.TLS.CertFile, "xds-cert-file", "", "Envoy's client certificate, PEM, on Envoy's machine")
	f.StringVar(&o.TLS.KeyFile, "xds-key-file", "", "key of that certificate, PEM, on Envoy's machine")
	return c
}
