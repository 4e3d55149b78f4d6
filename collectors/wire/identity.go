package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"google.golang.org/grpc/peer"

	"steelyard/internal/credentials"
	"steelyard/internal/envoyid"
)

// maxIP is longer than an IPv6 address with a zone.
const maxIP = 64

// EnvoyOf returns the Envoy at the other end of a stream, identified by the Node in its first message, which may be
// nil, and the address and certificate of its connection. The error is for the person who runs the Envoy.
func EnvoyOf(ctx context.Context, node []byte) (envoyid.ID, error) {
	if node == nil {
		return envoyid.ID{}, errors.New("the first message of the stream names no node, which identifies the " +
			"Envoy: every Envoy sends one")
	}
	id, err := nodeID(node)
	if err != nil {
		return envoyid.ID{}, err
	}
	if !utf8.ValidString(id) {
		return envoyid.ID{},
			fmt.Errorf("the node's id, %q, is not UTF-8: no Envoy with it can subscribe to anything", id)
	}
	if id == "" {
		return envoyid.ID{},
			errors.New("the node has no id: set node.id in the Envoy's bootstrap, or start it with --service-node")
	}
	host := remoteHost(ctx)
	if host == "" {
		return envoyid.ID{},
			errors.New("the connection has no remote IP address: an Envoy is identified by node id and IP")
	}
	return envoyid.ID{NodeID: id, Host: host, Certificate: credentials.PeerIdentity(ctx).Name}, nil
}

// A Reporter returns a function that decides, for the client of a stream, whether it may report on the endpoint with an
// address; nil if it may report on all. The error of that function is the status with which the stream has to end.
type Reporter func(ctx context.Context) func(address []byte) error

// Of returns the function for a stream, which is not nil.
func (r Reporter) Of(ctx context.Context) func(address []byte) error {
	if r != nil {
		if may := r(ctx); may != nil {
			return may
		}
	}
	return func([]byte) error { return nil }
}

// nodeID returns a copy of the id of a Node.
func nodeID(node []byte) (id string, err error) {
	r := Read(node)
	for r.Next() {
		if r.Number == 1 {
			id = envoyid.NodeID(string(r.Bytes))
		}
	}
	return id, r.Err()
}

// remoteHost returns the IP at the other end of a stream; empty if there is none.
func remoteHost(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	return envoyid.HostOf(p.Addr.String())
}

// AppendAddress appends the IP:port of a core.v3.Address to text, an IPv6 address in
// brackets. An address of another kind (a pipe, another Envoy) appends nothing.
func AppendAddress(text, address []byte) ([]byte, error) {
	r := Read(address)
	for r.Next() {
		if r.Number != 1 { // socket_address
			continue
		}
		var ip []byte
		port := uint64(0)
		socket := Read(r.Bytes)
		for socket.Next() {
			switch socket.Number {
			case 2:
				ip = socket.Bytes
			case 3:
				port = socket.Varint
			}
		}
		if socket.Err() != nil {
			return text, socket.Err()
		}
		text = appendHostPort(text, ip, port)
	}
	return text, r.Err()
}

func appendHostPort(text, ip []byte, port uint64) []byte {
	if len(ip) == 0 || len(ip) > maxIP || port == 0 || port > 65_535 {
		return text
	}
	if bytes.IndexByte(ip, ':') >= 0 {
		text = append(append(append(text, '['), ip...), ']')
	} else {
		text = append(text, ip...)
	}
	return strconv.AppendUint(append(text, ':'), port, 10)
}
