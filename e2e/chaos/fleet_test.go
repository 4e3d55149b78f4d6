package chaos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"steelyard/controlplane/config"
	"steelyard/e2e/rig/proc"
)

func TestTheConfigurationIsOneInAllItsForms(t *testing.T) {
	dir := t.TempDir()
	certs, err := newCertificates(filepath.Join(dir, "tls"))
	if err != nil {
		t.Fatal(err)
	}
	at, err := newAddresses()
	if err != nil {
		t.Fatal(err)
	}
	c := newConfigFile(filepath.Join(dir, "steelyard.yaml"), at, certs)
	for _, without := range []string{"", serverName(1)} {
		c.without, c.capacity = without, 5
		if err := c.write(); err != nil {
			t.Fatal(err)
		}
		got, err := config.Load(c.path)
		if err != nil {
			t.Fatalf("without %q: %v", without, err)
		}
		want := servers
		if without != "" {
			want--
		}
		if pool := got.Clusters[0]; len(pool.Endpoints.Static) != want || pool.Capacity != 5 {
			t.Errorf("without %q: %d endpoints of capacity %v, want %d of 5",
				without, len(pool.Endpoints.Static), pool.Capacity, want)
		}
	}
	if err := c.put(spoiled); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(c.path); err == nil {
		t.Error("the spoiled file is a configuration")
	}
}

