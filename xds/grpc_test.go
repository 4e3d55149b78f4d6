package xds_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"

	"steelyard/e2e/rig/grpctest"
	"steelyard/e2e/rig/xdstest"
	"steelyard/weighting"
	"steelyard/xds"
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
	address, _ := grpctest.Serve(t, b.server.Register, options...)
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
	b.address, b.stop = grpctest.Serve(t, b.server.Register, xds.GRPCOptionsIdle(nil, idle)...)
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

// TestTheHeadersOfAStreamAreLimited: HPACK sends a header again with a single byte, so 3,500 of 4 KB cost a peer 8 KB
// and would cost the server 14 MB for as long as the stream is open.
func TestTheHeadersOfAStreamAreLimited(t *testing.T) {
	b := newTestServer(t)
	conn, err := net.Dial("tcp", b.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	client := http2.NewFramer(conn, conn)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := client.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i, tt := range []struct {
		what    string
		headers int // of 3,900 bytes each
		refused bool
	}{
		{"a few KB, such as a token", 2, false},
		{"13 MiB", 3500, true},
		{"a few KB after that", 2, false},
	} {
		block.Reset()
		writeHeaders(t, encoder, tt.headers)
		id := uint32(2*i + 1)
		if err := client.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(),
			EndHeaders: true, EndStream: true}); err != nil {
			t.Fatal(err)
		}
		switch answer := answerOf(t, client, id).(type) {
		case *http2.RSTStreamFrame:
			if !tt.refused {
				t.Errorf("%s: the stream is reset with %v", tt.what, answer.ErrCode)
			}
		case *http2.HeadersFrame:
			if tt.refused {
				t.Errorf("%s: the server opened the stream", tt.what)
			}
		}
	}
}

func writeHeaders(t *testing.T, encoder *hpack.Encoder, large int) {
	t.Helper()
	fields := []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: streamMethods[0]},
		{Name: ":authority", Value: "steelyard"}, {Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}
	for range large {
		fields = append(fields, hpack.HeaderField{Name: "x-bin", Value: strings.Repeat("A", 3900)})
	}
	for _, f := range fields {
		if err := encoder.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
}

// answerOf returns the first HEADERS or RST_STREAM frame of the stream.
func answerOf(t *testing.T, client *http2.Framer, id uint32) http2.Frame {
	t.Helper()
	for {
		frame, err := client.ReadFrame()
		if err != nil {
			t.Fatalf("stream %d: %v", id, err)
		}
		if frame.Header().StreamID != id {
			continue
		}
		switch frame.(type) {
		case *http2.HeadersFrame, *http2.RSTStreamFrame:
			return frame
		}
	}
}
