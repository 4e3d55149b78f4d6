package daemon

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"steelyard/controlplane/config"
	"steelyard/internal/api"
)

// know has the daemons find each other from now on.
func know(t *testing.T, daemons ...*Daemon) {
	t.Helper()
	var peers []string
	for _, d := range daemons {
		peers = append(peers, d.XDSAddress())
	}
	for _, d := range daemons {
		cfg := *d.configuration()
		cfg.Replicas = &config.Replicas{Peers: peers}
		if err := d.Apply(&cfg); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReplicasFollowEachOtherByTheirCertificatesAndNobodyElseDoes(t *testing.T) {
	rule := config.ClientRule{SAN: "gateway.envoys.test", Clusters: []string{"*"}}
	a := newGuarded(t, rule)
	_, _, cert, key := identity(t, "steelyard.test", a.ca, a.caKey)
	serveAs := func() *Daemon {
		cfg := parse(t, twoPools)
		cfg.XDS.TLS = &config.ServerTLS{CertFile: cert, KeyFile: key, ClientCAFile: a.cfg.XDS.TLS.ClientCAFile}
		cfg.XDS.Clients = []config.ClientRule{rule}
		d, _ := serve(t, cfg)
		return d
	}
	b, c := serveAs(), serveAs()
	know(t, b, c)
	for _, d := range []*Daemon{b, c} {
		eventually(t, "it has the counts of the other", func() error {
			if s := d.Status().Replicas; !s.Connected || len(s.Others) != 1 || !s.Others[0].Follows {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
	}

	a.daemon = b
	stream, err := a.client("gateway.envoys.test").NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true},
		"/steelyard.replicas.v1.Replicas/Follow")
	if err == nil {
		err = stream.SendMsg(&wrapperspb.BytesValue{})
	}
	if err == nil {
		err = stream.RecvMsg(&wrapperspb.BytesValue{})
	}
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "only a replica") {
		t.Errorf("an Envoy that follows: %v", err)
	}
}

func TestReplicasThatAreNotFoundAreASourceThatIsDown(t *testing.T) {
	cfg := parse(t, twoPools)
	cfg.Replicas = &config.Replicas{Name: "one", Peers: []string{"no..name:1"}}
	d, _ := serve(t, cfg)
	eventually(t, "it says why", func() error {
		sources := d.Clusters()[0].Sources
		i := slices.IndexFunc(sources, func(s api.SourceStatus) bool { return s.Name == api.SourceReplicas })
		if i < 0 || sources[i].State != api.SourceDown || !strings.Contains(sources[i].LastError, "no..name") {
			return fmt.Errorf("%+v", sources)
		}
		return nil
	})
	if s := d.Status().Replicas; s.Connected || s.Name != "one" {
		t.Errorf("it shows %+v", s)
	}
	know(t, d)
	eventually(t, "it is the only one", func() error {
		if s := d.Status().Replicas; !s.Connected || len(s.Others) > 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}
