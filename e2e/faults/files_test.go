package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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
