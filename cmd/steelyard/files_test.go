package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"steelyard/controlplane/config"
	"steelyard/e2e/rig/certs"
	"steelyard/e2e/rig/proc"
)

// pathKeys finds the values of all keys that name a file, by the schema; n is nil where the file has no such section.
func pathKeys(t reflect.Type, at string, n *yaml.Node, found map[string][]*yaml.Node) {
	for i := range t.NumField() {
		f := t.Field(i)
		key := f.Tag.Get("yaml")
		if key == ",inline" {
			pathKeys(f.Type, at, n, found)
			continue
		}
		path, value := at+"."+key, below(n, key)
		if f.Tag.Get("kind") == "path" {
			found[path] = append(found[path], value...)
			continue
		}
		below := f.Type
		for below.Kind() == reflect.Pointer || below.Kind() == reflect.Slice {
			below = below.Elem()
		}
		if below.Kind() != reflect.Struct {
			continue
		}
		pathKeys(below, path, nil, found) // so that each key is there
		for _, v := range value {
			for _, item := range itemsOf(v) {
				pathKeys(below, path, item, found)
			}
		}
	}
}

// below returns the value of a key of a mapping, if it has one.
func below(n *yaml.Node, key string) []*yaml.Node {
	for i := 0; n != nil && n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1 : i+2]
		}
	}
	return nil
}

func itemsOf(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.SequenceNode {
		return n.Content
	}
	return []*yaml.Node{n}
}

// An everything is a configuration with all keys, whose files can be read.
type everything struct {
	dir   string
	pair  *certs.Pair
	lines []string
	keys  map[string]*yaml.Node // that name a file, by their path in the schema
}

func newEverything(t *testing.T) *everything {
	t.Helper()
	named := func(c *x509.Certificate) { c.DNSNames = []string{"steelyard.test"} }
	e := &everything{dir: t.TempDir(), pair: certs.New("all", nil, named), keys: map[string]*yaml.Node{}}
	text, err := os.ReadFile("../../steelyard.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(?m)^( *)#([^ #\n])`).ReplaceAll(text, []byte("$1$2"))
	text = regexp.MustCompile(`\b10\.0\.0\.`).ReplaceAll(text, []byte("127.0.0.")) // nothing leaves this machine
	text = bytes.ReplaceAll(text, []byte("whisper.models.svc.cluster.local"), []byte("localhost"))
	text = bytes.ReplaceAll(text, []byte("steelyard.internal:18000"), []byte("localhost:18009"))
	e.lines = strings.Split(string(text), "\n")
	for path, values := range e.find(t) {
		if len(values) == 0 {
			t.Fatalf("%s is not in the example", path)
		}
		for _, v := range values {
			e.put(v, e.readable(t, path[strings.LastIndex(path, ".")+1:]))
		}
	}
	for path, values := range e.find(t) {
		e.keys[path] = values[0]
	}
	return e
}

func (e *everything) find(t *testing.T) map[string][]*yaml.Node {
	t.Helper()
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(strings.Join(e.lines, "\n")), &document); err != nil {
		t.Fatal(err)
	}
	found := map[string][]*yaml.Node{}
	pathKeys(reflect.TypeFor[config.Config](), "", document.Content[0], found)
	return found
}

// put replaces a value; each has a line of its own.
func (e *everything) put(n *yaml.Node, value string) {
	line := &e.lines[n.Line-1]
	*line = (*line)[:n.Column-1] + fmt.Sprintf("%q", value)
}

