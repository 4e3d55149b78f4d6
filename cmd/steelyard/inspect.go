package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"steelyard/cmd/internal/console"
	"steelyard/cmd/internal/daemon"
	"steelyard/collectors/modelserver"
	"steelyard/collectors/scrape"
	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery"
	"steelyard/internal/credentials"
	"steelyard/internal/engines"
	"steelyard/internal/files"
	"steelyard/internal/spelling"
)

// The bounds on a body to inspect, as generous as the largest that serve reads.
const (
	inspectLimit   = 256 << 20 // bytes
	inspectTimeout = 10 * time.Second
)

// inspection is what the options of inspect select.
type inspection struct {
	engine          string
	custom          modelserver.Custom
	tls             credentials.Client
	bearerTokenFile string
	config, cluster string
	address         string          // of the endpoint, as the configuration has it
	running         console.Options // of the Steelyard that knows the work of an endpoint
	json            bool
}

func inspectCommand() *cobra.Command {
	var o inspection
	c := &cobra.Command{
		Use:   "inspect FILE|URL|ENDPOINT",
		Short: "Show the load that Steelyard reads from a model server's metrics",
		Long: `Show the load that Steelyard reads from a model server's metrics, and the series behind
each number. A number that the server does not export is unknown, not zero; with --json
it is null. The engine is recognised by its series, unless --engine names it.

With --config and an endpoint's IP:PORT, inspect fetches the metrics as serve does, with
scheme, port, path, TLS, token and engine of the configuration. The running Steelyard
is asked for the address of a Pod. Settings of single endpoints are found in static
lists and files only: where a Pod has labels, or its metrics a port that Kubernetes
names, give the URL of the metrics and --engine instead.

If the engine counts tokens, inspect also asks the running Steelyard for what it has
learned: tokens outstanding, prefill rate and tokens per byte, with source and age.`,
		Example: `  steelyard inspect http://10.0.0.1:8000/metrics
  steelyard inspect -c steelyard.yaml --cluster llama 10.0.0.1:8000
  steelyard inspect -c steelyard.yaml --cluster llama vllm-llama-0
  steelyard inspect --ca-file ca.pem --bearer-token-file token https://10.0.0.1:8443/metrics
  curl -s http://10.0.0.1:8002/metrics | steelyard inspect --engine triton --json -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.engine != "" { // before anything is fetched
				if err := oneOf("engine", o.engine, engines.Names()...); err != nil {
					return err
				}
			}
			body, err := o.body(cmd.Context(), args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			reader, err := o.reader(args[0], body)
			if err != nil {
				return err
			}
			if o.json {
				return inspectJSON(cmd.OutOrStdout(), reader, args[0], body)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "engine: %s\n", o.engine)
			if err := inspectTable(cmd.OutOrStdout(), reader, modelserver.Engine(o.engine), args[0], body); err != nil {
				return err
			}
			return o.work(cmd.Context(), cmd.OutOrStdout(), reader, body)
		},
	}
	o.flags(c)
	return c
}

func (o *inspection) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.engine, "engine", "", "the model server: "+strings.Join(engines.Names(), ", ")+
		" (default: the one whose series are exported)")
	completes(c, "engine", engines.Names()...)
	f.StringVar(&o.custom.Queue, "queue", "", "with --engine custom: the gauge of requests waiting")
	f.StringVar(&o.custom.Running, "running", "", "with --engine custom: the gauge of requests executing")
	f.StringVar(&o.custom.Utilization, "utilization", "", "with --engine custom: the gauge of memory in use, 0..1")
	f.StringVar(&o.custom.Completions, "completions", "", "with --engine custom: the counter of requests completed")
	clientTLSFlags(f, &o.tls)
	f.BoolVar(&o.tls.InsecureSkipVerify, "insecure-skip-verify", false, "with https: accept any certificate")
	f.StringVar(&o.bearerTokenFile, "bearer-token-file", "", "a file with the token for the Authorization header")
	f.StringVarP(&o.config, "config", "c", "",
		"a configuration, by whose settings the metrics of an endpoint are fetched")
	f.StringVar(&o.cluster, "cluster", "", "the cluster of that configuration, or NAMESPACE.NAME of an InferencePool "+
		"(default: its only one)")
	f.StringArrayVar(&o.running.Admins, "admin", nil, "with --config: URL of the admin listener of the Steelyard that "+
		"has it (default: "+console.EnvAdmin+", or "+console.DefaultAdmin+")")
	f.StringVar(&o.running.TokenFile, "token-file", "", "with --config: file with a token of admin.tokens_file "+
		"(default: "+console.EnvToken+", or the file in "+console.EnvTokenFile+")")
	f.BoolVar(&o.json, "json", false, "print JSON of the metrics")
	_ = c.MarkFlagFilename("config", "yaml", "yml")
	completesClusterOf(c, &o.config)
}

// completesClusterOf makes the clusters of a configuration known to the shell, for the option --cluster.
func completesClusterOf(c *cobra.Command, path *string) {
	_ = c.RegisterFlagCompletionFunc("cluster",
		func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			cfg, err := config.Load(*path)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return clusterNames(cfg), cobra.ShellCompDirectiveNoFileComp
		})
}

func clusterNames(cfg *config.Config) []string {
	names := make([]string, len(cfg.Clusters))
	for i := range cfg.Clusters {
		names[i] = cfg.Clusters[i].Name
	}
	return names
}

// reader returns the reader of the engine, which it finds if none is given.
func (o *inspection) reader(name string, body []byte) (*modelserver.Reader, error) {
	if o.engine == "" && o.custom == (modelserver.Custom{}) {
		engine, err := modelserver.Detect(body)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		o.engine = string(engine)
	}
	if o.engine == "" {
		o.engine = string(modelserver.EngineCustom)
	}
	reader, err := modelserver.NewReader(modelserver.Engine(o.engine), o.custom)
	if err != nil {
		return nil, usagef("--engine: %w", err)
	}
	return reader, nil
}

// body is the metrics of a URL, an endpoint of a configuration, a file, or standard input ("-").
func (o *inspection) body(ctx context.Context, name string, stdin io.Reader) ([]byte, error) {
	isURL := strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://")
	fetching := o.tls != (credentials.Client{}) || o.bearerTokenFile != ""
	switch {
	case o.config == "" && (len(o.running.Admins) > 0 || o.running.TokenFile != ""):
		return nil, usagef("--admin and --token-file need --config and an endpoint: a Steelyard is asked for its work")
	case o.config == "" && o.cluster != "":
		return nil, usagef("--cluster needs --config with the file that the cluster is in")
	case o.config != "" && (isURL || name == "-" || fetching):
		return nil, usagef("--config fetches the metrics of an endpoint with the settings of its cluster: write " +
			"the endpoint's IP:PORT, and no option for TLS or a token")
	case o.config != "":
		return o.ofEndpoint(ctx, name)
	case isURL:
		return scrape.Once(ctx, scrape.Target{
			URL: name, Interval: inspectTimeout, Timeout: inspectTimeout, BodyLimit: inspectLimit,
			TLS: o.tls, BearerTokenFile: o.bearerTokenFile,
		})
	case fetching:
		return nil, usagef("options for TLS or a token need a URL, and %s is not one", name)
	case name == "-":
		return readLimited(stdin, "standard input")
	}
	f, err := files.Open(ctx, name)
	if _, notAddress := discovery.ParseAddress(name); err != nil && notAddress == nil {
		return nil, usagef("%s is neither a file nor a URL: write http://%[1]s/metrics, or --config FILE with the "+
			"configuration that has this endpoint", name)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readLimited(f, name)
}

// ofEndpoint fetches the metrics of an endpoint as serve does. It has an address, or the name of its Pod.
func (o *inspection) ofEndpoint(ctx context.Context, name string) ([]byte, error) {
	cfg, err := config.Load(o.config)
	if err != nil {
		return nil, err
	}
	cluster, err := o.clusterOf(cfg)
	if err != nil {
		return nil, err
	}
	address, notAddress := discovery.ParseAddress(name)
	if notAddress != nil {
		if address, err = o.addressOf(ctx, cluster.Name, name); err != nil {
			return nil, usageError{errors.Join(notAddress, err)}
		}
	}
	o.cluster, o.address = cluster.Name, address
	listed := cluster.Endpoints.Listed()
	if cluster.Endpoints.File != "" {
		if listed, err = discovery.ReadFile(ctx, cluster.Endpoints.File); err != nil {
			return nil, err
		}
	}
	endpoint := discovery.Endpoint{Address: address}
	if p := cluster.Endpoints.InferencePool; p != nil {
		endpoint.MetricsPort = p.MetricsPort
	}
	for _, e := range listed {
		if e.Address == address {
			endpoint = e
		}
	}
	target := daemon.Target(*cluster, endpoint)
	target.Interval, target.Timeout = inspectTimeout, inspectTimeout
	o.engine = cmp.Or(o.engine, string(target.Engine))
	if o.engine == string(modelserver.EngineCustom) && o.custom == (modelserver.Custom{}) {
		o.custom = target.Custom
	}
	return scrape.Once(ctx, target)
}

// addressOf asks the running Steelyard for the endpoint of a Pod.
func (o *inspection) addressOf(ctx context.Context, cluster, pod string) (string, error) {
	c, err := console.NewClient(ctx, o.running)
	if err != nil {
		return "", err
	}
	v, err := c.Cluster(ctx, cluster, 0)
	if err != nil {
		return "", fmt.Errorf("nor can a Steelyard be asked for a Pod of that name: %w", err)
	}
	for i := range v.Endpoints {
		if v.Endpoints[i].Pod == pod {
			return v.Endpoints[i].Address, nil
		}
	}
	return "", fmt.Errorf("nor has an endpoint of %s a Pod of that name: steelyard top %s has them", cluster, cluster)
}

func (o *inspection) clusterOf(cfg *config.Config) (*config.Cluster, error) {
	names := clusterNames(cfg)
	there := strings.Join(names, ", ")
	if cfg.Pools != nil {
		there = strings.Join(append(slices.Clone(names), "NAMESPACE.NAME of an InferencePool"), ", ")
	}
	switch c := cfg.Cluster(o.cluster); {
	case c != nil:
		return c, nil
	case o.cluster == "" && len(cfg.Clusters) == 1 && cfg.Pools == nil:
		return &cfg.Clusters[0], nil
	case o.cluster == "":
		return nil, usagef("--cluster is missing: write one of %s", there)
	}
	if namespace, pool, ok := strings.Cut(o.cluster, "."); ok && cfg.Pools != nil &&
		validation.IsDNS1123Subdomain(o.cluster) == nil {
		own := namespace // Steelyard's own is not known here
		if len(cfg.Pools.Namespaces) > 0 {
			own = ""
		}
		name, err := cfg.ServesPool(namespace, pool, own)
		if err != nil {
			return nil, usagef("--cluster %s: %w", o.cluster, err)
		}
		with := cfg.WithPools([]config.PoolName{{Namespace: namespace, Name: pool}}, own)
		if c := with.Cluster(name); c != nil {
			return c, nil
		}
	}
	return nil, usagef("--cluster %s is not in %s%s: there are %s", o.cluster, o.config,
		spelling.DidYouMean(o.cluster, names), there)
}

func inspectJSON(w io.Writer, reader *modelserver.Reader, name string, body []byte) error {
	report, err := reader.Read(body)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return printJSON(w, report)
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func inspectTable(
	w io.Writer, reader *modelserver.Reader, engine modelserver.Engine, name string, body []byte,
) error {
	fields, readErr := reader.Explain(body)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FIELD\tVALUE\tFROM")
	for _, f := range fields {
		value, from := "unknown", f.Problem
		if f.Value.Known {
			value = strconv.FormatFloat(f.Value.Value, 'g', -1, 64)
			from = fmt.Sprintf("%s of %d: %s", f.Combine, f.Samples, strings.Join(f.Series, ", "))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Field, value, from)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if readErr != nil {
		return fmt.Errorf("%s: %w", name, readErr)
	}
	_, err := fmt.Fprintln(w, verdict(engine, fields))
	return err
}

func readLimited(r io.Reader, name string) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, inspectLimit+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(body) > inspectLimit {
		return nil, fmt.Errorf("reading %s: more than %d MiB", name, inspectLimit>>20)
	}
	return body, nil
}
