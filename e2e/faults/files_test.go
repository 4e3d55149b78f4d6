package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/testbed"
)

// pipe makes a named pipe without a writer.
func pipe(t *testing.T, path string) string {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// check runs steelyard check and returns its exit status and its standard error.
func check(t *testing.T, path string) (status int, said string) {
	t.Helper()
	binary, err := proc.BuildSteelyard()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Limit)
	defer cancel()
	var errs strings.Builder
	cmd := exec.CommandContext(ctx, binary, "check", "--config", path)
	cmd.Stderr = &errs
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("check of %s did not end within %v", path, testbed.Limit)
	}
	return cmd.ProcessState.ExitCode(), errs.String()
}

func TestCheckOfAFileThatNeverEndsFailsAtOnce(t *testing.T) {
	if _, err := proc.BuildSteelyard(); err != nil { // which takes its time
		t.Fatal(err)
	}
	dir := t.TempDir()
	endless := pipe(t, filepath.Join(dir, "pipe"))
	naming := func(name, scrape, top string) string {
		path := filepath.Join(dir, name)
		text := fmt.Sprintf("%s\nclusters:\n- name: llama\n  engine: vllm\n"+
			"  endpoints: {static: [{address: 127.0.0.1:9}]}\n  scrape: {%s}\n", top, scrape)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, password := "xds: {tls: {cert_file: "+endless+", key_file: /dev/null}}",
		"redis: {addresses: [127.0.0.1:1], password_file: "+endless+"}"
	for path, says := range map[string]string{
		endless:     endless + " is a named pipe, not a regular file",
		"/dev/zero": "/dev/zero is a device, not a regular file",
		naming("token.yaml", "bearer_token_file: "+endless, ""): "token.yaml:6:12: " +
			"clusters[llama].scrape.bearer_token_file: ",
		naming("ca.yaml", "scheme: https, tls: {ca_file: /dev/zero}", ""): "ca.yaml:6:33: " +
			"clusters[llama].scrape.tls.ca_file: /dev/zero is a device",
		naming("cert.yaml", "", cert):         "cert.yaml:1:13: xds.tls.cert_file: " + endless + " is a named pipe",
		naming("password.yaml", "", password): "password.yaml:1:35: redis.password_file: ",
	} {
		began := time.Now()
		status, said := check(t, path)
		if status != 1 || !strings.Contains(said, says) || !strings.Contains(said, "not a regular file") {
			t.Errorf("%s: status %d, %q; want %q", path, status, said, says)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: refused after %v", path, took)
		}
	}
}

// Scrape loops read these files again and again.
func TestATokenAndAuthoritiesThatNeverEndFailScrapesAndHoldNothingUp(t *testing.T) {
	for name, scrape := range map[string]string{
		"token":       "bearer_token_file: PIPE",
		"authorities": "scheme: https, tls: {ca_file: PIPE}",
	} {
		endless := pipe(t, filepath.Join(t.TempDir(), "pipe"))
		pool := testbed.Pool(t, 1)
		f := withoutEnvoys(t, testbed.Plan{Servers: pool,
			Cluster: "scrape: {" + strings.ReplaceAll(scrape, "PIPE", endless) + "}"})
		f.Eventually(name+": the source says why it fails", func() error {
			s, err := f.Source("scrape")
			if err == nil && !strings.Contains(s.LastError, endless+" is a named pipe") {
				err = fmt.Errorf("%+v", s)
			}
			return err
		})
		began := time.Now()
		if err := f.Control.Stop(); err != nil {
			t.Errorf("%s: SIGTERM: %v", name, err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("%s: it ended %v after SIGTERM", name, took)
		}
	}
}

func TestAConfigurationThatNeverEndsIsRefusedAndHoldsNothingUp(t *testing.T) {
	const static = "endpoints: {static: [{address: 127.0.0.1:9}]}"
	f := withoutEnvoys(t, testbed.Plan{Cluster: static})
	swap := func() {
		if err := os.Rename(pipe(t, f.Config+".pipe"), f.Config); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(says string) func() error {
		return func() error {
			s, err := f.Status()
			if err == nil && (s.LastReload.OK || !strings.Contains(s.LastReload.Error, says)) {
				err = fmt.Errorf("last reload %+v", s.LastReload)
			}
			return err
		}
	}
	swap()
	f.Eventually("the status says that the configuration is a pipe", refused("is a named pipe, not a regular file"))
	if failed := f.Metric("steelyard_config_last_reload_successful"); failed != 0 {
		t.Errorf("steelyard_config_last_reload_successful is %v, want 0", failed)
	}

	f.WriteConfig(static + "\ncapacity: 4")
	f.Eventually("the good file is applied", func() error {
		s, err := f.Status()
		if err == nil && (!s.LastReload.OK || s.ConfigGeneration != 2) {
			err = fmt.Errorf("generation %d, last reload %+v", s.ConfigGeneration, s.LastReload)
		}
		return err
	})

	swap()
	f.Eventually("the second pipe is refused too", refused("is a named pipe"))
	began := time.Now()
	if err := f.Control.Stop(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it ended %v after SIGTERM", took)
	}
}
