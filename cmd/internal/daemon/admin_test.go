package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"steelyard/controlplane/config"
	"steelyard/e2e/rig/output"
	"steelyard/internal/api"
)

// TestTheAdminListenerSpeaksTLSAndFollowsItsTokens: a token that leaves the file is refused, and while the file cannot
// be read the others stay.
func TestTheAdminListenerSpeaksTLSAndFollowsItsTokens(t *testing.T) {
	ca, caKey, _, _ := identity(t, "authority", nil, nil)
	_, _, cert, key := identity(t, "steelyard", ca, caKey)
	file := filepath.Join(t.TempDir(), "tokens")
	write := func(lines string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	const first, second = "0123456789abcdef-1", "0123456789abcdef-2"
	write("view one " + first + "\nview two " + second + "\n")
	cfg := parse(t, pool)
	cfg.Admin.TLS = &config.ServerTLS{CertFile: cert, KeyFile: key}
	cfg.Admin.TokensFile = file
	log := new(output.Buffer)
	d, _ := serveLogged(t, cfg, slog.New(slog.NewTextHandler(log, nil)))
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	ask := func(token string, s *api.Status) (int, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"https://"+d.AdminAddress()+"/api/v1/status", nil)
		if err != nil {
			return 0, err
		}
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := client.Do(r)
		if err != nil {
			return 0, err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return response.StatusCode, nil
		}
		return response.StatusCode, json.NewDecoder(response.Body).Decode(s)
	}
	answers := func(token string, want int, problem string) func() error {
		return func() error {
			var s api.Status
			code, err := ask(token, &s)
			if err != nil {
				return fmt.Errorf("%d (%w), want %d", code, err, want)
			}
			if code != want {
				return fmt.Errorf("%d, want %d", code, want)
			}
			if problem == "" {
				return nil
			}
			return hasProblem(s, problem)
		}
	}
	eventually(t, "both tokens are accepted", answers(first, 200, ""))
	eventually(t, "both tokens are accepted", answers(second, 200, ""))
	write("view two " + second + "\n")
	eventually(t, "the one that has left is refused", answers(first, 401, ""))
	write("nonsense\n")
	eventually(t, "the other stays, and the file is a problem",
		answers(second, 200, "the file of admin tokens cannot be used, the previous ones (1) stay"))
	if strings.Contains(log.String(), first) || strings.Contains(log.String(), second) {
		t.Error("a token is in the log")
	}
	if response, err := http.Get("http://" + d.AdminAddress() + "/healthz"); err == nil {
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			t.Error("it answers in plain text")
		}
	}
}

func TestAnOpenDoorIsLoggedAtTheStart(t *testing.T) {
	cfg := parse(t, pool)
	cfg.XDS.Listen, cfg.XDS.Insecure = "0.0.0.0:0", true
	cfg.Admin.Listen, cfg.Admin.Insecure = "0.0.0.0:0", true
	log := new(output.Buffer)
	d, err := New(cfg, Options{Version: "test", Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	status := d.Status()
	d.Close()
	for _, want := range []string{"the xDS port is open to other machines",
		"the admin listener is open to other machines"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no line %q in %s", want, log.String())
		}
	}
	if !status.XDSAccess.Insecure || status.XDSAccess.Loopback {
		t.Errorf("%+v", status.XDSAccess)
	}
}
