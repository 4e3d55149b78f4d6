package security

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/e2e/rig/testbed"
	"steelyard/internal/api"
)

// A mount is a folder as Kubernetes mounts a Secret: its files are links through one link, which is replaced.
type mount struct {
	t       *testing.T
	dir     string
	version int
}

// newMount returns a mount with ca.crt, tls.crt and tls.key.
func newMount(t *testing.T, ca []byte, cert, key string) *mount {
	t.Helper()
	m := &mount{t: t, dir: t.TempDir()}
	m.replace(ca, cert, key)
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
		if err := os.Symlink(filepath.Join("..data", name), m.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *mount) path(name string) string { return filepath.Join(m.dir, name) }

// replace puts other contents in place, all at once.
func (m *mount) replace(ca []byte, cert, key string) {
	m.t.Helper()
	m.version++
	version := fmt.Sprintf("..v%d", m.version)
	err := os.Mkdir(m.path(version), 0o700)
	for name, content := range map[string][]byte{"ca.crt": ca, "tls.crt": contents(m.t, cert),
		"tls.key": contents(m.t, key)} {
		err = errors.Join(err, os.WriteFile(filepath.Join(m.path(version), name), content, 0o600))
	}
	err = errors.Join(err, os.Symlink(version, m.path("..data_tmp")), os.Rename(m.path("..data_tmp"), m.path("..data")))
	if err != nil {
		m.t.Fatal(err)
	}
}

func contents(t testing.TB, files ...string) []byte {
	t.Helper()
	var all []byte
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	return all
}

// secured starts an Envoy whose certificates are those of a mount, and returns when it has endpoints.
func (f *fleet) secured(name string, m *mount) {
	f.T.Helper()
	dir := f.T.TempDir()
	testbed.Run(f.T, "bootstrap", "--cluster", testbed.Cluster, "--xds", f.XDS, "--node-id", name,
		"--listen", "127.0.0.1:0", "--admin",
		"127.0.0.1:0", "--tls", "--tls-dir", m.dir, "--out", dir)
	f.attach(name, contents(f.T, filepath.Join(dir, "envoy.yaml")))
	i := len(f.Envoys) - 1
	f.Eventually(name+" has endpoints", func() error {
		if len(f.Hosts(i)) == 0 {
			return errors.New("no hosts")
		}
		return nil
	})
}

// attach starts an Envoy with a bootstrap and sends requests to it from now on.
func (f *fleet) attach(name string, bootstrap []byte) {
	f.T.Helper()
	e := proctest.Envoy(f.T, proc.EnvoyConfig{Bootstrap: bootstrap, Dir: f.Dir, Name: name})
	listener, err := e.Listener(f.T.Context(), "ingress")
	if err != nil {
		f.T.Fatal(err)
	}
	f.Envoys, f.URLs = append(f.Envoys, e), append(f.URLs, "http://"+listener+"/")
}

// holds wants the certificate and the authorities of every Envoy's connection to Steelyard to be these.
func (f *fleet) holds(chain *x509.Certificate, authorities ...*x509.Certificate) func() error {
	type serial struct {
		Serial string `json:"serial_number"`
	}
	number := func(c *x509.Certificate) string { return fmt.Sprintf("%x", c.SerialNumber) }
	want := []string{number(chain)}
	for _, c := range authorities {
		want = append(want, number(c))
	}
	slices.Sort(want[1:])
	return func() error {
		for i, e := range f.Envoys {
			response, err := http.Get("http://" + e.Admin() + "/certs")
			if err != nil {
				return err
			}
			var answer struct {
				Certificates []struct {
					CA    []serial `json:"ca_cert"`
					Chain []serial `json:"cert_chain"`
				}
			}
			err = json.NewDecoder(response.Body).Decode(&answer)
			response.Body.Close()
			if err != nil {
				return err
			}
			for _, c := range answer.Certificates {
				var got []string
				for _, s := range append(slices.Clone(c.Chain), c.CA...) {
					got = append(got, strings.TrimLeft(s.Serial, "0"))
				}
				if len(got) > 1 {
					slices.Sort(got[1:])
				}
				if !slices.Equal(got, want) {
					return fmt.Errorf("Envoy %d has %q, want %q", i, got, want)
				}
			}
			if len(answer.Certificates) == 0 {
				return fmt.Errorf("Envoy %d has no certificates", i)
			}
		}
		return nil
	}
}

// presents wants the server's certificate to be of an authority.
func presents(address string, a *testbed.Authority) error {
	roots := x509.NewCertPool()
	roots.AddCert(a.Cert)
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}})
	if err == nil {
		conn.Close()
	}
	return err
}

