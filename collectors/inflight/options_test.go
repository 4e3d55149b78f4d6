package inflight

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"steelyard/internal/credentials"
)

var quiet = slog.New(slog.DiscardHandler)

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFilesThatCannotBeUsedAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    Options
		err  []string
	}{
		{"none", Options{}, nil},
		{"password file that is not there", Options{PasswordFile: "/nonexistent/pw"},
			[]string{"redis", "password", "/nonexistent/pw"}},
		{"password file of sentinels that is not there", Options{SentinelPasswordFile: "/nonexistent/pw"},
			[]string{"redis", "password", "/nonexistent/pw"}},
		{"empty password file", Options{PasswordFile: writeFile(t, "pw", "\n")}, []string{"redis", "is empty"}},
		{"password file that is none",
			Options{PasswordFile: writeFile(t, "pw", strings.Repeat("x", maxPasswordFile+1))},
			[]string{"redis", "longer than 65536 bytes"}},
		{"CA that is not there", Options{TLS: &credentials.Client{CAFile: "/nonexistent/ca"}},
			[]string{"redis: tls", "/nonexistent/ca"}},
		{"CA that is none", Options{TLS: &credentials.Client{CAFile: writeFile(t, "ca", "x")}},
			[]string{"redis: tls", "no PEM certificate"}},
		{"certificate without key", Options{TLS: &credentials.Client{CertFile: writeFile(t, "crt", "x")}},
			[]string{"redis: tls", "client certificate"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.Credentials = credentials.New(quiet)
			_, err := New(tt.o, nil, quiet)
			wantError(t, err, tt.err...)
			_, err = NewHash(tt.o, "key")
			wantError(t, err, tt.err...)
		})
	}
}

func TestPasswordComesWithoutItsNewline(t *testing.T) {
	got, err := passwordIn(t.Context(), writeFile(t, "pw", " se cret \r\n"))
	if got != " se cret " || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
