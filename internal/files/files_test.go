package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
func TestACallThatHangsIsSharedAndGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMount()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				start := time.Now()
				got, err := m.read(t.Context(), "/mnt/x")
				if err == nil || got != "" || !strings.Contains(err.Error(), "/mnt/x has not answered within 2s") {
					t.Errorf("got %q, %v", got, err)
				}
				if took := time.Since(start); took != Patience {
					t.Errorf("given up after %v, want %v", took, Patience)
				}
			})
		}
		synctest.Wait()
		ended, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		const says = "/mnt/x has not answered in time: is it on a file system that hangs?"
		if _, err := m.read(ended, "/mnt/x"); !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("its caller's end: %v", err)
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if _, err := m.read(stopped, "/mnt/x"); !errors.Is(err, context.Canceled) {
			t.Errorf("its caller's stop: %v", err)
		}
		other := func() (string, error) { return "other", nil }
		if got, err := Within(t.Context(), "/mnt/y", "read", other); got != "other" || err != nil {
			t.Errorf("another file: %q, %v", got, err)
		}
		all.Wait()
		if n := m.begun.Load(); n != 1 {
			t.Errorf("%d reads hang, want 1", n)
		}
		close(m.back)
		synctest.Wait()
		if got, err := m.read(t.Context(), "/mnt/x"); got != "late" || err != nil {
			t.Errorf("once the mount is back: %q, %v", got, err)
		}
	})
}

func TestAFileIsReadWhileTheOneThatItReplacedHangs(t *testing.T) {
	for _, hung := range []time.Duration{Patience, time.Minute, time.Hour, 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			m := newMount()
			defer close(m.back)
			for end := time.Now().Add(hung); time.Now().Before(end); {
				if _, err := m.read(t.Context(), "/mnt/x"); err == nil {
					t.Fatal("a read that hangs has no error")
				}
				if time.Now().Before(end) {
					time.Sleep(5 * time.Second)
				}
			}
			if n := m.begun.Load(); n > 50 {
				t.Errorf("%d reads hang after %v, want at most 50", n, hung)
			}
			replaced := time.Now()
			good := func() (string, error) { return "good", nil }
			got, err := Within(t.Context(), "/mnt/x", "read", good)
			for ; err != nil && time.Since(replaced) <= hung; got, err = Within(t.Context(), "/mnt/x", "read", good) {
				const says = "/mnt/x has not answered since 2000-01-01 00:00:00 and is tried again at "
				if !strings.Contains(err.Error(), says) {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
			if took := time.Since(replaced); got != "good" || took > hung/4 {
				t.Errorf("after %v, the good file was read after %v: %q, %v; want within a quarter", hung, took, got,
					err)
			}
		})
	}
}

func TestAMountThatHangsHoldsABoundedNumberOfGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMount()
		defer close(m.back)
		var last error
		for range 1000 {
			var all sync.WaitGroup
			for i := range mostHanging / 8 {
				all.Go(func() {
					if _, err := m.read(t.Context(), fmt.Sprintf("/mnt/%d", i)); i == 0 {
						last = err
					}
				})
			}
			all.Wait()
			time.Sleep(time.Minute)
		}
		if n := m.begun.Load(); n != mostHanging {
			t.Errorf("%d reads hang, want %d", n, mostHanging)
		}
		if last == nil || !strings.Contains(last.Error(), "is not tried again, because 256 calls to files hang") {
			t.Errorf("beyond the bound: %v", last)
		}
		good := func() (string, error) { return "good", nil }
		if got, err := Within(t.Context(), "/etc/x", "read", good); got != "good" || err != nil {
			t.Errorf("a file elsewhere: %q, %v", got, err)
		}
	})
}

// mount is a file system that hangs until back is closed.
type mount struct {
	back  chan struct{}
	begun atomic.Int32 // reads
}

func newMount() *mount { return &mount{back: make(chan struct{})} }

func (m *mount) read(ctx context.Context, path string) (string, error) {
	return Within(ctx, path, "read", func() (string, error) {
		m.begun.Add(1)
		<-m.back
		return "late", nil
	})
}

func TestAnOpenedFileIsReadInPieces(t *testing.T) {
	want := strings.Repeat("0123456789", 3*pieceSize/10)
	f, err := Open(t.Context(), write(t, want))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(f); string(got) != want || err != nil {
		t.Errorf("%d bytes, %v; want %d", len(got), err, len(want))
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	path := pipe(t)
	if _, err := Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), path+" is a named pipe") {
		t.Errorf("%v", err)
	}
	ended, end := context.WithCancel(t.Context())
	f, err = Open(ended, write(t, want))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	end()
	for range 2 {
		if _, err := io.ReadAll(f); !errors.Is(err, context.Canceled) {
			t.Errorf("after its caller's stop: %v", err)
		}
	}
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
