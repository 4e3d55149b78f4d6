package queueing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"steelyard/cmd/internal/demo"
	"steelyard/e2e/rig/modelsim"
	envoybootstrap "steelyard/envoy-bootstrap"
)

const (
	serverCount = 4
	envoyCount  = 2
	service     = 250 * time.Millisecond // of a request
)

// DefaultDuration is how long the load lasts.
const DefaultDuration = 20 * time.Second

// classes are the names in the configuration.
var classes = []string{"interactive", "batch"}

// Run plays the demo, and returns when everything that it started has stopped.
func Run(ctx context.Context, out io.Writer, d time.Duration, start demo.ControlPlane) (err error) {
	servers, err := modelsim.StartServers(serverCount, func(int) modelsim.Options { return modelsim.Options{Slots: 1} })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	return start.During(ctx, configOf(servers), func(ctx context.Context, control demo.Handle) error {
		return play(ctx, out, d, control)
	})
}

func configOf(servers modelsim.Servers) []byte {
	text := fmt.Sprintf(`xds:   {listen: "127.0.0.1:0"}
admin: {listen: "127.0.0.1:0"}
clusters:
  - name: %s
    engine: vllm
    capacity: 1
    queue:
      max_in_flight: 1
      classes:
        - {name: %s, weight: 3, max_waiting: 20, max_wait: 10s}
        - {name: %s, weight: 1, max_waiting: 20, max_wait: 10s}
    endpoints:
      static:
`, demo.ClusterName, classes[0], classes[1])
	for _, address := range servers.Addresses() {
		text += fmt.Sprintf("        - {address: %q}\n", address)
	}
	return []byte(text)
}

// play starts the Envoys, sends the load and shows what came of it.
func play(ctx context.Context, out io.Writer, d time.Duration, control demo.Handle) (err error) {
	envoys, err := demo.StartEnvoys(ctx, envoyCount, "demo-envoy",
		demo.Bootstrap(control.XDSAddress(), envoybootstrap.Options{Module: true}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, envoys.Close()) }()
	urls, err := envoys.URLs(ctx, demo.WeightedListener, "/v1/completions")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, `Steelyard demo: %d Envoys with the module, %d servers that execute one request of %v at a time
Page:  http://%s/#/c/%s
Load:  the classes %s (weight 3) and %s (weight 1) each send as much as all servers can do

`, envoyCount, serverCount, service, control.AdminAddress(), demo.ClusterName, classes[0], classes[1])
	return newLoad(out, urls).run(ctx, d)
}