// TestCertificatesAndAuthoritiesRotateUnderLoad: on both sides, to another authority, in the three steps that this
// takes. No request fails and no stream ends; afterwards, only the new certificates are accepted, and the Envoys have
// them.
func TestCertificatesAndAuthoritiesRotateUnderLoad(t *testing.T) {
	old, next := testbed.NewAuthority(t), testbed.NewAuthority(t)
	end := time.Now().Add(time.Hour)
	_, _, cert, key := old.Issue("steelyard", end)
	first, _, envoyCert, envoyKey := old.Issue("envoy.example.com", end)
	_, _, newCert, newKey := next.Issue("steelyard", end)
	second, _, newEnvoyCert, newEnvoyKey := next.Issue("envoy.example.com", end)
	both := contents(t, old.File, next.File)
	control := newMount(t, contents(t, old.File), cert, key)
	envoys := newMount(t, contents(t, old.File), envoyCert, envoyKey)
	pool := testbed.Servers(t, testbed.Same(3, modelsim.Options{Slots: 8, Speed: 5})...)
	f := withoutEnvoys(t, testbed.Plan{Servers: pool,
		Listen: fmt.Sprintf(", tls: {cert_file: %s, key_file: %s, client_ca_file: %s}, "+
			"clients: [{san: %s, clusters: [%s]}]",
			control.path("tls.crt"), control.path("tls.key"), control.path("ca.crt"), "'*.example.com'",
			testbed.Cluster)})
	f.secured("envoy-0", envoys)
	f.secured("envoy-1", envoys)
	connections := func() (out []string) {
		t.Helper()
		clients, err := f.Clients()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range clients {
			out = append(out, c.NodeID+" "+c.Address+" "+c.Certificate+" "+c.ConnectedAt.String())
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	before := connections()
	if len(before) != 2 || !strings.Contains(before[0], " envoy.example.com ") {
		t.Fatalf("connected are %q", before)
	}
	traffic := f.Send(load.Plan{Rate: 100})

	// Everyone trusts both authorities, then has a certificate of the new one, then trusts only that.
	step := func(what string, done func() error) {
		t.Helper()
		f.Eventually(what, func() error {
			if err := done(); err != nil {
				return err
			}
			s, err := f.Status()
			if err == nil && (len(s.GoneEnvoys) > 0 || s.XDSAccess.Denied[0].Count > 0) {
				err = fmt.Errorf("gone: %v, denied: %v", s.GoneEnvoys, s.XDSAccess.Denied)
			}
			return err
		})
	}
	authorities := func(want int) func() error {
		return func() error {
			s, err := f.Status()
			n := 0
			for _, c := range s.Certificates {
				if c.Use == "xds_client_ca" {
					n++
				}
			}
			if err == nil && n != want {
				err = fmt.Errorf("%d authorities, want %d", n, want)
			}
			return err
		}
	}
	control.replace(both, cert, key)
	envoys.replace(both, envoyCert, envoyKey)
	step("Steelyard trusts both", authorities(2))
	f.Eventually("the Envoys trust both", f.holds(first, old.Cert, next.Cert))
	control.replace(both, newCert, newKey)
	envoys.replace(both, newEnvoyCert, newEnvoyKey)
	f.Eventually("the Envoys have the new certificate", f.holds(second, old.Cert, next.Cert))
	f.Eventually("Steelyard has the new certificate", func() error { return presents(f.XDS, next) })
	control.replace(contents(t, next.File), newCert, newKey)
	envoys.replace(contents(t, next.File), newEnvoyCert, newEnvoyKey)
	step("Steelyard trusts only the new one", authorities(1))
	f.Eventually("so do the Envoys", f.holds(second, next.Cert))
	if after := connections(); !slices.Equal(before, after) {
		t.Errorf("connections before %q and after %q", before, after)
	}

	// A certificate of the old authority is foreign now, and those that the Envoys have read are not.
	f.launch("late", "--xds-ca-file", next.File, "--xds-cert-file", envoyCert, "--xds-key-file", envoyKey)
	f.Eventually("a certificate of the old authority is refused", func() error {
		n, err := f.series("steelyard_refused_handshakes_total", map[string]string{"reason": "unknown_authority"})
		if err == nil && n == 0 {
			err = errors.New("none is counted")
		}
		return err
	})
	if err := f.Control.Stop(); err != nil {
		t.Fatal(err)
	}
	f.Control = f.StartControl("steelyard-2")
	f.Eventually("the Envoys reconnect with what they have read", func() error {
		if now := connections(); len(now) != 2 || !strings.Contains(now[1], "envoy-1") {
			return fmt.Errorf("connected are %q", now)
		}
		return nil
	})
	if requests, failed := traffic.Stop(t); failed > 0 || requests < 100 {
		t.Errorf("%d of %d requests failed", failed, requests)
	}
}

// TestAnEnvoyUsesTheClustersOfItsCertificateOnly: one asks for a cluster that is not its own; another sends requests to
// the endpoint of such a cluster, and so reports on it. Both are denied, and other Envoys are not affected.
func TestAnEnvoyUsesTheClustersOfItsCertificateOnly(t *testing.T) {
	a := testbed.NewAuthority(t)
	end := time.Now().Add(time.Hour)
	_, _, cert, key := a.Issue("steelyard", end)
	pool := testbed.Pool(t, 2)
	f := withoutEnvoys(t, testbed.Plan{Servers: pool[:1],
		Listen: fmt.Sprintf(", tls: {cert_file: %s, key_file: %s, client_ca_file: %s}, clients: ["+
			"{san: edge.example.com, clusters: [%s]}, {san: other.example.com, clusters: [other]}]", cert, key, a.File,
			testbed.Cluster),
		More: fmt.Sprintf("- {name: other, engine: vllm, endpoints: {static: [{address: %s}]}}\n", pool[1].Address())})
	with := func(name, asks string) []byte {
		t.Helper()
		_, _, cert, key := a.Issue(name, end)
		return testbed.Run(t, "bootstrap", "--cluster", asks, "--xds", f.XDS, "--node-id", name+"-"+asks, "--listen",
			"127.0.0.1:0", "--admin", "127.0.0.1:0", "--xds-ca-file", a.File, "--xds-cert-file", cert, "--xds-key-file",
			key, "--fallback", pool[1].Address())
	}
	f.attach("edge", with("edge.example.com", testbed.Cluster))
	f.attach("other", with("other.example.com", "other"))
	f.Eventually("the first Envoy has its endpoints", func() error {
		if len(f.Hosts(0)) != 1 {
			return errors.New("no hosts")
		}
		return nil
	})
	traffic := f.Send(load.Plan{Rate: 50})
	denied := func(kind, client, of string) func() error {
		return func() error {
			n, err := f.series("steelyard_xds_denied_total", map[string]string{"kind": kind})
			if err != nil {
				return fmt.Errorf("denials of kind %s: %w", kind, err)
			}
			if n == 0 {
				return fmt.Errorf("none of kind %s", kind)
			}
			return f.HasProblem(api.SeverityWarning, "clients are denied by xds.clients ("+kind+")", client, of)
		}
	}
	curious, err := proc.LaunchEnvoy(t.Context(), proc.EnvoyConfig{Bootstrap: with("edge.example.com", "other"),
		Dir: f.Dir, Name: "curious"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { curious.Stop() })
	f.Eventually("the subscription is denied", denied("watch", "edge.example.com", "asked for cluster other/failsafe"))

	liar := testbed.Edited(t, with("edge.example.com", testbed.Cluster),
		[]testbed.Edit{{`cluster: "llama_failsafe"`, `cluster: "llama_fallback"`}})
	f.attach("liar", liar)
	f.Eventually("the report is denied", func() error {
		response, err := http.Get(f.URLs[2])
		if err != nil {
			return err
		}
		response.Body.Close()
		return denied("report", "edge.example.com", "reported on an endpoint of cluster other")()
	})
	clients, err := f.Clients()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range clients {
		for _, s := range c.Subscriptions {
			if c.Certificate == "edge.example.com" && s.Cluster != testbed.Cluster {
				t.Errorf("%s has %s", c.NodeID, s.Resource)
			}
		}
	}
	if requests, failed := traffic.Stop(t); failed > 0 || requests == 0 {
		t.Errorf("%d of %d requests failed", failed, requests)
	}
}

// TestADeniedEnvoyIsServedOnceItHasACertificateThatIsNamed: it gets one while it runs, and shows it on a new connection
// only.
func TestADeniedEnvoyIsServedOnceItHasACertificateThatIsNamed(t *testing.T) {
	// The first is in no rule, the second is for other clusters.
	for _, old := range []string{"old.example.com", "foreign.example.com"} {
		t.Run(old, func(t *testing.T) {
			t.Parallel()
			a := testbed.NewAuthority(t)
			end := time.Now().Add(time.Hour)
			_, _, cert, key := a.Issue("steelyard", end)
			_, _, oldCert, oldKey := a.Issue(old, end)
			_, _, newCert, newKey := a.Issue("edge.example.com", end)
			envoys := newMount(t, contents(t, a.File), oldCert, oldKey)
			f := withoutEnvoys(t, testbed.Plan{Servers: testbed.Pool(t, 1),
				Listen: fmt.Sprintf(", tls: {cert_file: %s, key_file: %s, client_ca_file: %s}, clients: ["+
					"{san: edge.example.com, clusters: [%s]}, {san: foreign.example.com, clusters: [foreign]}]", cert,
					key, a.File, testbed.Cluster)})
			dir := t.TempDir()
			testbed.Run(t, "bootstrap", "--cluster", testbed.Cluster, "--xds", f.XDS, "--node-id", "edge",
				"--listen", "127.0.0.1:0",
				"--admin", "127.0.0.1:0", "--tls", "--tls-dir", envoys.dir, "--out", dir)
			f.attach("edge", contents(t, filepath.Join(dir, "envoy.yaml")))
			f.Eventually("it is denied", func() error {
				s, err := f.Status()
				if err == nil && !slices.ContainsFunc(s.XDSAccess.Denied, func(d api.DeniedClients) bool {
					return d.LastClient == old
				}) {
					err = errors.New("no denial is counted")
				}
				return err
			})
			envoys.replace(contents(t, a.File), newCert, newKey)
			f.Eventually("it has endpoints", func() error {
				if len(f.Hosts(0)) == 0 {
					return errors.New("no hosts")
				}
				return nil
			})
			s, err := f.Status()
			if err != nil || len(s.GoneEnvoys) > 0 {
				t.Errorf("gone: %+v, %v", s.GoneEnvoys, err)
			}
		})
	}
}