// readable writes a file that is good for a key of this name.
func (e *everything) readable(t *testing.T, key string) string {
	t.Helper()
	content, ok := map[string]string{
		"cert_file": string(e.pair.CertPEM()), "client_ca_file": string(e.pair.CertPEM()),
		"ca_file": string(e.pair.CertPEM()), "key_file": string(e.pair.KeyPEM()), "tokens_file": testTokens,
		"file": "- targets: [127.0.0.9:8000]\n",
		"kubeconfig": "current-context: a\ncontexts: [{name: a, context: {cluster: a}}]\n" +
			"clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\n",
	}[key]
	if !ok {
		content = "secret"
	}
	path := filepath.Join(e.dir, key+".yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// with writes the configuration with another value of one key.
func (e *everything) with(t *testing.T, key, value string, listen ...string) string {
	t.Helper()
	changed := &everything{lines: slices.Clone(e.lines)}
	if key != "" {
		changed.put(e.keys[key], value)
	}
	text := strings.Join(changed.lines, "\n")
	for i, address := range listen {
		text = strings.Replace(text, []string{"127.0.0.1:18000", "127.0.0.1:19000", "127.0.0.1:18001"}[i], address, 1)
	}
	path := filepath.Join(t.TempDir(), "steelyard.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// unreadable makes what is no regular file of a bounded size. It returns the reason of each, by its path.
func unreadable(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name+".yaml") }
	for _, err := range []error{syscall.Mkfifo(at("pipe"), 0o600), os.Mkdir(at("folder"), 0o700),
		os.Symlink("/dev/zero", at("device")), os.WriteFile(at("large"), nil, 0o600), os.Truncate(at("large"), 1<<30)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return map[string]string{at("pipe"): "a named pipe", at("folder"): "a directory", at("device"): "a device",
		at("large"): "larg|long"}
}

// TestEachKeyThatNamesAFileRefusesWhatIsNoFile: check says which key, which path and what is wrong, and never waits.
func TestEachKeyThatNamesAFileRefusesWhatIsNoFile(t *testing.T) {
	e := newEverything(t)
	if status, _, stderr := steelyard(t, "check", "-c", e.with(t, "", "")); status != 0 {
		t.Fatalf("status %d with all keys, and good files: %s", status, stderr)
	}
	for path, what := range unreadable(t) {
		for key, n := range e.keys {
			file := e.with(t, key, path)
			status, out, stderr := steelyard(t, "check", "--json", "-c", file)
			var got checked
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatalf("%s: %v: %s%s", key, err, out, stderr)
			}
			name := key[strings.LastIndex(key, ".")+1:]
			if status == 0 || !slices.ContainsFunc(got.Findings, func(f finding) bool {
				return f.Severity == severityError && f.File == file && f.Line == n.Line &&
					strings.Contains(f.Text, name) &&
					strings.Contains(f.Text, path) && regexp.MustCompile(what).MatchString(f.Text)
			}) {
				t.Errorf("%s: %s: status %d, %+v; want an error in line %d that it is %s", key, path, status,
					got.Findings,
					n.Line, what)
			}
		}
	}
}

// TestServeDoesNotHangAtAnyFile: it ends and says why, or it serves without that file.
func TestServeDoesNotHangAtAnyFile(t *testing.T) {
	binary, err := proc.BuildSteelyard()
	if err != nil {
		t.Fatal(err)
	}
	e := newEverything(t)
	for key := range e.keys {
		t.Run(key[1:], func(t *testing.T) {
			t.Parallel()
			pipe := filepath.Join(t.TempDir(), "pipe.yaml")
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			free, err := proc.FreeAddresses(3)
			if err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			c := exec.CommandContext(t.Context(), binary, "serve", "-c", e.with(t, key, pipe, free...))
			c.Stderr = &stderr
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- c.Wait() }()
			if e.answers(t, free[1], ended) {
				_ = c.Process.Kill()
				<-ended
			} else if !strings.Contains(stderr.String(), pipe+" is a named pipe") {
				t.Errorf("it ended, and said %s", stderr.String())
			}
		})
	}
}

// answers waits until /healthz answers, or until the process has ended.
func (e *everything) answers(t *testing.T, admin string, ended <-chan error) bool {
	t.Helper()
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: e.pair.Pool(), Certificates: []tls.Certificate{e.pair.TLS()}}}}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		resp, err := client.Get("https://" + admin + "/healthz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return true
			}
		}
		select {
		case <-ended:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatal("it neither ended nor answered")
	return false
}
