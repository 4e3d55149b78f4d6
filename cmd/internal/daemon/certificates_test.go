package daemon

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"steelyard/controlplane/config"
	"steelyard/e2e/rig/output"
	"steelyard/internal/api"
)

const oneDay = 24 * time.Hour

func pairOf(t *testing.T, certFile, keyFile string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestEveryRefusedHandshakeIsCountedByItsReasonAndLoggedOnce(t *testing.T) {
	ca, caKey, caFile, _ := identity(t, "authority", nil, nil)
	_, _, serverCert, serverKey := identity(t, "steelyard", ca, caKey)
	_, _, expiredCert, expiredKey := identityUntil(t, time.Now().Add(-time.Hour), "late", ca, caKey,
		x509.ExtKeyUsageClientAuth)
	_, _, usageCert, usageKey := identityUntil(t, time.Now().Add(time.Hour), "server", ca, caKey,
		x509.ExtKeyUsageServerAuth)
	strangers, strangersKey, _, _ := identity(t, "strangers", nil, nil)
	_, _, otherCert, otherKey := identity(t, "stranger", strangers, strangersKey)
	cfg := parse(t, fmt.Sprintf(counted, "127.0.0.1:1"))
	cfg.XDS.TLS = &config.ServerTLS{CertFile: serverCert, KeyFile: serverKey, ClientCAFile: caFile}
	log := new(output.Buffer)
	d, base := serveLogged(t, cfg, slog.New(slog.NewTextHandler(log, nil)))

	roots := x509.NewCertPool()
	roots.AddCert(ca)
	shake := func(c *tls.Config) {
		c.NextProtos = []string{"h2"}
		conn, err := tls.Dial("tcp", d.XDSAddress(), c)
		if err == nil { // with TLS 1.3 a client sees the refusal afterwards
			_, _ = io.Copy(io.Discard, conn)
			conn.Close()
		}
	}
	with := func(cert, key string) *tls.Config {
		pair := pairOf(t, cert, key)
		return &tls.Config{RootCAs: roots,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
	}
	say := func(text string) {
		conn, err := net.Dial("tcp", d.XDSAddress())
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, text)
		if text != "" {
			_, _ = io.Copy(io.Discard, conn)
		}
		conn.Close()
	}
	const times = 5
	for range times {
		shake(with(expiredCert, expiredKey))
		shake(with(otherCert, otherKey))
		shake(with(usageCert, usageKey))
		shake(&tls.Config{RootCAs: roots})
		shake(&tls.Config{}) // does not trust the authority of Steelyard
		shake(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
		say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		say("")
	}
	want := map[string]uint64{"timeout": 0, "other": 0}
	for _, reason := range []string{"expired", "unknown_authority", "bad_certificate", "no_certificate",
		"refused_by_client", "protocol", "not_tls", "closed"} {
		want[reason] = times
	}
	eventually(t, "every handshake is counted", func() error {
		var s api.Status
		if err := get(base, "/api/v1/status", &s); err != nil {
			return err
		}
		got := map[string]uint64{}
		for _, r := range s.RefusedHandshakes {
			got[r.Reason] = r.Count
			if r.Count > 0 && (r.LastAt.IsZero() || !strings.HasPrefix(r.LastPeer, "127.0.0.1:") || r.LastError == "") {
				return fmt.Errorf("%+v", r)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("counts (-want +got):\n%s", diff)
		}
		return hasProblem(s, "TLS handshakes on the xDS port are refused (expired): 5 since the start")
	})
	resp, err := http.Get(base + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	const series = `steelyard_refused_handshakes_total{reason="no_certificate"} 5`
	if !bytes.Contains(body, []byte(series)) {
		t.Errorf("/metrics does not have %s", series)
	}
	if n := strings.Count(log.String(), "reason=expired"); n != 1 {
		t.Errorf("%d log lines of %d handshakes with an expired certificate:\n%s", n, times, log.String())
	}
}

func hasProblem(s api.Status, text string) error {
	for _, p := range s.Problems {
		if strings.Contains(p.Message, text) {
			return nil
		}
	}
	return fmt.Errorf("no problem says %q: %+v", text, s.Problems)
}

func TestCertificatesInUseAreShownWithTheirEnd(t *testing.T) {
	in := func(days int) time.Time { return time.Now().Add(time.Duration(days)*oneDay + time.Hour) }
	ca, caKey, caFile, _ := identityUntil(t, in(400), "authority", nil, nil)
	_, _, serverCert, serverKey := identityUntil(t, in(13), "steelyard", ca, caKey)
	_, _, scrapeCert, scrapeKey := identityUntil(t, in(2), "scraper", ca, caKey)
	_, _, renewedCert, renewedKey := identityUntil(t, in(90), "scraper", ca, caKey)
	_, _, laterCert, laterKey := identityUntil(t, in(90), "steelyard", ca, caKey)
	cfg := parse(t, fmt.Sprintf(counted, "127.0.0.1:1"))
	cfg.XDS.TLS = &config.ServerTLS{CertFile: serverCert, KeyFile: serverKey, ClientCAFile: caFile}
	tlsOf := &config.ScrapeTLS{ClientTLS: config.ClientTLS{CAFile: caFile, CertFile: scrapeCert, KeyFile: scrapeKey}}
	cfg.Clusters[0].Scrape.Disabled, cfg.Clusters[0].Scrape.TLS = false, tlsOf
	d, base := serve(t, cfg)
	shows := func(want []string, problems ...string) func() error {
		return func() error {
			var s api.Status
			if err := get(base, "/api/v1/status", &s); err != nil {
				return err
			}
			var got []string
			for _, c := range s.Certificates {
				got = append(got, fmt.Sprintf("%s %s %.0f %s", c.Use, c.Subject, c.DaysLeft.Or(-1), c.Error))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				return fmt.Errorf("certificates (-want +got):\n%s", diff)
			}
			for _, p := range problems {
				if err := hasProblem(s, p); err != nil {
					return err
				}
			}
			return nil
		}
	}
	authorities := []string{"scrape_ca CN=authority 400 ", "xds_client_ca CN=authority 400 "}
	eventually(t, "the ends are known", shows(
		append([]string{"scrape_client CN=scraper 2 ", "xds CN=steelyard 13 "}, authorities...),
		"certificate CN=scraper in "+scrapeCert+" (scrape_client) expires in 2 d",
		"certificate CN=steelyard in "+serverCert+" (xds) expires in 13 d"))

	for from, to := range map[string]string{renewedCert: scrapeCert, renewedKey: scrapeKey, laterCert: serverCert,
		laterKey: serverKey} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	renewed := []string{"scrape_client CN=scraper 90 ", "xds CN=steelyard 90 "}
	eventually(t, "the renewed ones are shown", shows(append(slices.Clone(renewed), authorities...)))
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	conn, err := tls.Dial("tcp", d.XDSAddress(), &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if left := time.Until(conn.ConnectionState().PeerCertificates[0].NotAfter); left < 89*oneDay {
		t.Errorf("the listener presents a certificate that ends in %v", left)
	}

	if err := os.Rename(serverKey, scrapeKey); err != nil { // a renewal that went wrong
		t.Fatal(err)
	}
	broken := []string{
		fmt.Sprintf("scrape_client CN=scraper 90 %s as the key of %s (CN=scraper): tls: private key does not "+
			"match public key", scrapeKey, scrapeCert),
		fmt.Sprintf("xds CN=steelyard 90 stat %s: no such file or directory", serverKey)}
	eventually(t, "the faults are shown", shows(append(broken, authorities...),
		"(scrape_client) cannot be used, its previous content is in use"))
}

func TestACheckReadsTheFilesThatAreNamed(t *testing.T) {
	ca, caKey, caFile, caKeyFile := identity(t, "authority", nil, nil)
	_, _, cert, key := identity(t, "a", ca, caKey)
	_, _, _, otherKey := identity(t, "b", ca, caKey)
	_, _, oldCert, oldKey := identityUntil(t, time.Now().Add(-oneDay), "old", ca, caKey)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	encrypted := filepath.Join(t.TempDir(), "encrypted")
	locked := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY"})
	if err := os.WriteFile(encrypted, locked, 0o600); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"CERT": cert, "KEY": key, "CA": caFile, "SECRET": secret}
	const text = `xds: {tls: {cert_file: CERT, key_file: KEY, client_ca_file: CA}}
redis:
  addresses: [127.0.0.1:6379]
  password_file: SECRET
  tls: {ca_file: CA, cert_file: CERT, key_file: KEY}
clusters:
- name: llama
  engine: vllm
  endpoints: {static: [{address: 10.0.0.1:8000}]}
  scrape:
    scheme: https
    bearer_token_file: SECRET
    tls: {ca_file: CA, cert_file: CERT, key_file: KEY}
`
	for name, tt := range map[string]struct {
		line int // of the text that is changed
		old  string
		file string
		want string // of the line, %s is the file
	}{
		"all in order": {1, "CERT", cert, ""},
		"another key": {1, "KEY", otherKey,
			"1: xds.tls.key_file: %s as the key of CERT (CN=a): tls: private key does not match public key: write " +
				"the path of the private key (PEM) that belongs to cert_file"},
		"a certificate as the key": {1, "KEY", cert,
			"1: xds.tls.key_file: %s as the key of CERT (CN=a): tls: found a certificate rather than a key in the " +
				"PEM for the private key: write the path of the private key (PEM) that belongs to cert_file"},
		"a key as the certificate": {5, "CERT", caKeyFile,
			"5: redis.tls.cert_file: %s holds no PEM certificate (-----BEGIN CERTIFICATE-----): write the path of " +
				"a file with certificates (PEM)"},
		"a key with a passphrase": {1, "KEY", encrypted,
			"1: xds.tls.key_file: %s is encrypted, and nothing asks for its passphrase: openssl pkey -in %[1]s " +
				"writes it without: write the path of the private key (PEM) that belongs to cert_file"},
		"no certificate": {1, "CERT", "/nowhere",
			"1: xds.tls.cert_file: stat %s: no such file or directory: write the path of a file with certificates " +
				"(PEM)"},
		"an expired certificate": {13, "CERT", oldCert,
			"13: clusters[llama].scrape.tls.cert_file: %s has expired, on " +
				time.Now().Add(-oneDay).UTC().Format(time.DateOnly) + ": write the path of one that is renewed"},
		"a certificate that is a pipe": {1, "CERT", pipe,
			"1: xds.tls.cert_file: %s is a named pipe, not a regular file: write the path of a file with " +
				"certificates (PEM)"},
		"a key that is a pipe": {13, "KEY", pipe,
			"13: clusters[llama].scrape.tls.key_file: %s is a named pipe, not a regular file: write the path of " +
				"the private key (PEM) that belongs to cert_file"},
		"an authority that is a pipe": {1, "CA", pipe,
			"1: xds.tls.client_ca_file: %s is a named pipe, not a regular file: write the path of a file with " +
				"certificates (PEM)"},
		"a token that is a pipe": {12, "SECRET", pipe,
			"12: clusters[llama].scrape.bearer_token_file: reading bearer token from %[1]s: %[1]s is a named pipe, " +
				"not a regular file: write the path of a file with only the token"},
		"a password that is a pipe": {4, "SECRET", pipe,
			"4: redis.password_file: reading the password for Redis: %s is a named pipe, not a regular file: write " +
				"the path of a file with only the password"},
	} {
		lines := strings.Split(text, "\n")
		lines[tt.line-1] = strings.ReplaceAll(lines[tt.line-1], tt.old, "CHANGED")
		if tt.file == oldCert {
			lines[tt.line-1] = strings.ReplaceAll(lines[tt.line-1], "KEY", oldKey)
		}
		body := strings.Join(lines, "\n")
		want := tt.want
		if want != "" {
			want = "x.yaml:" + fmt.Sprintf(want, tt.file)
		}
		for placeholder, file := range files {
			body, want = strings.ReplaceAll(body, placeholder, file),
				strings.ReplaceAll(want, " "+placeholder+" ", " "+file+" ")
		}
		began := time.Now()
		_, err := config.Parse("x.yaml", []byte(strings.ReplaceAll(body, "CHANGED", tt.file)), CheckFiles)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if withoutColumn(got) != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
}

func TestACheckWarnsOfACertificateThatEndsSoon(t *testing.T) {
	for end, want := range map[time.Duration]int{oneDay: 1, 15 * oneDay: 0} {
		_, _, cert, key := identityUntil(t, time.Now().Add(end), "a", nil, nil)
		_, warnings, err := config.Examine("x.yaml", fmt.Appendf(nil, "xds: {tls: {cert_file: %s, key_file: %s}}\n"+
			"clusters: [{name: a, engine: vllm, endpoints: {static: [{address: 10.0.0.1:8000}]}}]\n", cert, key),
			CheckFiles)
		if err != nil || len(warnings) != want {
			t.Errorf("it ends in %v: %v, %v", end, warnings, err)
		}
	}
}

var column = regexp.MustCompile(`^(x\.yaml:\d+):\d+`)

// withoutColumn leaves the column out, which depends on where the temporary files are.
func withoutColumn(message string) string { return column.ReplaceAllString(message, "$1") }
