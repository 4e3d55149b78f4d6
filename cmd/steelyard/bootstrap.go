package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	envoybootstrap "steelyard/envoy-bootstrap"
)

// A bootstrap has the flags of the command.
type bootstrap struct {
	options                                envoybootstrap.Options
	names                                  []string // of clusters
	attach, secured                        bool
	upstreamLog, loadReports, runtimeLayer bool
	tlsDir, out, configDir, affinity       string
	gateway                                string // of Istio, as the following
	poolsOf                                []string
	mesh                                   bool
}

func bootstrapCommand() *cobra.Command {
	var b bootstrap
	c := &cobra.Command{
		Use:     "bootstrap --cluster NAME --xds HOST:PORT",
		PreRunE: b.check,
		Short:   "Print a complete bootstrap for Envoy 1.36 or newer",
		Long: `Print a complete configuration for an Envoy, 1.36 or newer, that follows Steelyard. With
--attach, print only what you add to an Envoy that you already have.

Envoy also reports to Steelyard when each request begins and ends at a model server.
No request waits for that.

An Envoy runs in one of two modes:
  failsafe  without new weights for push.endpoint_stale_after, it balances on its own
  shedding  it refuses some requests while the whole pool is saturated (set
            shedding.enabled in Steelyard's configuration)`,
		Example: `  steelyard bootstrap --cluster llama --xds 10.0.0.5:18000 > envoy.yaml
  envoy -c envoy.yaml --service-node "$(hostname)"
  steelyard bootstrap --attach --cluster llama --cluster embed --xds 10.0.0.5:18000
  steelyard bootstrap --cluster llama --xds steelyard.svc:18000 --tls --out envoy --config-dir /etc/envoy
  steelyard bootstrap --form istio --gateway models/eg --pools-of models --xds steelyard.svc:18000 --out istio`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return b.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	b.flags(c)
	return c
}

// ofWhole are the flags of a whole bootstrap.
var ofWhole = []string{"listen", "admin", "node-id", "zone", "idle-timeout", "ready", "access-log"}

// check refuses flags of a whole bootstrap together with --attach, and what only --attach has without it.
func (b *bootstrap) check(cmd *cobra.Command, _ []string) error {
	if b.options.Form == formIstio {
		return b.checkIstio(cmd.Flags())
	}
	for _, flag := range ofWhole {
		if b.attach && cmd.Flags().Changed(flag) {
			return usagef("--%s has no effect with --attach: the Envoy that you have decides it", flag)
		}
	}
	if f := b.options.Form; !b.attach && (f == envoybootstrap.FormCDS || f == envoybootstrap.FormADS) {
		return usagef("--form %s needs --attach: a whole bootstrap has its clusters in it", f)
	}
	return nil
}

// useFolder takes the files of a folder that are not given, by the names that Kubernetes and cert-manager give them.
func useFolder(t *envoybootstrap.TLS, dir string) {
	if t.CAFile == "" {
		t.CAFile = path.Join(dir, "ca.crt")
	}
	if t.CertFile == "" && t.KeyFile == "" {
		t.CertFile, t.KeyFile = path.Join(dir, "tls.crt"), path.Join(dir, "tls.key")
	}
}

// writeFiles writes the configuration, and the files that it finds certificates by.
func writeFiles(dir, name string, text []byte, o envoybootstrap.Options) error {
	files := map[string][]byte{}
	if o.SecretsDir != "" {
		var err error
		if files, err = envoybootstrap.RenderSecrets(o); err != nil {
			return err
		}
	}
	files[name] = text
	return writeAll(dir, files)
}

func writeAll(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// flags declares the flags.
func (b *bootstrap) flags(c *cobra.Command) {
	f, o := c.Flags(), &b.options
	f.StringArrayVar(&b.names, "cluster", nil, "name of the cluster in Steelyard's configuration (required); with "+
		"--attach, repeat for more")
	f.StringVar(&o.XDS, "xds", "", "Steelyard's xDS listener, HOST:PORT (required)")
	_ = c.MarkFlagRequired("xds")
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
	f.StringVar(&o.Picker, "picker", "", "a steelyard picker that names the endpoint of each request, HOST:PORT")
	f.BoolVar(&o.Prefix, "prefix", false, "with --picker or --module: choose by the body too, by what endpoints have "+
		"of the prompt in their prefix cache")
	f.BoolVar(&o.Module, "module", false, "name the endpoint of each request inside Envoy, 1.38 or newer, by "+
		"libsteelyard.so (make module)")
	f.StringVar(&b.affinity, "affinity", "", "send requests with the same value of a header to the same model server, "+
		"header:NAME")
	f.BoolVar(&b.attach, "attach", false, "print only what to add to an existing Envoy configuration")
	f.BoolVar(&o.Shadow, "shadow", false, "with --attach: only report the requests of clusters that the Envoy has, "+
		"and follow no weights (see steelyard shadow)")
	f.StringVar((*string)(&o.Form), "form", string(envoybootstrap.FormStatic), "with --attach: static, for clusters "+
		"in the bootstrap; cds, for clusters that come by CDS; or ads, with all assignments on one ADS stream to "+
		"Steelyard. Without --attach: istio, for a gateway of Istio, with --cluster NAME=SERVICE:PORT or --pools-of")
	f.StringVar(&o.Ready, "ready", "", "a path, such as /ready, at which the listener answers 200 while requests can "+
		"be sent somewhere, else 503, for a readiness probe")
	f.BoolVar(&o.AccessLog, "access-log", false, "log a line for each request on Envoy's standard output")
	f.BoolVar(&b.upstreamLog, "upstream-log", true,
		"report the start and end of each request at a model server to Steelyard")
	f.BoolVar(&b.loadReports, "load-reports", true, "report the requests in progress to Steelyard, at intervals")
	f.BoolVar(&b.runtimeLayer, "runtime-layer", true, "let Steelyard switch the upstream log between immediate, "+
		"batched and off")
	b.tlsFlags(c)
	b.istioFlags(c)
	completes(c, "mode", string(envoybootstrap.ModeFailsafe), string(envoybootstrap.ModeShedding))
	completes(c, "form", string(envoybootstrap.FormStatic), string(envoybootstrap.FormCDS),
		string(envoybootstrap.FormADS), formIstio)
	completes(c, "lb-policy", string(envoybootstrap.PolicyLeastRequest), string(envoybootstrap.PolicyRoundRobin))
}

// tlsFlags declares those of TLS.
func (b *bootstrap) tlsFlags(c *cobra.Command) {
	f, o := c.Flags(), &b.options
	f.BoolVar(&b.secured, "tls", false, "speak TLS to Steelyard with certificates that Envoy reads again when they "+
		"change: writes the files for its secret discovery (SDS) too, with --out")
	f.StringVar(&b.tlsDir, "tls-dir", "/etc/envoy/tls", "with --tls: the folder on Envoy's machine that has ca.crt, "+
		"tls.crt and tls.key")
	f.StringVar(&b.out, "out", "", "write the files to this folder instead of standard output")
	f.StringVar(&b.configDir, "config-dir", "", "with --tls: the folder on Envoy's machine for the files of "+
		"--out (default: the folder of --out)")
	f.StringVar(&o.TLS.ServerName, "xds-server-name", "", "name in Steelyard's certificate (default: the host of "+
		"--xds)")
	f.StringVar(&o.ModelTLS.CAFile, "model-ca-file", "", "authorities of the model servers' certificates, PEM, on "+
		"Envoy's machine (turns TLS to them on)")
	f.StringVar(&o.ModelTLS.CertFile, "model-cert-file", "", "Envoy's client certificate for them, PEM")
	f.StringVar(&o.ModelTLS.KeyFile, "model-key-file", "", "key of that certificate, PEM")
	f.StringVar(&o.ModelTLS.ServerName, "model-server-name", "", "name in their certificates (default: any)")
	f.StringVar(&o.TLS.CAFile, "xds-ca-file", "", "authorities of Steelyard's certificate, PEM, on Envoy's machine "+
		"(turns TLS on)")
	f.StringVar(&o.TLS.CertFile, "xds-cert-file", "", "Envoy's client certificate, PEM, on Envoy's machine")
	f.StringVar(&o.TLS.KeyFile, "xds-key-file", "", "key of that certificate, PEM, on Envoy's machine")
}

// startsEmpty is what an operator has to know of a bootstrap without --fallback.
const startsEmpty = "note: an Envoy that starts while Steelyard is away has no endpoints, and answers 503. With " +
	"--fallback HOST:PORT, such as the Service of the model servers, it serves.\n"

// run prints or writes what the flags ask for.
func (b *bootstrap) run(ctx context.Context, stdout, stderr io.Writer) error {
	if b.options.Form == formIstio {
		return b.writeIstio(ctx, stdout)
	}
	if b.gateway != "" || b.mesh || len(b.poolsOf) > 0 {
		return usagef("--gateway, --pools-of and --mesh are for --form istio")
	}
	if len(b.names) == 0 {
		return usagef("--cluster is missing: write the name of a cluster in Steelyard's configuration")
	}
	o := b.options
	for _, name := range b.names {
		switch {
		case strings.ContainsAny(name, ", "):
			return usagef("--cluster %q: write one name; with --attach, repeat --cluster for more", name)
		case strings.Contains(name, "="):
			return usagef("--cluster %s: NAME=SERVICE:PORT is for --form istio: write the name only", name)
		}
	}
	o.Cluster, o.Further = b.names[0], b.names[1:]
	o.NoUpstreamLog, o.NoLoadReports, o.NoRuntime = !b.upstreamLog, !b.loadReports, !b.runtimeLayer
	if b.affinity != "" {
		header, ok := strings.CutPrefix(b.affinity, "header:")
		if !ok || header == "" {
			return usagef("--affinity %s: write header: and the name of a header, such as header:x-conversation-id",
				b.affinity)
		}
		o.Affinity = strings.ToLower(header)
	}
	if b.secured {
		if b.out == "" {
			return usagef("--tls needs --out: Envoy finds its certificates through files of their own")
		}
		useFolder(&o.TLS, b.tlsDir)
		own, err := filepath.Abs(b.out)
		if err != nil {
			return err
		}
		o.SecretsDir = cmp.Or(b.configDir, own)
	}
	render, name := envoybootstrap.Render, "envoy.yaml"
	if b.attach {
		render, name = envoybootstrap.RenderAttach, "attach.yaml"
	}
	text, err := render(o)
	if err != nil {
		return usageError{err} // it depends on nothing but the options
	}
	if o.Mode == envoybootstrap.ModeFailsafe && len(o.Fallback) == 0 && !o.Shadow {
		fmt.Fprint(stderr, startsEmpty)
	}
	if b.out == "" {
		_, err = stdout.Write(text)
		return err
	}
	return writeFiles(b.out, name, text, o)
}
