package router

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"text/template"
	"time"

	alsv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
)

const (
	loopback   = "127.0.0.1:0"
	apiTimeout = 10 * time.Second
	// tick is how often requests that waited for too long are looked for.
	tick = 100 * time.Millisecond
	// grace is the time that Envoy has to end; requests in progress end with it.
	grace = 5 * time.Second
	// maxStreams is the number of requests at a time: one stream each.
	maxStreams = math.MaxUint32
)

//go:embed envoy.yaml.tmpl
var envoyConfig string

// A Router is a queue with its Envoy.
type Router struct {
	extprocv3.UnimplementedExternalProcessorServer
	alsv3.UnimplementedAccessLogServiceServer

	options  Options
	queue    *queue
	names    names
	api, rpc net.Listener
}

// New binds the listeners of this process, on loopback. A caller that does not call Run calls Close.
func New(o Options) (r *Router, err error) {
	r = &Router{options: o, queue: newQueue(o.Queue)}
	if r.api, err = net.Listen("tcp", loopback); err != nil {
		return nil, fmt.Errorf("listening for Envoy: %w", err)
	}
	if r.rpc, err = net.Listen("tcp", loopback); err != nil {
		r.api.Close()
		return nil, fmt.Errorf("listening for Envoy: %w", err)
	}
	return r, nil
}

// Close frees what New took.
func (r *Router) Close() {
	r.api.Close()
	r.rpc.Close()
}

// Run serves until ctx is done, or until Envoy ends, which is an error.
func (r *Router) Run(ctx context.Context) error {
	defer r.Close()
	api := &http.Server{Handler: r.handler(), ReadHeaderTimeout: apiTimeout, ReadTimeout: apiTimeout,
		WriteTimeout: apiTimeout, IdleTimeout: apiTimeout, MaxHeaderBytes: 16 << 10}
	rpc := grpc.NewServer(grpc.MaxConcurrentStreams(maxStreams))
	extprocv3.RegisterExternalProcessorServer(rpc, r)
	alsv3.RegisterAccessLogServiceServer(rpc, r)

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return unless(api.Serve(r.api), http.ErrServerClosed) })
	group.Go(func() error { return unless(rpc.Serve(r.rpc), grpc.ErrServerStopped) })
	group.Go(func() error { return r.tick(ctx) })
	group.Go(func() error { return r.logState(ctx) })
	group.Go(func() error {
		defer func() {
			rpc.Stop()
			_ = api.Close() // nothing is left to serve
		}()
		return r.runEnvoy(ctx)
	})
	return group.Wait()
}

func unless(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// runEnvoy runs Envoy until ctx is done.
func (r *Router) runEnvoy(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "steelyard-router-")
	if err != nil {
		return fmt.Errorf("a folder for Envoy's configuration: %w", err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "envoy.yaml")
	config, err := r.envoyConfig()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return fmt.Errorf("writing Envoy's configuration: %w", err)
	}
	cmd := exec.CommandContext(ctx, r.options.Envoy, "--config-path", path, "--use-dynamic-base-id",
		"--log-level", "warning", "--concurrency", "2")
	cmd.Stderr, cmd.WaitDelay = os.Stderr, grace
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	r.options.Log.Info("serving", "clients", r.options.address(), "envoy", r.options.Envoy,
		"threshold", r.options.Queue.Threshold, "queue_max_size", r.options.Queue.QueueMax,
		"queue_timeout", r.options.Queue.QueueTimeout)
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("running Envoy (%s): %w", r.options.Envoy, err)
	}
	return fmt.Errorf("running Envoy (%s): it ended", r.options.Envoy)
}

func (r *Router) envoyConfig() ([]byte, error) {
	t, err := template.New("").Option("missingkey=error").Parse(envoyConfig)
	if err != nil {
		return nil, fmt.Errorf("reading the template of Envoy's configuration: %w", err)
	}
	port := func(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
	var out bytes.Buffer
	err = t.Execute(&out, map[string]any{"Host": r.options.Host, "Port": r.options.Port, "GRPC": port(r.rpc),
		"API": port(r.api)})
	return out.Bytes(), err
}

// tick refuses requests that waited for too long, until ctx is done.
func (r *Router) tick(ctx context.Context) error {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-t.C:
			r.queue.tick(now)
		}
	}
}

// logState logs the state of the queue and of each backend at intervals, until ctx is done.
func (r *Router) logState(ctx context.Context) error {
	if r.options.LogInterval <= 0 {
		return nil
	}
	t := time.NewTicker(r.options.LogInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		s := r.queue.state()
		r.options.Log.Info("queue", "depth", s.depth, "dispatched", s.dispatched, "evicted", s.evicted,
			"timed_out", s.timedOut)
		for _, b := range s.backends {
			r.options.Log.Info("backend", "addr", b.Address, "in_flight", b.InFlight, "ewma_latency_seconds", b.Latency,
				"answers", b.Answers, "failures_in_a_row", b.Failures)
		}
	}
}
