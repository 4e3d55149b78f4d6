package inflight

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"steelyard/internal/credentials"
)

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOptionsAreRefusedWithWhatToWriteInstead(t *testing.T) {
	one := []string{"127.0.0.1:6379"}
	tests := []struct {
		name string
		o    Options
		err  []string
	}{
		{"defaults", Options{Addresses: one}, nil},
		{"no address", Options{}, []string{"addresses", "at least one"}},
		{"no port", Options{Addresses: []string{"localhost"}}, []string{`"localhost" is not host:port`}},
		{"two servers in single mode", Options{Addresses: []string{"a:1", "b:1"}},
			[]string{"exactly one, got 2", "sentinel", "cluster"}},
		{"two nodes in cluster mode", Options{Addresses: []string{"a:1", "b:1"}, Mode: ModeCluster}, nil},
		{"unknown mode", Options{Addresses: one, Mode: "ring"}, []string{`mode "ring"`, "single, sentinel or cluster"}},
		{"sentinel without a master's name", Options{Addresses: one, Mode: ModeSentinel},
			[]string{"master_name is missing"}},
		{"a master's name without sentinel", Options{Addresses: one, MasterName: "m"},
			[]string{`master_name "m"`, "leave it out"}},
		{"negative database", Options{Addresses: one, DB: -1}, []string{"db -1"}},
		{"database in cluster mode", Options{Addresses: one, Mode: ModeCluster, DB: 3},
			[]string{"db 3", "leave db out"}},
		{"user without password", Options{Addresses: one, Username: "u"}, []string{"password_file is missing", `"u"`}},
		{"password of sentinels without sentinels", Options{Addresses: one, SentinelPasswordFile: "/nonexistent/pw"},
			[]string{"sentinel_password_file has no meaning in mode", "/nonexistent/pw"}},
		{"user of sentinels without password", Options{Addresses: one, Mode: ModeSentinel, MasterName: "m",
			SentinelUsername: "u"}, []string{"sentinel_password_file is missing", `"u"`}},
		{"password file that is not there", Options{Addresses: one, PasswordFile: "/nonexistent/pw"},
			[]string{"password", "/nonexistent/pw"}},
		{"empty password file", Options{Addresses: one, PasswordFile: writeFile(t, "pw", "\n")}, []string{"is empty"}},
		{"password file that is none", Options{Addresses: one,
			PasswordFile: writeFile(t, "pw", strings.Repeat("x", maxPasswordFile+1))},
			[]string{"longer than 65536 bytes"}},
		{"timeout above interval", Options{Addresses: one, Interval: 50 * time.Millisecond,
			Timeout: 80 * time.Millisecond}, []string{"timeout 80ms is above the interval 50ms"}},
		{"negative interval", Options{Addresses: one, Interval: -1}, []string{"interval -1ns is below 1ms"}},
		{"short interval shortens the default timeout", Options{Addresses: one, Interval: 10 * time.Millisecond}, nil},
		{"CA that is not there", Options{Addresses: one, TLS: &credentials.Client{CAFile: "/nonexistent/ca"}},
			[]string{"tls", "/nonexistent/ca"}},
		{"CA that is none", Options{Addresses: one, TLS: &credentials.Client{CAFile: writeFile(t, "ca", "x")}},
			[]string{"no PEM certificate"}},
		{"certificate without key",
			Options{Addresses: one, TLS: &credentials.Client{CertFile: writeFile(t, "crt", "x")}},
			[]string{"client certificate"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(tt.o, nil, nil)
			if len(tt.err) > 0 {
				tt.err = append([]string{"redis"}, tt.err...)
			}
			wantError(t, err, tt.err...)
		})
	}
}

func TestDefaultsAreThoseOfTheDocumentation(t *testing.T) {
	got := Options{}.withDefaults()
	if got.Mode != "single" || got.Interval != 50*time.Millisecond || got.Timeout != 40*time.Millisecond {
		t.Errorf("mode %q, interval %v, timeout %v", got.Mode, got.Interval, got.Timeout)
	}
}

func TestPasswordComesWithoutItsNewline(t *testing.T) {
	got, err := passwordIn(t.Context(), writeFile(t, "pw", " se cret \r\n"))
	if got != " se cret " || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
