package xdstest

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc"
)

// Serve runs a gRPC server on a free port of loopback until the returned function, or the end of
// the test, stops it, and returns its address.
func Serve(t testing.TB, register func(*grpc.Server), options ...grpc.ServerOption) (address string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(fmt.Errorf("listening on loopback: %w", err))
	}
	g := grpc.NewServer(options...)
	register(g)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := g.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("serving xDS: %v", err)
		}
	}()
	stop = func() {
		g.Stop()
		<-done
	}
	t.Cleanup(stop)
	return l.Addr().String(), stop
}
