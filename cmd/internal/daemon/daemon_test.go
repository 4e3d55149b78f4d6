package daemon

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"steelyard/internal/api"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"steelyard/collectors/modelserver"
	"steelyard/collectors/scrape"
	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery"
	"steelyard/e2e/rig/certs"
	"steelyard/internal/credentials"
	"steelyard/internal/extension"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Kept connections of the tests' own HTTP client.
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}

func TestATargetIsSetByTheEndpointThenTheClusterThenTheServingPort(t *testing.T) {
	c := config.Cluster{Name: "llama", Engine: "vllm"}
	c.Scrape = config.Scrape{Interval: 250 * time.Millisecond, Timeout: 200 * time.Millisecond, Scheme: "https",
		Path: "/metrics", BodyLimit: 4 << 20,
		BearerTokenFile: "token", TLS: &config.ScrapeTLS{ClientTLS: config.ClientTLS{CAFile: "ca"},
			InsecureSkipVerify: true}}
	withPort := c
	withPort.Scrape.Port = 9000
	custom := c
	custom.Engine, custom.Custom = "custom", &config.Custom{Queue: "q"}
	base := scrape.Target{
		Cluster: "llama", Address: "10.0.0.1:8000", URL: "https://10.0.0.1:8000/metrics", Engine: "vllm",
		Interval: 250 * time.Millisecond, Timeout: 200 * time.Millisecond, BodyLimit: 4 << 20,
		BearerTokenFile: "token", TLS: credentials.Client{CAFile: "ca", InsecureSkipVerify: true},
	}
	with := func(change func(*scrape.Target)) scrape.Target { t := base; change(&t); return t }
	tests := []struct {
		name string
		c    config.Cluster
		e    discovery.Endpoint
		want scrape.Target
	}{
		{"serving port", c, discovery.Endpoint{Address: "10.0.0.1:8000"}, base},
		{"cluster's port", withPort, discovery.Endpoint{Address: "10.0.0.1:8000"},
			with(func(t *scrape.Target) { t.URL = "https://10.0.0.1:9000/metrics" })},
		{"endpoint's own", withPort, discovery.Endpoint{Address: "10.0.0.1:8000", Engine: "triton", MetricsPort: 8002,
			MetricsPath: "/m"},
			with(func(t *scrape.Target) { t.URL, t.Engine = "https://10.0.0.1:8002/m", "triton" })},
		{"IPv6", c, discovery.Endpoint{Address: "[fd00::1]:8000"},
			with(func(t *scrape.Target) { t.Address, t.URL = "[fd00::1]:8000", "https://[fd00::1]:8000/metrics" })},
		{"custom series", custom, discovery.Endpoint{Address: "10.0.0.1:8000"},
			with(func(t *scrape.Target) { t.Engine, t.Custom = "custom", modelserver.Custom{Queue: "q"} })},
	}
	for _, tt := range tests {
		if got := Target(tt.c, tt.e); got != tt.want {
			t.Errorf("%s:\n got %+v\nwant %+v", tt.name, got, tt.want)
		}
	}
}

