package envoybootstrap

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"steelyard/e2e/rig/certs"
)

// TestNoServerOfAnotherNamespaceGetsRequestsInTheMesh: it has a certificate of the same authority.
func TestNoServerOfAnotherNamespaceGetsRequestsInTheMesh(t *testing.T) {
	authority := certs.New("mesh", nil)
	ofNamespace := func(namespace string) *certs.Pair {
		return certs.New("", authority, func(c *x509.Certificate) {
			c.URIs = []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/" + namespace + "/sa/default"}}
		})
	}
	var answered [2]atomic.Int64
	var all []endpoint
	for i, namespace := range []string{"models", "elsewhere"} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			answered[i].Add(1)
		}))
		server.Config.ErrorLog = log.New(io.Discard, "", 0) // of the connections that Envoy refuses
		address := server.Listener.Addr().String()
		server.Listener = tls.NewListener(server.Listener, &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert,
			ClientCAs: authority.Pool(), Certificates: []tls.Certificate{ofNamespace(namespace).TLS()}})
		server.Start()
		t.Cleanup(server.Close)
		all = append(all, endpoint{address: address, health: healthy})
	}
	cp := startControlPlane(t)
	cp.publish(assignment("llama", all...))

	o := IstioService{"llama", "llama.models.svc.cluster.local:8000"}.options(Options{XDS: cp.address}, true)
	o.Mode, o.Known, o.LogOwn, o.Listen, o.Admin = ModeShedding, nil, false, "127.0.0.1:0", "127.0.0.1:0"
	text, err := Render(o)
	if err != nil {
		t.Fatal(err)
	}
	envoy := startText(t, fromFiles(t, text, ofNamespace("gateways"), authority))
	if codes, _ := envoy.send(t, 100); codes[http.StatusOK] != 100 {
		t.Errorf("the answers are %v", codes)
	}
	if own, other := answered[0].Load(), answered[1].Load(); own != 100 || other != 0 {
		t.Errorf("%d requests went to the pool's server, %d to one of another namespace", own, other)
	}
	const refused = "cluster.llama.ssl.fail_verify_san"
	if stats, err := envoy.Stats(t.Context(), refused); err != nil || stats[refused] == 0 {
		t.Errorf("Envoy never met the server of the other namespace: %v, %v", stats, err)
	}
}

// fromFiles has an Envoy read the secrets that Istio's agent would send.
func fromFiles(t *testing.T, bootstrap []byte, own, authority *certs.Pair) []byte {
	t.Helper()
	dir := t.TempDir()
	inline := func(pem []byte) string { return fmt.Sprintf("{inline_string: %q}", pem) }
	for name, secret := range map[string]string{
		"default": "tls_certificate: {certificate_chain: " + inline(own.CertPEM()) + ", private_key: " +
			inline(own.KeyPEM()) + "}",
		"ROOTCA": "validation_context: {trusted_ca: " + inline(authority.CertPEM()) + "}",
	} {
		text := `resources: [{"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, name: ` +
			name + ", " + secret + "}]"
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	agents := regexp.MustCompile(`(?s)(name: (default|ROOTCA)\n[^#]*?)api_config_source:.*?sds-grpc}}]`)
	out := agents.ReplaceAll(bootstrap, []byte("${1}path_config_source: {path: "+dir+"/${2}.yaml}"))
	if strings.Contains(string(out), "sds-grpc") {
		t.Fatalf("secrets still come from Istio's agent:\n%s", out)
	}
	return out
}
