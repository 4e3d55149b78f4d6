package faults

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/testbed"
	"steelyard/internal/api"
	"steelyard/internal/files"
)

// noticed is how long Steelyard may take to report a file that does not answer: what it gives a file, and as much as a
// busy machine needs on top.
const noticed = files.Patience + 1500*time.Millisecond

// unresponsive makes a regular file whose open blocks until release is called, as on a mount whose server is gone: this
// process holds a lease on the file, and the kernel blocks the open for up to /proc/sys/fs/lease-break-time (45 s).
func unresponsive(t *testing.T, path, content string) (release func()) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() { f.Close() })
	t.Cleanup(release)
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatalf("leasing %s: %v", path, err)
	}
	return release
}

// TestACommandEndsWhenAFileThatItNeedsDoesNotAnswer: and says which one.
func TestACommandEndsWhenAFileThatItNeedsDoesNotAnswer(t *testing.T) {
	binary, err := proc.BuildSteelyard()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	const config = `
xds: {listen: "127.0.0.1:0", tls: {cert_file: CERT, key_file: KEY}}
admin: {listen: "127.0.0.1:0"}
clusters: [{name: llama, engine: vllm, endpoints: {static: [{address: "127.0.0.1:9"}]}}]
`
	_, _, cert, key := testbed.NewAuthority(t).Issue("steelyard", time.Now().Add(time.Hour))
	naming := func(name, cert, key string) string {
		path := filepath.Join(dir, name)
		text := strings.NewReplacer("CERT", cert, "KEY", key).Replace(config)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	hung, fifo := filepath.Join(dir, "hung.yaml"), pipe(t, filepath.Join(dir, "pipe.yaml"))
	unresponsive(t, hung, config)
	for _, file := range []struct{ path, says string }{
		{hung, hung + " has not answered within 2s: is it on a file system that hangs?"},
		{fifo, fifo + " is a named pipe, not a regular file"},
	} {
		var all sync.WaitGroup // they wait more than they work
		for _, args := range [][]string{
			{"serve", "--config", file.path},
			{"check", "--config", file.path},
			{"serve", "--config", naming("certificate.yaml", file.path, key)},
			{"serve", "--config", naming("key.yaml", cert, file.path)},
			{"simulate", "--scenario", file.path},
			{"simulate", "--scenario", "photoroom", "--config", file.path},
			{"simulate", "--trace", file.path},
			{"inspect", "--engine", "vllm", file.path},
		} {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), testbed.Limit)
				defer cancel()
				began := time.Now()
				out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
				took := time.Since(began)
				if err == nil || !strings.Contains(string(out), file.says) || took > noticed {
					t.Errorf("steelyard %v: %v after %v, %s\nwant an error within %v: %s",
						args, err, took, out, noticed, file.says)
				}
			})
		}
		all.Wait()
	}
}

