package main

import (
	"crypto/x509"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"steelyard/e2e/rig/certs"
	"steelyard/picking"
	"steelyard/weighting"
	"steelyard/xds/loads"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

func TestAConfigurationThatCannotWorkIsRefused(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no JSON", "steelyard: x", "want JSON such as"},
		{"an unknown key", `{"steelyard":"a:1","cluster":"c","clutser":"c"}`, "clutser"},
		{"no address", `{"cluster":"c"}`, "steelyard (HOST:PORT) and cluster are required"},
		{"more of a body than is read", `{"steelyard":"a:1","cluster":"c","prefix_bytes":2000000}`, "0 to 1048576"},
		{"no cluster", `{"steelyard":"a:1"}`, "steelyard (HOST:PORT) and cluster are required"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := parse(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	s, err := parse(`{"steelyard":"a:1","cluster":"c","name":"n","ca_file":"/ca","cert_file":"/c","key_file":"/k",` +
		`"server_name":"s","prefix_bytes":1000}`)
	if want := (settings{"a:1", "c", "n", "/ca", "/c", "/k", "s", 1000}); err != nil || s != want {
		t.Errorf("got %+v and %v, want %+v", s, err, want)
	}
	if _, err := newFilter(settings{Steelyard: "a:1", Cluster: "c", CAFile: "/does/not/exist"}, quiet); err == nil {
		t.Error("authorities that cannot be read are accepted")
	}
}

// TestSteelyardIsKnownByTheNameThatIsGiven: its certificate need not have the address at which it is reached.
func TestSteelyardIsKnownByTheNameThatIsGiven(t *testing.T) {
	own := certs.New("steelyard", nil, func(c *x509.Certificate) {
		c.IPAddresses, c.DNSNames = nil, []string{"steelyard.internal"}
	})
	dir := t.TempDir()
	authority := filepath.Join(dir, "ca.pem")
	if err := own.Save(authority, filepath.Join(dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	server := loads.New(quiet)
	server.Publish("llama", two())
	address := serve(t, server, grpc.Creds(credentials.NewServerTLSFromCert(new(own.TLS()))))
	f, err := newFilter(settings{Steelyard: address, Cluster: "llama", CAFile: authority,
		ServerName: "steelyard.internal"}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer f.stop()
	eventually(t, "the filter has loads", func() bool {
		_, reason := f.choose(picking.Request{}, nil)
		return reason == "fill"
	})
}

// two is a decision about two endpoints.
func two() weighting.Decision {
	return weighting.NewLaw(weighting.DefaultParams()).Step(time.Now(), weighting.Snapshot{
		Endpoints: []weighting.Endpoint{{Address: "10.0.0.1:80", Capacity: 1}, {Address: "10.0.0.2:80", Capacity: 1}}})
}

func TestConfigurationsWithTheSameSettingsShareOneStream(t *testing.T) {
	server := loads.New(quiet)
	s := settings{Steelyard: serve(t, server), Cluster: "llama", Name: "envoy-1"}
	a, err := newFilter(s, quiet)
	if err != nil {
		t.Fatal(err)
	}
	sized := func(length string) picking.Request { return picking.Request{Size: sizeOf(length)} }
	if endpoints, reason := a.choose(sized("10"), nil); endpoints != "" || reason != "no_update" {
		t.Errorf("without loads: %q for the reason %q", endpoints, reason)
	}
	server.Publish("llama", two())
	eventually(t, "the filter has loads", func() bool {
		_, reason := a.choose(sized(""), nil)
		return reason == "fill"
	})
	b, err := newFilter(s, quiet) // the listener is updated: the new configuration comes before the old one goes
	if err != nil {
		t.Fatal(err)
	}
	a.stop()
	endpoints, reason := b.choose(sized("not a number"), nil)
	if n := len(strings.Split(endpoints, ",")); n != 2 || reason != "fill" {
		t.Errorf("right after the update: %q for the reason %q, want the loads that were there", endpoints, reason)
	}
	if got := server.Followers(); len(got) != 1 || got[0].Name != "envoy-1" {
		t.Errorf("followers %+v, want one", got)
	}
	b.stop()
	if n := len(followers.by); n != 0 {
		t.Errorf("%d followers are left", n)
	}
}

func TestAfterTheThirdPanicTheFilterStepsAside(t *testing.T) {
	defer panics.Store(0)
	defer uncounted.Store(0)
	for i := range mostPanics {
		if aside() {
			t.Fatalf("it is aside after %d panics", i)
		}
		func() {
			defer guard()
			panic("a defect")
		}()
	}
	if n := uncounted.Load(); !aside() || n != mostPanics {
		t.Errorf("aside %v, %d panics are to be counted", aside(), n)
	}
}

// serve serves loads until the test ends, and returns the address.
func serve(t *testing.T, s *loads.Server, options ...grpc.ServerOption) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(options...)
	s.Register(g)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(listener)
	}()
	t.Cleanup(func() {
		s.Close()
		g.Stop()
		<-done
	})
	return listener.Addr().String()
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	const patience = 20 * time.Second
	for end := time.Now().Add(patience); !check(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
