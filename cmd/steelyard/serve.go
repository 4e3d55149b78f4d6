package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"steelyard/cmd/internal/asynclog"
	"steelyard/cmd/internal/daemon"
	"steelyard/controlplane/config"
	"steelyard/internal/files"
)

func serveCommand() *cobra.Command {
	var path, service string
	var l logging
	c := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "Run the control plane",
		Long: `Run the control plane.

Steelyard reads its configuration again when the file changes, and on SIGHUP. It refuses
a file with an error and keeps the running configuration. SIGTERM and SIGINT end it;
Envoys keep their last weights.`,
		Example: "  steelyard serve -c /etc/steelyard/steelyard.yaml --log-format json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			log, minimum, err := l.start(logFile())
			if err != nil {
				return err
			}
			defer log.Close(logFlush)
			return l.ended(slog.New(log.Handler()), serve(path, service, log, minimum))
		},
	}
	configFlag(c, &path)
	c.Flags().StringVar(&service, "service", "", "Kubernetes Service of the xDS ports of all replicas, by which they "+
		"find each other\nunless the configuration has a section replicas")
	l.flags(c)
	return c
}

func serve(path, service string, out *asynclog.Log, minimum *slog.LevelVar) error {
	log := slog.New(out.Handler())
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)

	var d *daemon.Daemon // made from the first configuration, before the watcher runs
	watcher, cfg, err := config.NewWatcher(path, config.WatchOptions{
		HUP:   hup,
		Apply: func(cfg *config.Config) error { return d.Apply(cfg) },
		Report: func(err error) {
			d.Reloaded(err)
			if err != nil {
				log.Error("configuration refused, the running one stays", "error", err)
			} else {
				log.Info("configuration reloaded", "file", path)
			}
		},
	})
	if err != nil {
		return err
	}
	d, err = daemon.New(cfg, daemon.Options{
		Version: version, Log: log, Service: service, LogLevel: minimum, ConfigStatus: watcher.Status,
		LogStatus: out.Status,
	})
	if err != nil {
		return located(path, err)
	}
	return runWith(untilSignal(os.Interrupt, syscall.SIGTERM), d.Run, watcher.Run)
}

// located is the error of a new daemon, with the line of the configuration that names a file which cannot be used.
func located(path string, err error) error {
	switch {
	case errors.As(err, new(*net.OpError)): // a port, which no line of a file explains
		return err
	case errors.Is(err, files.ErrSilent): // another look would wait again
		return err
	}
	var mistakes *config.Error
	if _, problem := config.Load(path, daemon.CheckSelectors, daemon.CheckFiles); errors.As(problem, &mistakes) {
		return mistakes
	}
	return err
}

// reloadPatience is how long the exit of the process waits for a reload in progress.
const reloadPatience = 100 * time.Millisecond

// runWith runs a daemon and the watcher of its configuration. A daemon ends in bounded time whatever is stuck; a reload
// that waits for what is stuck ends with the process.
func runWith(ctx context.Context, daemon, watch func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan error, 1)
	go func() {
		defer cancel() // it does not continue with a configuration that nothing watches
		watched <- watch(ctx)
	}()
	err := daemon(ctx)
	cancel()
	select {
	case failed := <-watched:
		return cmp.Or(err, failed)
	case <-time.After(reloadPatience):
		return err
	}
}
