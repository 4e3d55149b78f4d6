package authority

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"
)

func TestWhatAnAuthoritySignsIsAcceptedForWhatItIs(t *testing.T) {
	now := time.Now()
	a, err := New("steelyard-ca", now)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Cert)
	server, err := a.Server([]string{"steelyard-xds.models.svc", "127.0.0.1"}, now)
	if err != nil {
		t.Fatal(err)
	}
	client, err := a.Client("gateway.envoys.steelyard", now)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		pair  Pair
		host  string
		usage x509.ExtKeyUsage
		valid bool
	}{
		{"a server by its name", server, "steelyard-xds.models.svc", x509.ExtKeyUsageServerAuth, true},
		{"a server by its address", server, "127.0.0.1", x509.ExtKeyUsageServerAuth, true},
		{"a server by another name", server, "steelyard-xds.other.svc", x509.ExtKeyUsageServerAuth, false},
		{"a server as the client of a replica", server, "steelyard-xds.models.svc", x509.ExtKeyUsageClientAuth, true},
		{"a client", client, "gateway.envoys.steelyard", x509.ExtKeyUsageClientAuth, true},
		{"a client as a server", client, "gateway.envoys.steelyard", x509.ExtKeyUsageServerAuth, false},
	} {
		pair, err := tls.X509KeyPair(c.pair.Cert, c.pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: c.host, CurrentTime: now.Add(-time.Minute),
			KeyUsages: []x509.ExtKeyUsage{c.usage}})
		if (err == nil) != c.valid {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestAClientOfAnotherAuthorityOrNameIsMadeAgain(t *testing.T) {
	now := time.Now()
	a, err := New("steelyard-ca", now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := New("steelyard-ca", now)
	if err != nil {
		t.Fatal(err)
	}
	client, err := a.Client("gateway", now)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(a.Pair, now)
	if err != nil || !loaded.Signed(client, "gateway", now) {
		t.Errorf("its own client is not known: %v", err)
	}
	if other.Signed(client, "gateway", now) || a.Signed(client, "else", now) || a.Signed(Pair{}, "gateway", now) ||
		a.Signed(client, "gateway", now.Add(lifetime+time.Hour)) {
		t.Error("a pair that is not its client's is taken for one")
	}
	if _, err := Load(client, now); err == nil {
		t.Error("a client is taken for an authority")
	}
	if _, err := Load(a.Pair, now.Add(lifetime+time.Hour)); err == nil {
		t.Error("an authority that has expired is used")
	}
}
