package queueing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"steelyard/cmd/internal/demo"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	envoybootstrap "steelyard/envoy-bootstrap"
)

const (
	clusterName = "demo"
	serverCount = 4
	envoyCount  = 2
	service     = 250 * time.Millisecond // of a request

	// startTimeout bounds the start of the Envoys.
	startTimeout = 30 * time.Second
)

// DefaultDuration is how long the load lasts.
const DefaultDuration = 20 * time.Second

// classes are those of the configuration.
var classes = []string{"interactive", "batch"}

// Options are the choices of a demo.
type Options struct {
	Duration time.Duration // of the load
	Out      io.Writer
	// ControlPlane makes Steelyard from the text of its configuration file.
	ControlPlane func(ctx context.Context, configYAML []byte) (demo.Handle, error)
}

// Run plays the demo, and returns when everything that it started has stopped.
func Run(ctx context.Context, o Options) (err error) {
	servers, err := startServers()
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.Close())
		}
	}()
	if err != nil {
		return err
	}
	control, err := o.ControlPlane(ctx, configOf(servers))
	if err != nil {
		return fmt.Errorf("starting Steelyard: %w", err)
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, failed := errgroup.WithContext(background)
	group.Go(func() error { return control.Run(failed) })
	playing, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(failed, func() { end(errors.New("Steelyard ended early")) })()
	err = play(playing, o, control)
	stop()
	return errors.Join(err, group.Wait())
}

func startServers() (all []*modelsim.Server, err error) {
	for range serverCount {
		s, err := modelsim.Start(modelsim.Options{Slots: 1})
		if err != nil {
			return all, err
		}
		all = append(all, s)
	}
	return all, nil
}

func configOf(servers []*modelsim.Server) []byte {
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
`, clusterName, classes[0], classes[1])
	for _, s := range servers {
		text += fmt.Sprintf("        - {address: %q}\n", s.Address())
	}
	return []byte(text)
}

// play starts the Envoys, sends the load and shows what came of it.
func play(ctx context.Context, o Options, control demo.Handle) (err error) {
	dir, err := os.MkdirTemp("", "steelyard-demo-")
	if err != nil {
		return fmt.Errorf("making a folder for the Envoys: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	envoys, urls, err := startEnvoys(ctx, dir, control)
	defer func() {
		for _, e := range envoys {
			err = errors.Join(err, e.Stop())
		}
	}()
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out, `Steelyard demo: %d Envoys with the module, %d servers that execute one request of %v at a time
Page:  http://%s/#/c/%s
Load:  the classes %s (weight 3) and %s (weight 1) each send as much as all servers can do

`, envoyCount, serverCount, service, control.AdminAddress(), clusterName, classes[0], classes[1])
	return newLoad(o.Out, urls).run(ctx, o.Duration)
}

// startEnvoys starts the Envoys, and returns what was started with an error too.
func startEnvoys(ctx context.Context, dir string, control demo.Handle) (all []*proc.Envoy, urls []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for i := range envoyCount {
		name := fmt.Sprintf("demo-envoy-%d", i+1)
		text, err := envoybootstrap.Render(envoybootstrap.Options{Cluster: clusterName, XDS: control.XDSAddress(),
			NodeID: name, Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Module: true})
		if err != nil {
			return all, nil, fmt.Errorf("making the bootstrap of %s: %w", name, err)
		}
		e, err := proc.StartEnvoy(ctx, proc.EnvoyConfig{Bootstrap: text, Dir: dir, Name: name})
		if err != nil {
			return all, nil, err
		}
		all = append(all, e)
		address, err := e.Listener(ctx, "ingress")
		if err != nil {
			return all, nil, err
		}
		urls = append(urls, "http://"+address+"/v1/completions")
	}
	return all, urls, nil
}
