package wire

import (
	"context"
	"net"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"steelyard/internal/envoyid"
)

func from(addr net.Addr) context.Context {
	return peer.NewContext(context.Background(), &peer.Peer{Addr: addr})
}

func TestTheEnvoyOfAStream(t *testing.T) {
	v4 := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 1234}
	long := strings.Repeat("x", 255) // one less than is kept
	cases := []struct {
		name   string
		addr   net.Addr
		id     string
		noNode bool
		want   envoyid.ID
		err    string
	}{
		{name: "an Envoy", addr: v4, id: "a", want: envoyid.ID{NodeID: "a", Host: "10.0.0.7"}},
		{name: "over IPv6", addr: &net.TCPAddr{IP: net.ParseIP("2001:db8::1")}, id: "a",
			want: envoyid.ID{NodeID: "a", Host: "2001:db8::1"}},
		{name: "over IPv4 in IPv6", addr: &net.TCPAddr{IP: net.ParseIP("::ffff:10.0.0.7")}, id: "a",
			want: envoyid.ID{NodeID: "a", Host: "10.0.0.7"}},
		{name: "over another kind of address", addr: text("10.0.0.7:55"), id: "a",
			want: envoyid.ID{NodeID: "a", Host: "10.0.0.7"}},
		{name: "an id too long, cut at a rune's edge", addr: v4, id: long + "äöü",
			want: envoyid.ID{NodeID: long, Host: "10.0.0.7"}},
		{name: "no node", addr: v4, noNode: true, err: "names no node"},
		{name: "no id", addr: v4, err: "--service-node"},
		{name: "no IP", addr: text("@"), id: "a", err: "no remote IP"},
		{name: "no peer", id: "a", err: "no remote IP"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ctx := context.Background()
			if c.addr != nil {
				ctx = from(c.addr)
			}
			node, err := proto.Marshal(&corev3.Node{Id: c.id, Cluster: "c"})
			if err != nil {
				t.Fatal(err)
			}
			if c.noNode {
				node = nil
			}
			got, err := EnvoyOf(ctx, node)
			if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%+v, %v; want %+v, %q", got, err, c.want, c.err)
			}
		})
	}
	if _, err := EnvoyOf(from(v4), []byte{0xff}); err == nil {
		t.Error("garbage was taken for a node")
	}
	if _, err := EnvoyOf(from(v4), []byte("\x0a\x02a\xff")); err == nil || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("an id that is no text: %v", err)
	}
}

type text string

func (text) Network() string  { return "text" }
func (t text) String() string { return string(t) }

func TestAddresses(t *testing.T) {
	socket := func(ip string, port uint32) *corev3.Address {
		return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
		}}}
	}
	cases := []struct {
		name    string
		address *corev3.Address
		want    string
	}{
		{"IPv4", socket("10.0.0.7", 8000), "10.0.0.7:8000"},
		{"IPv6", socket("2001:db8::1", 8000), "[2001:db8::1]:8000"},
		{"no port", socket("10.0.0.7", 0), ""},
		{"a port that is none", socket("10.0.0.7", 65_536), ""},
		{"no IP", socket("", 80), ""},
		{"an IP that is none", socket(strings.Repeat("1", 100), 80), ""},
		{"a pipe", &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/run/x"}}}, ""},
		{"nothing", &corev3.Address{}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			data, err := proto.Marshal(c.address)
			if err != nil {
				t.Fatal(err)
			}
			got, err := AppendAddress([]byte("> "), data)
			if err != nil || string(got) != "> "+c.want {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
	for _, garbage := range []string{"\xff", "\x0a\x02\x12\x09"} {
		if got, err := AppendAddress(nil, []byte(garbage)); err == nil {
			t.Errorf("%q was read as %q", garbage, got)
		}
	}
}
