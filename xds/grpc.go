package xds

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

const (
	// maxRequestBytes limits a message, and with it what a stream can hold of one that has not arrived completely.
	// The largest useful request subscribes to all names that Steelyard can serve: 1,000 clusters, each under three
	// names of at most 256 + 9 bytes, which is 0.8 MB, and 61 KB of Node. A load report of this size can have 20,000
	// endpoints.
	maxRequestBytes = 1 << 20
	// maxStreamsPerConnection is above what an Envoy with an EDS stream for each of 1,000 clusters and each of their
	// fallbacks opens.
	maxStreamsPerConnection = 4096
	// maxHeaderBytes limits the headers of a stream, which the server keeps until the stream ends. An Envoy sends less
	// than 1 KB, or some KB with a token. Without a limit, gRPC accepts 16 MiB, and with HPACK a peer can repeat a
	// header of 4 KB with a single byte.
	maxHeaderBytes = 16 << 10

	// Fixed windows above HTTP/2's 64 KiB keep gRPC from measuring the bandwidth. It would send a ping after each piece
	// of data, which wakes the Envoy again for each entry of its access log (measured at 100 requests a second:
	// 1.1 % of a core with the pings, 0.8 % without). The window of a stream holds a thousand entries or four load
	// reports, and limits what the server buffers of complete messages that it has not read yet.
	streamWindow     = 256 << 10
	connectionWindow = 1 << 20

	pingInterval     = 10 * time.Second // without data, after which the server sends a ping
	pingTimeout      = 5 * time.Second  // without an answer to it, after which the server closes the connection
	pingMinimum      = time.Second      // Envoys may ping this often; the bootstrap has them do so every 5 s
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 5 * time.Minute // without a stream, after which the server closes a connection
)

// GRPCOptions returns the settings of a gRPC server that Envoys connect to: keepalive pings that detect half-open
// connections in both directions, limits on what a peer can ask for, and windows of a fixed size. The credentials are
// nil for plain text.
func GRPCOptions(c credentials.TransportCredentials) []grpc.ServerOption {
	return grpcOptions(c, idleTimeout)
}

func grpcOptions(c credentials.TransportCredentials, idle time.Duration) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: pingInterval, Timeout: pingTimeout, MaxConnectionIdle: idle,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingMinimum, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(maxStreamsPerConnection),
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connectionWindow),
		grpc.ConnectionTimeout(handshakeTimeout),
	}
	if c != nil {
		options = append(options, grpc.Creds(c))
	}
	return options
}