// TestFilesThatDoNotAnswerAreReportedAndWhatRunsGoesOn: those that are read while Steelyard runs.
func TestFilesThatDoNotAnswerAreReportedAndWhatRunsGoesOn(t *testing.T) {
	t.Parallel()
	pool := testbed.Pool(t, 2)
	dir := t.TempDir()
	targets, token := filepath.Join(dir, "targets.yaml"), filepath.Join(dir, "token")
	list := fmt.Sprintf("- targets: ['%s', '%s']\n", pool[0].Address(), pool[1].Address())
	for path, text := range map[string]string{targets: list, token: "abc"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	yaml := "endpoints: {file: " + targets + "}\nscrape: {bearer_token_file: " + token + "}"
	f := start(t, testbed.Plan{Servers: pool, Cluster: yaml})
	traffic := f.Send(testbed.Steady(10 * time.Minute))
	good, err := os.ReadFile(f.Config)
	if err != nil {
		t.Fatal(err)
	}
	hungCA, pipeCA := filepath.Join(dir, "ca.pem"), pipe(t, filepath.Join(dir, "ca.pipe"))
	unresponsive(t, hungCA, "")
	redisWith := func(ca string) string {
		return string(good) + "redis: {addresses: ['127.0.0.1:9'], tls: {ca_file: " + ca + "}}\n"
	}
	const silent = " has not answered within 2s"
	for _, tt := range []struct {
		name, path, text string // what takes the place of the file; empty for a file that hangs
		reported         func() error
		restored         string
	}{
		{"the configuration hangs", f.Config, "", f.reloadFails(f.Config + silent), string(good)},
		{"its certificate hangs", f.Config, redisWith(hungCA), f.reloadFails(hungCA + silent), string(good)},
		{"its certificate is a pipe", f.Config, redisWith(pipeCA), f.reloadFails(pipeCA + " is a named pipe"),
			string(good)},
		{"the endpoints hang", targets, "", f.sourceSays("discovery", targets+silent), list},
		{"the token hangs", token, "", f.sourceSays("scrape", token+" has not answered in time"), "abc"},
	} {
		release := func() {}
		if tt.text == "" {
			release = unresponsive(t, tt.path+".hung", tt.restored)
			if err := os.Rename(tt.path+".hung", tt.path); err != nil {
				t.Fatal(err)
			}
		} else {
			f.Write(tt.path, tt.text)
		}
		began := time.Now()
		f.Eventually(tt.name+": it is reported", tt.reported)
		// A change is seen by the watch of the folder, or by the poll each 5 s.
		if took := time.Since(began); took > noticed {
			t.Errorf("%s: reported after %v, want at most %v", tt.name, took, noticed)
		} else {
			t.Logf("%s: reported after %v", tt.name, took)
		}
		f.goesOn(tt.name)
		f.Write(tt.path, tt.restored)
		f.Eventually(tt.name+": all is well once another file is in its place", f.untroubled)
		release()
	}
	if requests, failed := traffic.Stop(t); failed != 0 || requests == 0 {
		t.Errorf("%d of %d requests failed", failed, requests)
	}
}

// reloadFails wants the latest reload to have failed, and to be a problem, with this text.
func (f *fleet) reloadFails(text string) func() error {
	return func() error {
		s, err := f.Status()
		if err == nil && (s.LastReload.OK || !strings.Contains(s.LastReload.Error, text)) {
			err = fmt.Errorf("last reload %+v, want %q", s.LastReload, text)
		}
		return err
	}
}

// sourceSays wants the error of a source of the cluster to have this text.
func (f *fleet) sourceSays(name, text string) func() error {
	return func() error {
		s, err := f.Source(name)
		if err == nil && !strings.Contains(s.LastError, text) {
			err = fmt.Errorf("source %s: %+v, want %q", name, s, text)
		}
		return err
	}
}

// goesOn checks that Steelyard answers its probes and decides, on both endpoints.
func (f *fleet) goesOn(when string) {
	f.T.Helper()
	for _, path := range []string{"/healthz", "/readyz"} {
		resp, err := http.Get("http://" + f.Admin + path)
		if err != nil {
			f.T.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			f.T.Errorf("%s: %s answers %s", when, path, resp.Status)
		}
	}
	asked := time.Now()
	f.Eventually(when+": there is another decision", func() error {
		v, err := f.View()
		if err == nil && (!v.Decision.At.After(asked) || len(v.Endpoints) != 2) {
			err = fmt.Errorf("decision of %v, %d endpoints", v.Decision.At, len(v.Endpoints))
		}
		return err
	})
}

// untroubled wants the latest reload and all sources to be well.
func (f *fleet) untroubled() error {
	s, err := f.Status()
	if err != nil {
		return err
	}
	if !s.LastReload.OK {
		return fmt.Errorf("last reload: %s", s.LastReload.Error)
	}
	for _, name := range []string{"discovery", "scrape"} {
		if err := f.SourceIs(name, api.SourceOK); err != nil {
			return err
		}
	}
	return nil
}
