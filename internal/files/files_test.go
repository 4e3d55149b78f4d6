package files

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pipe makes a named pipe without a writer.
func pipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNoMoreThanTheLimitIsRead(t *testing.T) {
	path := write(t, "0123456789")
	for limit, want := range map[int64]string{5: "01234", 10: "0123456789", 11: "0123456789"} {
		if got, err := Read(t.Context(), path, limit); string(got) != want || err != nil {
			t.Errorf("limit %d: %q, %v; want %q", limit, got, err, want)
		}
	}
}

func TestAFileThatIsNotRegularIsRefusedUnread(t *testing.T) {
	for path, want := range map[string]string{
		pipe(t):                     "a named pipe, not a regular file",
		"/dev/zero":                 "a device, not a regular file",
		t.TempDir():                 "a directory, not a regular file",
		"/nowhere/steelyard/at/all": "no such file",
	} {
		began := time.Now()
		_, err := Read(t.Context(), path, 1<<20)
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		if took := time.Since(began); took > Patience/2 {
			t.Errorf("%s: refused after %v", path, took)
		}
	}
}

// TestARegularFileThatHangsIsGivenUpAfterPatience makes a real file hang, on Linux. Here the time is simulated.
func TestACallThatHangsIsGivenUpAndLeavesOneGoroutineBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var begun atomic.Int32
		hang := func() (string, error) {
			begun.Add(1)
			<-release
			return "late", nil
		}
		for range 3 {
			start := time.Now()
			got, err := Within(t.Context(), "/mnt/x", "read", hang)
			if err == nil || got != "" || !strings.Contains(err.Error(), "/mnt/x has not answered within 2s") {
				t.Errorf("got %q, %v", got, err)
			}
			if took := time.Since(start); took != Patience {
				t.Errorf("given up after %v, want %v", took, Patience)
			}
		}
		ended, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		const says = "/mnt/x has not answered in time: is it on a file system that hangs?"
		_, err := Within(ended, "/mnt/x", "read", hang)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), says) {
			t.Errorf("its caller's end: %v", err)
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if _, err := Within(stopped, "/mnt/x", "read", hang); err != context.Canceled {
			t.Errorf("its caller's stop: %v", err)
		}
		other := func() (string, error) { return "other", nil }
		if got, err := Within(t.Context(), "/mnt/y", "read", other); got != "other" || err != nil {
			t.Errorf("another file: %q, %v", got, err)
		}
		if n := begun.Load(); n != 1 {
			t.Errorf("%d reads hang, want 1", n)
		}
		close(release)
		synctest.Wait()
		if got, err := Within(t.Context(), "/mnt/x", "read", hang); got != "late" || err != nil {
			t.Errorf("once the mount is back: %q, %v", got, err)
		}
	})
}

func TestReadersOfOneFileShareNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		got := make(chan []byte, 2)
		for range 2 {
			go func() {
				b, _ := Within(t.Context(), "/x", "read",
					func() ([]byte, error) { <-release; return []byte("abc"), nil })
				got <- b
			}()
		}
		synctest.Wait()
		close(release)
		first := <-got
		first[0] = 'X'
		if second := <-got; !bytes.Equal(second, []byte("abc")) {
			t.Errorf("the other has %q", second)
		}
	})
}
