package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// A clientStream is a stream of a client whose certificate has the name edge.example.com.
type clientStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s clientStream) Context() context.Context { return s.ctx }

// RecvMsg subscribes to a cluster once; then nothing comes. An empty name subscribes to nothing.
func (s clientStream) RecvMsg(m any) error {
	if name, ok := s.ctx.Value(asked{}).(string); ok {
		r := m.(*discoveryv3.DiscoveryRequest)
		r.TypeUrl, r.ResourceNames = resource.EndpointType, []string{name}
	}
	return nil
}

type asked struct{}

// open opens a stream that subscribes to a cluster, over a connection from this port.
func open(ctx context.Context, g *Guard, port int, cluster string) {
	p := &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: port}, AuthInfo: credentials.TLSInfo{
		State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{DNSNames: []string{"edge.example.com"}}}}}}}
	ctx, cancel := context.WithCancel(peer.NewContext(ctx, p))
	if cluster != "" {
		ctx = context.WithValue(ctx, asked{}, cluster)
	}
	go func() {
		defer cancel() // as gRPC does
		_ = g.Intercept(nil, clientStream{ctx: ctx}, nil, func(_ any, s grpc.ServerStream) error {
			if err := s.RecvMsg(new(discoveryv3.DiscoveryRequest)); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	synctest.Wait()
}

// TestAConnectionEndsSoonAfterADenialUnlessItIsOfUse: otherwise the client would keep its certificate.
func TestAConnectionEndsSoonAfterADenialUnlessItIsOfUse(t *testing.T) {
	edge := []Rule{{SAN: "edge.example.com", Clusters: []string{"llama"}}}
	other := []Rule{{SAN: "other.example.com", Clusters: []string{"llama"}}}
	for _, c := range []struct {
		name        string
		rules, then []Rule // then: after a second
		clusters    []string
		want        bool
	}{
		{"no rule names the client", other, other, []string{"llama"}, true},
		{"no rule names it any more", edge, other, []string{"llama"}, true},
		{"it watches a foreign cluster", edge, edge, []string{"mixtral"}, true},
		{"it watches a foreign cluster, and has a stream that watches nothing", edge, edge, []string{"mixtral", ""},
			true},
		{"it watches a foreign cluster next to its own", edge, edge, []string{"mixtral", "llama"}, false},
		{"nothing is denied", edge, edge, []string{"llama", ""}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait()
				defer cancel()
				var mu sync.Mutex
				var closed []string
				g := NewGuard(slog.New(slog.DiscardHandler))
				g.Disconnect = func(p *peer.Peer) {
					mu.Lock()
					defer mu.Unlock()
					closed = append(closed, p.Addr.String())
				}
				g.SetRules(c.rules)
				for _, cluster := range c.clusters {
					open(ctx, g, 1001, cluster)
				}
				open(ctx, g, 1002, "")
				time.Sleep(time.Second)
				g.SetRules(c.then)
				time.Sleep(time.Second)
				synctest.Wait()
				mu.Lock()
				if len(closed) > 0 {
					t.Errorf("closed at once: %v", closed)
				}
				mu.Unlock()
				time.Sleep(patience)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if slices.Contains(closed, "10.0.0.1:1001") != c.want {
					t.Errorf("closed %v, want %t", closed, c.want)
				}
				g.mu.Lock()
				defer g.mu.Unlock()
				if kept := g.connections["10.0.0.1:1001"]; c.want && kept != nil {
					t.Errorf("of a closed connection is kept %+v", kept)
				}
			})
		})
	}
}
