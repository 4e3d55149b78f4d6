package manifests

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/internal/api"
)

// redisPassword is what a person writes into a Secret of the production overlay.
const redisPassword = "0123456789abcdef"

// TestAnEnvoyGetsItsEndpointsFromWhatTheProductionOverlayRuns: the binary with the ConfigMap, the Role and the mounted
// Secrets of the overlay, on a real API server and a Redis behind a Sentinel. Only what a test cannot have is another:
// the root of the mounts, the listeners, the address of the Sentinel. The certificates are those that the Certificates
// ask cert-manager for.
func TestAnEnvoyGetsItsEndpointsFromWhatTheProductionOverlayRuns(t *testing.T) {
	c := startCluster(t)
	p := &production{t: t, dir: proctest.Dir(t), objects: build(t, "overlays/production")}
	p.apply(c)
	admin, err := c.server.Client()
	p.must(err)
	makeEndpoints(t, admin)
	token, kubeconfig := p.account(c)
	p.issue()
	p.secrets["steelyard-redis"] = map[string]string{"password": redisPassword}
	config := p.configuration(kubeconfig)
	config = replaced(t, config, "redis-sentinel.redis.svc.cluster.local:26379", p.sentinel())
	p.serve(config)

	eventually(t, "it keeps a drain in the Redis that the Sentinel names", func() error {
		if out, err := p.run(token, "drain", "llama", "llama-0"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		var s api.Status
		err := p.get("/api/v1/status", &s)
		if err == nil && (s.Overrides.Count != 1 || s.Overrides.KeptIn != "redis" || s.Overrides.Error != "") {
			err = fmt.Errorf("%+v", s.Overrides)
		}
		return err
	})
	p.looksForTheOther()
	p.envoyHas("steelyard-envoy-tls", served[0]+":8000", served[1]+":8000")
	p.onlyWithATokenAndACertificate()
}

// A production is what the overlay runs.
type production struct {
	t          *testing.T
	dir        string // the root of the mounts
	objects    []object
	secrets    map[string]map[string]string // by name and key
	authority  *x509.CertPool
	xds, admin string
	token      string // of the ServiceAccount
}

func (p *production) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// issue makes the Secrets that cert-manager makes of the Certificates: all signed by the one that is an authority.
func (p *production) issue() {
	p.secrets, p.authority = make(map[string]map[string]string), x509.NewCertPool()
	own := find(p.t, p.objects, "Certificate", "steelyard-ca")
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		Subject:   pkix.Name{CommonName: at[string](p.t, own, "spec", "commonName")},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().AddDate(0, 0, 90),
	}
	rootKey, _ := p.key()
	ca := p.certificate(root, root, rootKey.Public(), rootKey)
	p.authority.AppendCertsFromPEM([]byte(ca))
	for i, o := range p.objects {
		if o.GetKind() != "Certificate" || o.GetName() == "steelyard-ca" {
			continue
		}
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 2)), NotBefore: root.NotBefore, NotAfter: root.NotAfter,
		}
		for _, name := range at[[]any](p.t, o, "spec", "dnsNames") {
			leaf.DNSNames = append(leaf.DNSNames, name.(string))
		}
		for _, usage := range at[[]any](p.t, o, "spec", "usages") {
			switch usage {
			case "digital signature":
				leaf.KeyUsage |= x509.KeyUsageDigitalSignature
			case "server auth":
				leaf.ExtKeyUsage = append(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
			case "client auth":
				leaf.ExtKeyUsage = append(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
			default:
				p.t.Fatalf("%s has the usage %q, which this test does not know", name(o), usage)
			}
		}
		key, text := p.key()
		p.secrets[at[string](p.t, o, "spec", "secretName")] = map[string]string{
			"tls.crt": p.certificate(leaf, root, key.Public(), rootKey), "tls.key": text, "ca.crt": ca,
		}
	}
}

