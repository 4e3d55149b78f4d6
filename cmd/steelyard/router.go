package main

import (
	"log/slog"
	"net/netip"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"steelyard/cmd/internal/router"
)

func routerCommand() *cobra.Command {
	var host, envoy string
	var l logging
	c := &cobra.Command{
		Use:   "router",
		Short: "Queue requests and send each to the backend with the least latency (custom router contract)",
		Long: `Queue requests, and send each to the backend with the lowest mean latency under a
threshold. This is a drop-in for the container contract of custom routers, and needs no
other Steelyard. Envoy runs as a child, with the module libsteelyard.so that is next to
this program or in the folder that ENVOY_DYNAMIC_MODULES_SEARCH_PATH names.

The platform sets the backends with POST /_custom_router/set-backends. Health and
metrics are at /_custom_router/health and /_custom_router/metrics.

Environment:
  CUSTOM_ROUTER_PORT                3000
  CUSTOM_ROUTER_LATENCY_THRESHOLD   3.0 s: a backend at or above it takes nothing until it is idle
  CUSTOM_ROUTER_EWMA_ALPHA          0.3
  CUSTOM_ROUTER_QUEUE_MAX_SIZE      1000 requests; beyond it the oldest is answered 503
  CUSTOM_ROUTER_QUEUE_TIMEOUT       1200 s, then 503
  CUSTOM_ROUTER_STATE_LOG_INTERVAL  30 s; 0: none`,
		Example: `  steelyard router --host 0.0.0.0
  curl -d '{"backends": ["http://10.0.0.1:80", "10.0.0.2:80"]}' http://127.0.0.1:3000/_custom_router/set-backends`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if ip, err := netip.ParseAddr(host); err != nil || ip.Zone() != "" {
				return usagef("--host %q: write an IP address of this machine, such as 127.0.0.1, or 0.0.0.0 for all",
					host)
			}
			return l.during(func(log *slog.Logger) error {
				o, err := router.FromEnvironment(os.Getenv)
				if err != nil {
					return err
				}
				o.Host, o.Envoy, o.EnvoyLog, o.Log = host, envoy, os.Stderr, log
				o.JSON = l.format == logJSON
				return router.Run(untilSignal(os.Interrupt, syscall.SIGTERM), o)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&host, "host", "127.0.0.1", "IP address that clients connect to; a container needs 0.0.0.0")
	f.StringVar(&envoy, "envoy", "envoy", "the Envoy to run, version 1.40")
	l.flags(c)
	return c
}
