package demo

import (
	"fmt"
	"net"
	"strings"

	"steelyard/e2e/rig/modelsim"
)

// clusterName is the name of the cluster in Steelyard's configuration.
const clusterName = "demo"

// settings are what the configuration of a demo has besides its endpoints.
type settings struct {
	admin   string // more keys of the admin section, in flow style
	redis   string // its address; none when empty
	cluster string // lines of the cluster, with four spaces before each
}

// configOf is the text of Steelyard's configuration.
func configOf(servers modelsim.Servers, s settings) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "xds:   {listen: \"127.0.0.1:0\"}\nadmin: {listen: \"127.0.0.1:0\"%s}\n", s.admin)
	if s.redis != "" {
		fmt.Fprintf(&b, "redis: {addresses: [%q]}\n", s.redis)
	}
	fmt.Fprintf(&b, `clusters:
  - name: %s
    engine: vllm
    scrape: {interval: 250ms, timeout: 200ms}
%s    endpoints:
      static:
`, clusterName, s.cluster)
	for _, server := range servers {
		fmt.Fprintf(&b, "        - {address: %q%s}\n", server.Address(), tritonKeys(server))
	}
	return []byte(b.String())
}

// tritonKeys is what differs from the cluster's engine.
func tritonKeys(s *modelsim.Server) string {
	if s.Options().Engine != modelsim.Triton {
		return ""
	}
	_, port, _ := net.SplitHostPort(s.MetricsAddress())
	return ", engine: triton, metrics_port: " + port
}
