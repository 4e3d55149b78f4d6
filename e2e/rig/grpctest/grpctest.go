// Package grpctest runs gRPC servers on loopback for tests, and connects to them.
package grpctest

import (
	"errors"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Serve runs a gRPC server on a free port of loopback until the returned function, or the end of
// the test, stops it, and returns its address.
func Serve(t testing.TB, register func(*grpc.Server), options ...grpc.ServerOption) (address string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(options...)
	register(g)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := g.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("serving gRPC: %v", err)
		}
	}()
	stop = func() {
		g.Stop()
		<-done
	}
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// Connect returns a connection to a server until the test ends: in plaintext, if the options have no credentials.
func Connect(t testing.TB, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	plaintext := grpc.WithTransportCredentials(insecure.NewCredentials())
	conn, err := grpc.NewClient("passthrough:///"+address, append([]grpc.DialOption{plaintext}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
