package xds

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

const (
	// maxRequestBytes bounds a request: Envoy's Node alone is 61 KB, and a
	// subscription to ten thousand clusters is some hundred more.
	maxRequestBytes = 4 << 20
	// maxStreamsPerConnection is far above what an Envoy with one EDS stream
	// for each of its clusters opens.
	maxStreamsPerConnection = 4096

	// Fixed windows, above HTTP/2's 64 KiB, keep gRPC from measuring the bandwidth: for
	// that it sends a ping after each piece of data, which wakes the Envoy once more
	// for each entry of its access log (measured at 100 requests a second: 1.1 % of a core
	// with the pings, 0.8 % without). A quarter of a megabyte is a thousand
	// entries or four load reports, and what a stream may hold that is not read.
	streamWindow     = 256 << 10
	connectionWindow = 1 << 20

	pingInterval     = 10 * time.Second // of silence, before the server asks whether the peer is there
	pingTimeout      = 5 * time.Second  // after which a half-open connection is closed
	pingMinimum      = time.Second      // Envoys may ping this often; the bootstrap has them do so every 5 s
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 5 * time.Minute // without a stream, after which a connection is closed; an Envoy that has any is not idle
)

// GRPCOptions are the settings of a gRPC server that Envoys connect to: pings that
// find half-open connections in both directions, bounds on what a peer can ask for, and
// windows of a fixed size. The credentials are nil for plain text.
func GRPCOptions(c credentials.TransportCredentials) []grpc.ServerOption {
	return grpcOptions(c, idleTimeout)
}

func grpcOptions(c credentials.TransportCredentials, idle time.Duration) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingInterval, Timeout: pingTimeout, MaxConnectionIdle: idle}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingMinimum, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(maxStreamsPerConnection),
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connectionWindow),
		grpc.ConnectionTimeout(handshakeTimeout),
	}
	if c != nil {
		options = append(options, grpc.Creds(c))
	}
	return options
}
