package admin

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"testing"
	"time"

	"go.uber.org/goleak"

	"steelyard/controlplane/admin/history"
	"steelyard/internal/api"
)

// With STEELYARD_ADMIN_PREVIEW=127.0.0.1:PORT the test binary serves the page
// over invented clusters until it is interrupted, to be looked at in a browser:
//
//	STEELYARD_ADMIN_PREVIEW=127.0.0.1:19999 go test ./controlplane/admin
func TestMain(m *testing.M) {
	if address := os.Getenv("STEELYARD_ADMIN_PREVIEW"); address != "" {
		if err := preview(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func preview(address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	start := time.Now()
	clusters := func(now time.Time) []api.Cluster { return []api.Cluster{large(now, 1000), llama(now), mixtral()} }
	h := recent(start, clusters(start)...)
	r := history.NewRecorder(history.RecorderOptions{Source: live{clusters}, History: h})
	go func() { _ = r.Run(ctx) }()
	return Serve(ctx, listener, New(Options{Source: live{clusters}, Recorder: r, Version: "0.1.0-preview"}))
}

// live has the same state at every time, with current times.
type live struct {
	clusters func(time.Time) []api.Cluster
}

func (l live) Clusters() []api.Cluster { return l.clusters(time.Now()) }
func (l live) Clients() []api.Client   { return envoys(time.Now()) }
func (l live) Status() api.Status      { return typical(time.Now()).status }

func (l live) Elsewhere() []api.OtherEnvoy { return others(time.Now()) }

func (l live) Matrix(name string) (api.Matrix, bool) {
	return fixed{clusters: l.Clusters()}.Matrix(name)
}

func (l live) Shadow(name string) (api.Shadow, bool) {
	return fixed{clusters: l.Clusters()}.Shadow(name)
}

func (l live) Cluster(name string) (api.Cluster, bool) {
	return fixed{clusters: l.Clusters()}.Cluster(name)
}