// parse makes a configuration whose listeners take free ports.
func parse(t *testing.T, body string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("test.yaml", []byte("xds: {listen: 127.0.0.1:0}\nadmin: {listen: 127.0.0.1:0}\n"+body))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// serve runs a daemon until the test ends, and returns the base of its admin API.
func serve(t *testing.T, cfg *config.Config) (d *Daemon, base string) {
	t.Helper()
	log := &unlocked{t: t}
	d, base = serveLogged(t, cfg, slog.New(log))
	log.daemon.Store(d)
	return d, base
}

func serveLogged(t *testing.T, cfg *config.Config, log *slog.Logger) (d *Daemon, base string) {
	t.Helper()
	d, err := New(cfg, Options{Version: "test", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return d, running(t, d)
}

// running runs a daemon until the test ends, and returns the base of its admin API.
func running(t *testing.T, d *Daemon) (base string) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	return "http://" + d.AdminAddress()
}

// unlocked is a log that fails the test when a line is written under a lock that the admin
// API needs. Lines of libraries are written under their own.
type unlocked struct {
	t      *testing.T
	daemon atomic.Pointer[Daemon]
}

func (*unlocked) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (u *unlocked) WithAttrs([]slog.Attr) slog.Handler             { return u }
func (u *unlocked) WithGroup(string) slog.Handler                  { return u }

func (u *unlocked) Handle(_ context.Context, r slog.Record) error {
	d := u.daemon.Load()
	if d == nil {
		return nil
	}
	free := make(chan struct{})
	go func() {
		defer close(free)
		d.Clusters()
		d.Clients()
		d.Status()
	}()
	select {
	case <-free:
	case <-time.After(20 * time.Second):
		u.t.Errorf("%q is logged under a lock", r.Message)
	}
	return nil
}

func get(base, path string, into any) error {
	resp, err := http.Get(base + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("never: %s: %v", what, err)
}

const counted = `
redis: {addresses: [%q], interval: 20ms, timeout: 15ms}
clusters:
- name: llama
  endpoints: {static: [{address: 10.0.0.1:80}, {address: 10.0.0.2:80}]}
  scrape: {disabled: true}
  inflight: {redis_key: "inflight:{cluster}"}
`

// sees waits until the first endpoint has this load.
func sees(base string, want float64) func() error {
	return func() error {
		var c api.Cluster
		if err := get(base, "/api/v1/clusters/llama", &c); err != nil {
			return err
		}
		if len(c.Endpoints) == 0 {
			return errors.New("no decision yet")
		}
		if got := c.Endpoints[0].Load.Or(-1); got != want {
			return fmt.Errorf("load %v, want %v", got, want)
		}
		return nil
	}
}

func TestAReloadMovesToAnotherRedis(t *testing.T) {
	first, second := miniredis.RunT(t), miniredis.RunT(t)
	for _, address := range []string{"10.0.0.1:80", "10.0.0.2:80"} {
		first.ZAdd("inflight:llama", 3, address)
		second.ZAdd("inflight:llama", 7, address)
	}
	cfg := parse(t, fmt.Sprintf(counted, first.Addr()))
	d, base := serve(t, cfg)
	eventually(t, "the first Redis is read", sees(base, 3))
	if err := d.Apply(parse(t, fmt.Sprintf(counted, second.Addr()))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second Redis is read", sees(base, 7))
}

// Nobody else has removed it, and with one replica nobody could have.
func TestTheEndOfAnOverrideIsNotSaidToBeOfAnotherReplica(t *testing.T) {
	redis := miniredis.RunT(t)
	d, err := New(parse(t, fmt.Sprintf(counted, redis.Addr())), Options{Version: "test",
		Log: slog.New(slog.DiscardHandler)}) // nothing runs but what the test does
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	now := time.Now()
	v := api.Override{Kind: api.OverrideDrain, Cluster: "llama", Address: "10.0.0.1:80", By: "anna", Reason: "bad fan",
		Since: api.At(now), Until: api.At(now.Add(time.Second))}
	if err := d.manager.Overrides().Put(v); err != nil {
		t.Fatal(err)
	}
	d.operate.syncSoon()
	eventually(t, "its end is an event", func() error {
		d.operate.syncSoon()
		for _, e := range first(d.recorder.Events(time.Now(), 0)) {
			if strings.Contains(e.Text, "not drained any more") {
				if !strings.HasSuffix(e.Text, timeOver) {
					t.Errorf("the event is %q", e.Text)
				}
				return nil
			}
		}
		return errors.New("no such event")
	})
}

func first(all []api.Event, _, _ uint64) []api.Event { return all }

func TestAReloadThatNeedsARestartIsRefusedWhole(t *testing.T) {
	redis := miniredis.RunT(t)
	d, base := serve(t, parse(t, fmt.Sprintf(counted, redis.Addr())))
	for section, changed := range map[string]func(*config.Config){
		"xds":           func(c *config.Config) { c.XDS.Listen = "127.0.0.1:1" },
		"admin":         func(c *config.Config) { c.Admin.Listen = "127.0.0.1:1" },
		"envoy_gateway": func(c *config.Config) { c.EnvoyGateway = &config.EnvoyGateway{} },
	} {
		next := parse(t, strings.Replace(fmt.Sprintf(counted, redis.Addr()), "llama", "other", 1))
		changed(next)
		if err := d.Apply(next); err == nil ||
			err.Error() != "the section "+section+" cannot change while running: restart to change it" {
			t.Errorf("a change of %s gives %v, want a refusal that names it and the restart", section, err)
		}
	}
	var c api.Cluster
	if err := get(base, "/api/v1/clusters/llama", &c); err != nil {
		t.Errorf("the running cluster did not stay: %v", err)
	}
	var s api.Status
	if err := get(base, "/api/v1/status", &s); err != nil || s.ConfigGeneration != 1 {
		t.Errorf("generation %d, %v; want still 1", s.ConfigGeneration, err)
	}
}

func TestAPortThatIsTakenIsAnErrorAtTheStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for key, set := range map[string]func(*config.Config){
		"xds.listen":   func(c *config.Config) { c.XDS.Listen = taken.Addr().String() },
		"admin.listen": func(c *config.Config) { c.Admin.Listen = taken.Addr().String() },
	} {
		cfg := parse(t, fmt.Sprintf(counted, "127.0.0.1:1"))
		set(cfg)
		if _, err := New(cfg, Options{Log: slog.New(slog.DiscardHandler)}); err == nil ||
			!strings.Contains(err.Error(), key) {
			t.Errorf("error %v, want one that names %s", err, key)
		}
	}
}

func TestADaemonThatIsNotRunIsClosed(t *testing.T) {
	d, err := New(parse(t, fmt.Sprintf(counted, "127.0.0.1:1")), Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d.Close() // and goleak finds nothing left
	if _, err := net.Dial("tcp", d.XDSAddress()); err == nil {
		t.Error("the listener is still open")
	}
}

func TestTheStartCountsAsAGoodReload(t *testing.T) {
	_, base := serve(t, parse(t, fmt.Sprintf(counted, "127.0.0.1:1")))
	eventually(t, "metrics say so", func() error {
		resp, err := http.Get(base + "/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && !strings.Contains(string(text), "\nsteelyard_config_last_reload_successful 1\n") {
			err = fmt.Errorf("no such line")
		}
		return err
	})
}

func TestReloadsAndStopsWhileEndpointsChange(t *testing.T) {
	list := filepath.Join(t.TempDir(), "targets.yaml")
	write := func(i int) {
		text := fmt.Sprintf("- targets: ['10.0.0.%d:80']\n", 1+i%200)
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	body := func(i int) string {
		return fmt.Sprintf("clusters:\n- {name: a, engine: vllm, endpoints: {file: %s}}\n"+
			"- {name: b, engine: vllm, endpoints: {static: [{address: 10.0.1.%d:80}]}}\n", list, 1+i%200)
	}
	for range 10 {
		d, err := New(parse(t, body(0)), Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		d.Close()
	}
	d, base := serve(t, parse(t, body(0)))
	for i := range 100 {
		write(i)
		next := parse(t, body(i))
		next.XDS, next.Admin = d.config.XDS, d.config.Admin
		if err := d.Apply(next); err != nil {
			t.Fatal(err)
		}
		var c api.Cluster
		if err := get(base, "/api/v1/clusters/a", &c); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the collectors follow the last configuration", func() error {
		var c api.Cluster
		if err := get(base, "/api/v1/clusters/b", &c); err != nil {
			return err
		}
		if len(c.Endpoints) != 1 || c.Endpoints[0].Address != "10.0.1.100:80" {
			return fmt.Errorf("endpoints %v", c.Endpoints)
		}
		return nil
	})
}

// identity is a certificate and its key, as files.
func identity(t *testing.T, name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (cert *x509.Certificate,
	key *ecdsa.PrivateKey, certFile, keyFile string) {
	t.Helper()
	return identityUntil(t, time.Now().Add(time.Hour), name, parent, parentKey, x509.ExtKeyUsageServerAuth,
		x509.ExtKeyUsageClientAuth)
}

func identityUntil(t *testing.T, end time.Time, name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey,
	usage ...x509.ExtKeyUsage) (cert *x509.Certificate, key *ecdsa.PrivateKey, certFile, keyFile string) {
	t.Helper()
	var authority *certs.Pair
	if parent != nil {
		authority = &certs.Pair{Cert: parent, Key: parentKey}
	}
	p := certs.New(name, authority, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter, c.ExtKeyUsage = end.Add(-1000*24*time.Hour), end, usage
		if id, err := url.Parse(name); err == nil && id.Scheme != "" {
			c.URIs = []*url.URL{id}
		} else if strings.Contains(name, ".") {
			c.DNSNames = []string{name}
		}
	})
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := p.Save(certFile, keyFile); err != nil {
		t.Fatal(err)
	}
	return p.Cert, p.Key, certFile, keyFile
}

func TestOnlyClientsWithACertificateOfTheRightAuthorityConnect(t *testing.T) {
	ca, caKey, caFile, _ := identity(t, "authority", nil, nil)
	_, _, serverCert, serverKey := identity(t, "steelyard", ca, caKey)
	_, _, envoyCert, envoyKey := identity(t, "envoy", ca, caKey)
	strangers, strangersKey, _, _ := identity(t, "strangers", nil, nil)
	_, _, otherCert, otherKey := identity(t, "stranger", strangers, strangersKey)

	cfg := parse(t, fmt.Sprintf(counted, "127.0.0.1:1"))
	cfg.XDS.TLS = &config.ServerTLS{CertFile: serverCert, KeyFile: serverKey, ClientCAFile: caFile}
	cfg.EnvoyGateway = &config.EnvoyGateway{Listen: "127.0.0.1:0", TLS: cfg.XDS.TLS}
	d, _ := serve(t, cfg)
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	// Only an accepted client gets the answer that what it asks is not implemented.
	listeners := map[string]func(context.Context, *grpc.ClientConn) error{
		d.XDSAddress(): func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := endpointservice.NewEndpointDiscoveryServiceClient(conn).FetchEndpoints(ctx,
				&discoveryv3.DiscoveryRequest{})
			return err
		},
		d.gateway.listener.Addr().String(): func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := extension.NewEnvoyGatewayExtensionClient(conn).PostVirtualHostModify(ctx,
				&extension.PostVirtualHostModifyRequest{})
			return err
		},
	}
	for name, tt := range map[string]struct {
		cert, key string
		want      bool
	}{"none": {"", "", false}, "of another authority": {otherCert, otherKey, false},
		"of the right one": {envoyCert, envoyKey, true}} {
		client := &tls.Config{RootCAs: roots}
		if tt.cert != "" {
			pair, err := tls.LoadX509KeyPair(tt.cert, tt.key)
			if err != nil {
				t.Fatal(err)
			}
			// Not Certificates: those are held back from an authority that does not ask for them.
			client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &pair,
					nil
			}
		}
		for address, ask := range listeners {
			conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(grpccredentials.NewTLS(client)))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			err = ask(ctx, conn)
			cancel()
			conn.Close()
			if got := status.Code(err) == codes.Unimplemented; got != tt.want {
				t.Errorf("with a certificate %s: %v, want to be let in: %v", name, err, tt.want)
			}
		}
	}
}

func TestTheRedisSectionReachesItsReader(t *testing.T) {
	redis := miniredis.RunT(t)
	redis.RequireUserAuth("steelyard", "secret")
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	store := redis.DB(3)
	store.ZAdd("inflight:llama", 4, "10.0.0.1:80")
	store.ZAdd("inflight:llama", 4, "10.0.0.2:80")
	cfg := parse(t, fmt.Sprintf(counted, redis.Addr()))
	cfg.Redis.Username, cfg.Redis.PasswordFile, cfg.Redis.DB = "steelyard", password, 3
	_, base := serve(t, cfg)
	eventually(t, "the counts behind user, password and database are read", sees(base, 4))
}

func TestDisabledScrapingAsksNoServer(t *testing.T) {
	asked := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	redis := miniredis.RunT(t)
	redis.ZAdd("inflight:llama", 4, address)
	body := strings.NewReplacer("10.0.0.1:80}", address+"}", ", {address: 10.0.0.2:80}",
		"").Replace(fmt.Sprintf(counted, redis.Addr()))
	_, base := serve(t, parse(t, body))
	eventually(t, "the counts are read", sees(base, 4))
	if len(asked) != 0 {
		t.Error("the server was scraped")
	}
}

func TestPoolsThatComeAndGoMakeNoNewConfiguration(t *testing.T) {
	var d Daemon
	written, withPool, next := &config.Config{}, &config.Config{}, &config.Config{}
	got := [3]uint64{d.swap(written, written, nil, nil), d.swap(written, withPool, nil, nil),
		d.swap(next, next, nil, nil)}
	if want := [3]uint64{1, 1, 2}; got != want {
		t.Errorf("generations %v, want %v", got, want)
	}
}