func (p *production) key() (*ecdsa.PrivateKey, string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p.must(err)
	der, err := x509.MarshalECPrivateKey(key)
	p.must(err)
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

func (p *production) certificate(own, parent *x509.Certificate, key crypto.PublicKey, signer crypto.Signer) string {
	der, err := x509.CreateCertificate(rand.Reader, own, parent, key, signer)
	p.must(err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// sentinel runs a Redis with the password and a Sentinel that knows where it is, and returns the Sentinel's address.
func (p *production) sentinel() string {
	store := proctest.Redis(p.t, proc.RedisConfig{Args: []string{"--requirepass", redisPassword}})
	address, err := proc.FreeAddress()
	p.must(err)
	host, port, err := net.SplitHostPort(store.Address())
	p.must(err)
	_, own, err := net.SplitHostPort(address)
	p.must(err)
	dir := proctest.Dir(p.t)
	file := filepath.Join(dir, "sentinel.conf")
	write(p.t, file, fmt.Sprintf("bind 127.0.0.1\nport %s\nsentinel monitor steelyard %s %s 1\n"+
		"sentinel auth-pass steelyard %s\n", own, host, port, redisPassword))
	binary, err := proc.Find(proc.ProgramRedis)
	p.must(err)
	s := proctest.Start(p.t, proc.Spec{Name: "sentinel", Path: binary, Args: []string{file, "--sentinel"}, Dir: dir})
	eventually(p.t, "the Sentinel listens", func() error {
		if !s.Running() {
			p.t.Fatalf("the Sentinel has ended:\n%s", s.Tail())
		}
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	})
	return address
}

// mount writes a Secret as files.
func (p *production) mount(secret, folder string) string {
	p.t.Helper()
	if p.secrets[secret] == nil {
		p.t.Fatalf("nobody makes the Secret %s", secret)
	}
	dir := filepath.Join(p.dir, folder)
	p.must(os.MkdirAll(dir, 0o755))
	for key, text := range p.secrets[secret] {
		write(p.t, filepath.Join(dir, key), text)
	}
	return dir
}

// serve runs the container of the Deployment, and returns the folder of its configuration.
func (p *production) serve(config string) (mounted string) {
	pod := deployment(p.t, p.objects, "steelyard")
	secretOf, configMap := make(map[string]string), ""
	for _, v := range pod.Volumes {
		switch {
		case v.Secret != nil:
			secretOf[v.Name] = v.Secret.SecretName
		case v.ConfigMap != nil:
			configMap = v.Name
		}
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		if m.Name == configMap {
			mounted = filepath.Join(p.dir, m.MountPath)
			mount(p.t, mounted, "..first", config)
		} else if secret := secretOf[m.Name]; secret != "" {
			p.mount(secret, m.MountPath)
		}
	}
	binary, err := proc.BuildSteelyard()
	p.must(err)
	args := slices.Clone(pod.Containers[0].Args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "/etc/", p.dir+"/etc/")
	}
	s := proctest.Start(p.t, proc.Spec{Name: "steelyard", Path: binary, Args: args, Dir: p.dir})
	probe := pod.Containers[0].ReadinessProbe.HTTPGet
	if probe.Scheme != "HTTPS" {
		p.t.Errorf("the probe asks by %s", probe.Scheme)
	}
	eventually(p.t, "it is ready", func() error {
		if !s.Running() {
			p.t.Fatalf("it has ended:\n%s", s.Tail())
		}
		code, body, err := p.ask(probe.Path, "")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
	return mounted
}

// ask sends a request to the admin listener, under the name that its certificate has.
func (p *production) ask(path, token string) (code int, body []byte, err error) {
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "https://"+p.admin+path, nil)
	p.must(err)
	request.Host = "steelyard-admin.steelyard.svc"
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Timeout: limit, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: p.authority, ServerName: request.Host}}}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

func (p *production) get(path string, into any) error {
	code, body, err := p.ask(path, p.token)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%d %s", code, body)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// envoyHas runs an Envoy with a client certificate of the overlay, and waits for its endpoints.
func (p *production) envoyHas(secret string, want ...string) {
	binary, err := proc.BuildSteelyard()
	p.must(err)
	dir := filepath.Join(p.dir, "envoy")
	out, err := exec.CommandContext(p.t.Context(), binary, "bootstrap", "--cluster", "llama", "--xds", p.xds,
		"--xds-server-name", "steelyard-xds.steelyard.svc", "--tls", "--tls-dir", p.mount(secret, "etc/envoy/tls"),
		"--out", dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0").CombinedOutput()
	if err != nil {
		p.t.Fatalf("steelyard bootstrap: %v\n%s", err, out)
	}
	bootstrap, err := os.ReadFile(filepath.Join(dir, "envoy.yaml"))
	p.must(err)
	envoy := proctest.Envoy(p.t, proc.EnvoyConfig{Bootstrap: bootstrap, Dir: p.dir})
	eventually(p.t, "Envoy has the endpoints", func() error {
		clusters, err := envoy.Clusters(p.t.Context())
		var have []string
		for _, h := range clusters["llama"] {
			have = append(have, h.Address)
		}
		if slices.Sort(have); err == nil && !slices.Equal(have, want) {
			err = fmt.Errorf("it has %v, want %v", have, want)
		}
		return err
	})
}

// onlyWithATokenAndACertificate wants both doors to be closed for others.
func (p *production) onlyWithATokenAndACertificate() {
	if code, _, err := p.ask("/api/v1/status", ""); err != nil || code != http.StatusUnauthorized {
		p.t.Errorf("without a token the admin API answers %d, %v", code, err)
	}
	conn, err := tls.Dial("tcp", p.xds, &tls.Config{RootCAs: p.authority, ServerName: "steelyard-xds.steelyard.svc",
		NextProtos: []string{"h2"}})
	if err == nil { // the server judges after the client's part of the handshake
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	if err == nil || !strings.Contains(err.Error(), "certificate required") {
		p.t.Errorf("without a certificate the xDS port answers %v", err)
	}
}
