package follow

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	grpccredentials "google.golang.org/grpc/credentials"

	"steelyard/e2e/rig/certs"
	"steelyard/e2e/rig/grpctest"
	"steelyard/internal/credentials"
	"steelyard/xds/loads/loadsv1"
)

// TestTheLogSaysWhichCertificateIsNotAccepted, also where the stream was lost before for another reason.
func TestTheLogSaysWhichCertificateIsNotAccepted(t *testing.T) {
	own := certs.New("steelyard", nil)
	for _, c := range []struct {
		name, want string
		authority  *certs.Pair
		clients    tls.ClientAuthType
	}{
		{"the server's, of another authority", "unknown authority", certs.New("another", nil), tls.NoClientCert},
		{"the client's, which it does not have", "certificate required", own, tls.RequireAndVerifyClientCert},
	} {
		t.Run(c.name, func(t *testing.T) {
			address, _ := grpctest.Serve(t, func(g *grpc.Server) {
				loadsv1.RegisterLoadsServer(g, loadsv1.UnimplementedLoadsServer{})
			}, grpc.Creds(grpccredentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{own.TLS()},
				ClientAuth: c.clients, ClientCAs: own.Pool()})))
			log := followed(t, address, c.authority, c.want)
			if strings.Count(log, c.want) != 1 || strings.Count(log, "\n") != 1 {
				t.Errorf("want one line, of the certificate; the log has\n%s", log)
			}
		})
	}
}

// followed returns the log of a follower that was lost before, and then fails to connect with an error that says want.
func followed(t *testing.T, address string, authority *certs.Pair, want string) string {
	t.Helper()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	if err := authority.Save(ca, filepath.Join(dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	transport, err := TLS(t.Context(), credentials.New(slog.New(slog.DiscardHandler)), credentials.Client{CAFile: ca})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := Dial(address, transport)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var log bytes.Buffer // written by Run, and read after it
	f := New(conn, "envoy-1", []string{"llama"}, slog.New(slog.NewTextHandler(&log, nil)))
	f.setState(context.DeadlineExceeded)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	for err := f.Status(); ctx.Err() == nil && (err == nil || !strings.Contains(err.Error(), want)); err = f.Status() {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return log.String()
}
