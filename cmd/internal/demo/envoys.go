package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"steelyard/e2e/rig/proc"
	envoybootstrap "steelyard/envoy-bootstrap"
)

// startTimeout bounds the start of an Envoy, with the arrival of its weights.
const startTimeout = 30 * time.Second

// envoys are running Envoys and the folder with their files.
type envoys struct {
	dir, name string
	bootstrap func(nodeID string) ([]byte, error)
	all       []*proc.Envoy
}

// startEnvoys starts n Envoys, whose node ids are the name and a number. The caller must close them.
func startEnvoys(ctx context.Context, n int, name string, bootstrap func(nodeID string) ([]byte, error)) (
	*envoys, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "steelyard-demo-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the Envoys: %w", err)
	}
	e := &envoys{dir: dir, name: name, bootstrap: bootstrap, all: make([]*proc.Envoy, n)}
	group, ctx := errgroup.WithContext(ctx)
	for i := range e.all {
		group.Go(func() (err error) {
			e.all[i], err = e.start(ctx, i)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

// start starts an Envoy with the name of the one at i.
func (e *envoys) start(ctx context.Context, i int) (*proc.Envoy, error) {
	name := fmt.Sprintf("%s-%d", e.name, i+1)
	text, err := e.bootstrap(name)
	if err != nil {
		return nil, fmt.Errorf("making the bootstrap of %s: %w", name, err)
	}
	return proc.StartEnvoy(ctx, proc.EnvoyConfig{Bootstrap: text, Dir: e.dir, Name: name})
}

// bootstrap is what `steelyard bootstrap` prints for an Envoy of a demo, with these options.
func bootstrap(xds string, o envoybootstrap.Options) func(nodeID string) ([]byte, error) {
	o.Cluster, o.XDS, o.Listen, o.Admin = clusterName, xds, "127.0.0.1:0", "127.0.0.1:0"
	return func(nodeID string) ([]byte, error) {
		own := o
		own.NodeID = nodeID
		return envoybootstrap.Render(own)
	}
}

// close stops all Envoys at once and removes their files.
func (e *envoys) close() error {
	var group errgroup.Group
	for _, envoy := range e.all {
		if envoy != nil {
			group.Go(envoy.Stop)
		}
	}
	return errors.Join(group.Wait(), os.RemoveAll(e.dir))
}

// urls are where a listener of each Envoy takes requests for a path.
func (e *envoys) urls(ctx context.Context, listener, path string) ([]string, error) {
	urls := make([]string, len(e.all))
	for i, envoy := range e.all {
		address, err := envoy.Listener(ctx, listener)
		if err != nil {
			return nil, err
		}
		urls[i] = "http://" + address + path
	}
	return urls, nil
}
