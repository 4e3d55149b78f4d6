package xds_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"

	"steelyard/weighting"
	"steelyard/xds"
	"steelyard/xds/xdstest"
)

// bandwidthPing is the HTTP/2 frame by which gRPC measures the bandwidth: 8 bytes, PING, no
// ACK, stream 0, and a content of its own.
var bandwidthPing = []byte{0, 0, 8, 6, 0, 0, 0, 0, 0, 2, 4, 16, 16, 9, 14, 7, 7}

// TestNoPingsForTheBandwidth: gRPC would answer data with pings, which wake every Envoy once more for each entry of its
// access log.
func TestNoPingsForTheBandwidth(t *testing.T) {
	if sent := sentTo(t); !bytes.Contains(sent, bandwidthPing) {
		t.Errorf("gRPC's default settings cause no such ping: the test tests nothing")
	}
	if sent := sentTo(t, xds.GRPCOptions(nil)...); bytes.Contains(sent, bandwidthPing) {
		t.Error("the server pings to measure the bandwidth")
	}
}

// sentTo returns what a server with these options sends to an Envoy that subscribes, is answered and acknowledges.
func sentTo(t *testing.T, options ...grpc.ServerOption) []byte {
	b := &testServer{t: t, clock: &clock{}, seen: &observer{}}
	b.server = xds.NewServer(xds.Options{Log: quiet()})
	address, _ := xdstest.Serve(t, b.server.Register, options...)
	tap := tapped(t, address)
	b.address = tap.address
	b.publish("llama", weighting.Decision{Endpoints: []weighting.EndpointDecision{{Address: "10.0.0.1:80", Share: 1}}})
	c := b.dial(xdstest.Config{Clusters: []string{"llama"}})
	eventually(t, "the assignment is acknowledged", func() bool {
		clients := b.server.Clients()
		return len(clients) == 1 && len(clients[0].Subscriptions) == 1 && clients[0].Subscriptions[0].InSync
	})
	c.Close()
	return tap.stop()
}

// A tap forwards one connection, and keeps what the server sends.
type tap struct {
	address string
	stop    func() []byte // ends it and returns what was sent
}

func tapped(t *testing.T, to string) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var sent bytes.Buffer
	var running sync.WaitGroup
	running.Go(func() {
		client, err := l.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		server, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		running.Go(func() { _, _ = io.Copy(server, client); server.Close() })
		_, _ = io.Copy(io.MultiWriter(client, &sent), server)
	})
	stop := sync.OnceValue(func() []byte {
		l.Close()
		running.Wait()
		return sent.Bytes()
	})
	t.Cleanup(func() { stop() })
	return &tap{address: l.Addr().String(), stop: stop}
}

// TestAnIdleConnectionIsClosedAndOneWithAStreamIsNot: an Envoy always has a stream.
func TestAnIdleConnectionIsClosedAndOneWithAStreamIsNot(t *testing.T) {
	const idle = 20 * time.Millisecond
	b := &testServer{t: t, clock: &clock{}, seen: &observer{}}
	b.server = xds.NewServer(xds.Options{Log: quiet()})
	b.address, b.stop = xdstest.Serve(t, b.server.Register, xds.GRPCOptionsIdle(nil, idle)...)
	envoy := b.dial(xdstest.Config{Clusters: []string{"llama"}})
	conn, err := net.Dial("tcp", b.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	start := time.Now()
	client := http2.NewFramer(conn, conn)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := client.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	goAway := false
	for err = nil; err == nil; {
		var frame http2.Frame
		frame, err = client.ReadFrame()
		switch f := frame.(type) {
		case *http2.GoAwayFrame:
			goAway = true
		case *http2.PingFrame:
			if err := client.WritePing(true, f.Data); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Fatal(err)
			}
		}
	}
	if !goAway || !errors.Is(err, io.EOF) || time.Since(start) < idle {
		t.Errorf("after %v: %v, GOAWAY %v; want GOAWAY and the end of the connection after %v",
			time.Since(start), err, goAway, idle)
	}
	b.publish("llama", equal(1))
	b.received(envoy, "llama", 1)
	if n := len(b.server.Clients()); n != 1 {
		t.Errorf("%d clients, want the Envoy that connected first", n)
	}
}
