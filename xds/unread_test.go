package xds_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net/http"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"steelyard/e2e/rig/grpctest"
	"steelyard/e2e/rig/xdstest"
	"steelyard/xds/port"
)

// request returns what an Envoy sends first; padding makes it larger.
func request(padding int) *discoveryv3.DiscoveryRequest {
	return &discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "edge", Cluster: string(make([]byte, padding))},
		TypeUrl: resource.EndpointType, ResourceNames: []string{"llama"}}
}

// sendHalfMessages opens streams on a single connection and sends 1,000 KB of a message of 1 MiB on each, until the
// server closes the connection or the test ends.
func sendHalfMessages(t *testing.T, address string, streams int) {
	t.Helper()
	body, err := proto.Marshal(request(0))
	if err != nil {
		t.Fatal(err)
	}
	head := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	head = append(head, binary.BigEndian.AppendUint32([]byte{0}, 1<<20)...)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for range streams {
		r, w := io.Pipe()
		call, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+streamMethods[0], r)
		if err != nil {
			t.Fatal(err)
		}
		call.Header.Set("content-type", "application/grpc")
		call.Header.Set("te", "trailers")
		go func() {
			answer, err := transport.RoundTrip(call)
			if err != nil {
				r.CloseWithError(err)
				return
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			r.Close()
		}()
		go func() {
			if _, err := w.Write(head); err == nil {
				_, _ = w.Write(make([]byte, 1000<<10))
			}
		}()
	}
}

// TestHalfMessagesAreLimited: gRPC keeps what has arrived of a message until the rest has, however long that takes.
func TestHalfMessagesAreLimited(t *testing.T) {
	const limit = 8 << 20
	b, l := onPort(t, port.Options{Connections: 100, PerAddress: 100, Streams: 1000, Unread: limit}, nil)
	b.publish("llama", equal(1))
	envoy := b.dial(xdstest.Config{Clusters: []string{"llama"}})
	b.received(envoy, "llama", 1)
	for range 3 {
		sendHalfMessages(t, b.address, 5) // together 15 of 8 MiB
	}
	eventually(t, "the connection that holds the most is closed",
		func() bool { return l.Stats().UnreadBytes.Displaced > 0 })
	if s := l.Stats().UnreadBytes; s.Used > limit || s.Limit != limit || s.LastDisplaced.IsZero() {
		t.Errorf("%+v, want at most %d bytes", s, limit)
	}
	b.publish("llama", equal(2))
	b.received(envoy, "llama", 2)
}

// TestTheCountOfUnreadBytesDoesNotDrift: otherwise it would close connections of Envoys after some weeks.
func TestTheCountOfUnreadBytesDoesNotDrift(t *testing.T) {
	own := selfSigned()
	for name, c := range map[string]struct {
		server, client credentials.TransportCredentials
	}{
		"plain text": {nil, insecure.NewCredentials()},
		"TLS": {
			credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{own.TLS()}}),
			credentials.NewTLS(&tls.Config{RootCAs: own.Pool(), ServerName: "steelyard"}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, l := onPort(t, port.Options{Connections: 10, PerAddress: 10, Streams: 3000}, c.server)
			b.publish("llama", equal(1))
			conn := grpctest.Connect(t, b.address, grpc.WithTransportCredentials(c.client))
			stays := b.open(conn)
			for i := range 50 {
				if err := stays.Send(request(i * 100)); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 200 {
				openAndEnd(t, conn, i)
			}
			eventually(t, "one stream is open", func() bool { return l.Stats().Streams.Used == 1 })
			eventually(t, "nothing is unread", func() bool { return l.Stats().UnreadBytes.Used == 0 })
			if s := l.Stats(); s.Connections.Used != 1 || s.UnreadBytes.Displaced != 0 {
				t.Errorf("%+v, want the connection still open", s)
			}
		})
	}
}

// openAndEnd opens a stream, sends some requests and ends the stream, in one of four ways.
func openAndEnd(t *testing.T, conn *grpc.ClientConn, i int) {
	t.Helper()
	const refused, resetAfterAnAnswer, closed = 1, 2, 3 // otherwise it is reset at once
	way := i % 4
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, streamMethods[0])
	if err != nil {
		t.Fatal(err)
	}
	r := request(i * 100)
	if way == refused {
		r.Node = nil
	}
	for range 3 {
		if stream.SendMsg(r) != nil {
			break // the server has ended it
		}
	}
	switch way {
	case resetAfterAnAnswer:
		if err := stream.RecvMsg(&discoveryv3.DiscoveryResponse{}); err != nil {
			t.Fatal(err)
		}
	case closed:
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		for err == nil {
			err = stream.RecvMsg(&discoveryv3.DiscoveryResponse{})
		}
	}
}
