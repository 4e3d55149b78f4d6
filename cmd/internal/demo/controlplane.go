package demo

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"
)

// Steelyard is what the demos show. The package does not depend on how it is wired.
type Steelyard struct {
	ControlPlane ControlPlane
	Router       Router
}

// A Router runs `steelyard router` with the environment of getenv until ctx is done. Its log goes to log.
type Router func(ctx context.Context, getenv func(string) string, log io.Writer) error

// A ControlPlane makes Steelyard from the text of its configuration file. A demo runs what it returns at once.
type ControlPlane func(ctx context.Context, configYAML []byte) (Handle, error)

// A Handle is a control plane whose listeners are bound.
type Handle interface {
	XDSAddress() string   // where Envoys connect, host:port
	AdminAddress() string // where the dashboard is, host:port
	// Run serves until ctx is done, and returns when everything has stopped.
	Run(ctx context.Context) error
}

// pageOf is the address of a demo's cluster on the dashboard, with the shortest range: a demo is over before the others
// show more than a line at their end.
func pageOf(control Handle) string {
	return "http://" + control.AdminAddress() + "/#/c/" + clusterName + "?range=5m"
}

// during runs Steelyard, and other parts, for as long as play takes: they outlive the Envoys and, with them, the
// caller's context. A part that ends on its own ends play.
func (start ControlPlane) during(ctx context.Context, configYAML []byte, play func(context.Context, Handle) error,
	parts ...func(context.Context) error) error {
	control, err := start(ctx, configYAML)
	if err != nil {
		return fmt.Errorf("starting Steelyard: %w", err)
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, failed := errgroup.WithContext(background)
	for _, run := range append(parts, control.Run) {
		group.Go(func() error { return run(failed) })
	}
	playing, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(failed, func() { end(errors.New("a part of the demo ended early")) })()
	err = play(playing, control)
	stop()
	return errors.Join(err, group.Wait())
}
