package faults

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// Methods of the xDS port.
const (
	streamEndpoints  = "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints"
	deltaEndpoints   = "/envoy.service.endpoint.v3.EndpointDiscoveryService/DeltaEndpoints"
	fetchEndpoints   = "/envoy.service.endpoint.v3.EndpointDiscoveryService/FetchEndpoints"
	streamAggregated = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	streamRuntime    = "/envoy.service.runtime.v3.RuntimeDiscoveryService/StreamRuntime"
	fetchRuntime     = "/envoy.service.runtime.v3.RuntimeDiscoveryService/FetchRuntime"
	streamAccessLogs = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs"
	streamLoadStats  = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
)

// connect opens a TCP connection from an address of this machine, and sends nothing.
func connect(t testing.TB, from, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// loopback is the address of all other clients in these tests.
const loopback = "127.0.0.1"

// A stranger is a peer of the xDS port that behaves like no Envoy. It reads only when the test reads.
type stranger struct {
	net.Conn
	framer  *http2.Framer
	streams uint32
}

// intrude opens an HTTP/2 connection without a stream.
func intrude(t testing.TB, from, to string) *stranger {
	t.Helper()
	s := &stranger{Conn: connect(t, from, to)}
	s.framer = http2.NewFramer(s.Conn, s.Conn)
	_, _ = io.WriteString(s.Conn, http2.ClientPreface) // fails if the server has closed it, which the test looks at
	_ = s.framer.WriteSettings()
	return s
}

// call opens a stream with the messages on it, and leaves it open.
func (s *stranger) call(method string, messages ...proto.Message) error {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "steelyard"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			return err
		}
	}
	id := 2*s.streams + 1
	s.streams++
	if err := s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(),
		EndHeaders: true}); err != nil {
		return err
	}
	for _, m := range messages {
		body, err := proto.Marshal(m)
		if err != nil {
			return err
		}
		frame := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
		for ; len(frame) > 0; frame = frame[min(len(frame), 16<<10):] {
			if err := s.framer.WriteData(id, false, frame[:min(len(frame), 16<<10)]); err != nil {
				return err
			}
		}
	}
	return nil
}

// isOpen reads from the connection, and reports whether the server still has it open.
func isOpen(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := io.Copy(io.Discard, conn)
	return errors.Is(err, os.ErrDeadlineExceeded)
}