func TestCertificatesAreReplacedAllAtOnce(t *testing.T) {
	certs, err := newCertificates(filepath.Join(t.TempDir(), "tls"))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(certs.cert(steelyardCert), certs.keyOf(steelyardCert))
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, c) // until the peer has seen the certificate
			c.Close()
		}
	}()
	if err := certs.shows(l.Addr().String()); err != nil {
		t.Error(err)
	}
	if err := certs.replace(); err != nil {
		t.Fatal(err)
	}
	err = certs.shows(l.Addr().String())
	if err == nil || !strings.Contains(err.Error(), "shows certificate 1, and the files hold 2") {
		t.Errorf("with the old certificate: %v", err)
	}
	for _, name := range []string{steelyardCert, envoyCert} {
		if _, err := tls.LoadX509KeyPair(certs.cert(name), certs.keyOf(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRequestsGoToTheEnvoysThatAreIn(t *testing.T) {
	r := newRotation(3)
	r.join(0)
	r.join(2)
	first, second, third := r.Pick(), r.Pick(), r.Pick()
	if first == second || first != third || first == 1 || second == 1 {
		t.Errorf("picked %d, %d, %d, want 0 and 2 in turn", first, second, third)
	}
	r.leave(first)
	if got := r.Pick(); got != second {
		t.Errorf("picked %d, want %d, which is in", got, second)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.drained(ctx, first); err == nil || !strings.Contains(err.Error(), "still has 2 requests") {
		t.Errorf("drained with two requests: %v", err)
	}
	r.Done(first)
	r.Done(first)
	if err := r.drained(t.Context(), first); err != nil {
		t.Error(err)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestALogReaderThatStallsBlocksItsWriterAndLosesNothing(t *testing.T) {
	dir := t.TempDir()
	l := &logReader{path: filepath.Join(dir, "log")}
	l.stalled.Lock()
	const lines = 4000
	var p *proc.Process
	err := l.run(func(stderr *os.File) (err error) {
		script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); echo "line $i, unread" >&2; done`, lines)
		p, err = proc.Start(proc.Spec{Path: "/bin/sh", Args: []string{"-c", script}, Dir: dir, Stderr: stderr})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the process ended although its log was not read: %v", err)
	}
	l.stalled.Unlock()
	if err := p.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	l.reading.Wait()
	if b, err := os.ReadFile(l.path); err != nil || strings.Count(string(b), "\n") != lines {
		t.Errorf("%d lines, %v; want %d", strings.Count(string(b), "\n"), err, lines)
	}
}

func TestALogReaderThatLeavesFailsItsWriterAndReadsTheNextProcess(t *testing.T) {
	dir := t.TempDir()
	l := &logReader{path: filepath.Join(dir, "log")}
	run := func(script string) (p *proc.Process) {
		t.Helper()
		err := l.run(func(stderr *os.File) (err error) {
			p, err = proc.Start(proc.Spec{Path: "/bin/sh", Args: []string{"-c", script}, Dir: dir, Stderr: stderr})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	// It ends with the status of a write that fails.
	first := run(`trap '' PIPE; while echo line >&2; do sleep 0.01; done; exit 7`)
	eventually(t, "the log is read", func() bool { b, err := os.ReadFile(l.path); return err == nil && len(b) > 0 })
	if err := l.leave(); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("the process ended with %v, want the status of a failed write", err)
	}
	if err := run(`echo another >&2`).Wait(t.Context()); err != nil {
		t.Error(err)
	}
	l.reading.Wait()
	if b, err := os.ReadFile(l.path); err != nil || !strings.HasSuffix(string(b), "another\n") {
		t.Errorf("the log ends with %q, %v", b, err)
	}
}

func TestAProcessThatEndsByItselfIsAComplaint(t *testing.T) {
	j, dir := newJournal(t), t.TempDir()
	u := &unit{name: "redis", journal: j, start: func(context.Context) (process, error) {
		args := []string{"-c", "echo out of luck; exit 3"}
		return proc.Start(proc.Spec{Name: "redis", Path: "/bin/sh", Args: args, Dir: dir})
	}}
	if err := u.up(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is a complaint", func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		complaints := strings.Join(j.wrong, "\n")
		return strings.Contains(complaints, "redis ended by itself: exit status 3") &&
			strings.Contains(complaints, "out of luck")
	})
	u.close()
}

func TestAnEndOutOfOrderIsAComplaint(t *testing.T) {
	const goesOn = "; echo ready; while :; do sleep 0.01; done"
	for _, tt := range []struct {
		name, trap string
		within     time.Duration
		want       string // in the complaint; empty: none
	}{
		{"in order", "exit 0", time.Minute, ""},
		{"a status", "exit 3", time.Minute, "exit status 3 after SIGTERM, want exit status 0"},
		{"too late", "sleep 0.2; exit 0", 100 * time.Millisecond, "to end after SIGTERM, want 100ms at most"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j, dir := newJournal(t), t.TempDir()
			start := func(ctx context.Context) (process, error) {
				args := []string{"-c", "trap '" + tt.trap + "' TERM" + goesOn}
				p, err := proc.Start(proc.Spec{Name: "part", Path: "/bin/sh", Args: args, Dir: dir})
				if err != nil {
					return nil, err
				}
				return p, p.WaitReady(ctx, func(context.Context) error {
					if b, err := os.ReadFile(p.LogFile()); err != nil || len(b) == 0 {
						return errors.New("its trap is not set")
					}
					return nil
				})
			}
			u := &unit{name: "part", journal: j, hooks: hooks{endsWithin: tt.within}, start: start}
			if err := u.up(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := u.restart(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			complaints := strings.Join(j.wrong, "\n")
			if (complaints == "") != (tt.want == "") || !strings.Contains(complaints, tt.want) {
				t.Errorf("complaints %q, want %q", complaints, tt.want)
			}
			u.close()
		})
	}
}

func TestASteelyardThatIsSilentIsAComplaintOnlyWhileItRuns(t *testing.T) {
	j := newJournal(t)
	w := &watch{journal: j}
	silent := errors.New("no answer")
	late := func() { w.good = w.good.Add(-2 * silence) }
	for _, step := range []struct {
		name string
		do   func()
		want int // complaints so far
	}{
		{"not started", func() { w.expect(false); late(); w.judge(silent) }, 0},
		{"just started", func() { w.expect(true); w.judge(silent) }, 0},
		{"silent for long", func() { late(); w.judge(silent) }, 1},
		{"the same silence", func() { w.judge(silent) }, 1},
		{"an answer", func() { w.judge(nil) }, 1},
		{"silent again", func() { late(); w.judge(silent) }, 2},
		{"paused", func() { w.expect(false); late(); w.judge(silent) }, 2},
	} {
		if step.do(); len(j.wrong) != step.want {
			t.Fatalf("%s: complaints %q, want %d", step.name, j.wrong, step.want)
		}
	}
}
