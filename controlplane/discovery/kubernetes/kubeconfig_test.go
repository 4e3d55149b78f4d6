package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAFileOfAKubeconfigThatNeverEndsIsRefused: a named pipe has no end, and the others are too large, or no files.
func TestAFileOfAKubeconfigThatNeverEndsIsRefused(t *testing.T) {
	dir := t.TempDir()
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1<<30); err != nil {
		t.Fatal(err)
	}
	kubeconfig := func(cluster, user string) string {
		path := filepath.Join(dir, "kubeconfig")
		text := fmt.Appendf(nil, "current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"+
			"clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'%s}}]\nusers: [{name: a, user: {%s}}]\n",
			cluster, user)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, what := range map[string]string{
		"pipe": "a named pipe, not a regular file", dir: "a directory, not a regular file",
		"large": "larger than 1048576 bytes", "/dev/zero": "a device, not a regular file",
	} {
		at := name
		if !filepath.IsAbs(name) {
			at = filepath.Join(dir, name) // as in the kubeconfig, from its folder
		}
		for key, text := range map[string]func() string{
			"":                      func() string { return at },
			"certificate-authority": func() string { return kubeconfig(", certificate-authority: "+name, "token: b") },
			"client-certificate": func() string {
				return kubeconfig("", "client-certificate: "+name+", client-key: "+name)
			},
			"tokenFile":  func() string { return kubeconfig("", "tokenFile: "+name) },
			"tokenFile:": func() string { return kubeconfig("", "token: b, tokenFile: "+name) },
		} {
			path := text()
			err := CheckKubeconfig(t.Context(), path)
			if err == nil || !strings.Contains(err.Error(), "reading kubeconfig "+path+": "+key) ||
				!strings.Contains(err.Error(), at+" is "+what) {
				t.Errorf("%s as %s: %v, want that it is %s", name, key, err, what)
			}
		}
	}
	if _, err := tokenFile(pipe).Token(); err == nil || !strings.Contains(err.Error(), pipe+" is a named pipe") {
		t.Errorf("a token file that became a pipe: %v", err)
	}
	if _, err := tokenFile(large).Token(); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a token file that became large: %v", err)
	}
}
