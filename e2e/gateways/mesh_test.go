package gateways

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// securePort is where the servers of the mesh listen.
const securePort = "8443"

// strict has servers that take the mutual TLS of the mesh only, as the sidecars of their Pods would.
func (r *rig) strict() {
	r.removePods("llama", servers[:3]...) // which have these addresses
	config := meshTLS(r)
	for _, ip := range servers[:3] {
		secure(r, ip, config)
	}
	r.apply(`
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: models}
spec: {mtls: {mode: STRICT}}
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: secure, namespace: models}
spec: {selector: {matchLabels: {app: secure}}, targetPorts: [{number: %[1]s}]}
`, securePort)
	for _, ip := range servers[:3] {
		r.apply(podOf, "secure", dashed(ip), ip, "security.istio.io/tlsMode: istio", "models")
	}
	r.apply(serviceOf, "secure", 8000, securePort, endpointsOf(servers[:3]), "models")
	r.route("secure", r.gateway.pool("secure", 1))
	r.answers("secure")
	l := r.send("secure")
	l.more(40)
	r.gateway.(*istio).mesh = true
	r.gateway.serve(r, "secure")
	r.port = securePort
	r.follows(l, "secure", servers[1])
	r.must(r.control.Kill()) // the fallback speaks it, too
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); {
		l.more(20)
	}
	r.serve()
	r.follows(l, "secure", servers[2])
	l.end()
}

// meshTLS speaks as a sidecar would: Istio's authority vouches for both ends.
func meshTLS(r *rig) *tls.Config {
	r.t.Helper()
	o := r.get("v1", "Secret", "istio-system", "istio-ca-secret")
	data, _, err := unstructured.NestedStringMap(o.Object, "data")
	r.must(err)
	block := func(name string) []byte {
		text, err := base64.StdEncoding.DecodeString(data[name])
		r.must(err)
		b, _ := pem.Decode(text)
		return b.Bytes
	}
	authority, err := x509.ParseCertificate(block("ca-cert.pem"))
	r.must(err)
	signer, err := x509.ParsePKCS1PrivateKey(block("ca-key.pem"))
	r.must(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	r.must(err)
	id, err := url.Parse("spiffe://cluster.local/ns/models/sa/default")
	r.must(err)
	certificate, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1),
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), URIs: []*url.URL{id},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, authority, &key.PublicKey, signer)
	r.must(err)
	pool := x509.NewCertPool()
	pool.AddCert(authority)
	return &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}},
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if !slices.Contains(hello.SupportedProtos, "istio") {
				return nil, errors.New("the client does not speak as one of the mesh")
			}
			return nil, nil
		},
		VerifyConnection: func(s tls.ConnectionState) error {
			want := "spiffe://cluster.local/ns/models/sa/eg-istio"
			if !slices.ContainsFunc(s.PeerCertificates[0].URIs, func(u *url.URL) bool { return u.String() == want }) {
				return fmt.Errorf("the client is %v", s.PeerCertificates[0].URIs)
			}
			return nil
		}}
}

// secure serves what a model server has in the mesh.
func secure(r *rig, ip string, config *tls.Config) {
	r.t.Helper()
	listener, err := tls.Listen("tcp", ip+":"+securePort, config)
	r.must(err)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: ip + ":8000"})
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: time.Minute,
		ErrorLog: log.New(io.Discard, "", 0)} // Steelyard asks for metrics without TLS
	go func() { _ = server.Serve(listener) }()
	r.whole.Cleanup(func() { _ = server.Close() })
}
