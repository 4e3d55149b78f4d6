package link

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// echo returns a server that sends back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func through(t *testing.T) (*Link, net.Conn) {
	t.Helper()
	l, err := Open("127.0.0.1:0", echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l, dial(t, l)
}

func dial(t *testing.T, l *Link) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// says sends a word and returns what comes back within the time.
func says(c net.Conn, word string, within time.Duration) (string, error) {
	if _, err := c.Write([]byte(word)); err != nil {
		return "", err
	}
	return hears(c, len(word), within)
}

func hears(c net.Conn, n int, within time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(within))
	b := make([]byte, n)
	_, err := io.ReadFull(c, b)
	return string(b), err
}

func TestALinkPassesBytesBothWaysAndAnEnd(t *testing.T) {
	l, c := through(t)
	if got, err := says(c, "hello", 10*time.Second); got != "hello" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	c.Close()
	eventually(t, "both connections are closed", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.open) == 0
	})
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestALinkThatHangsKeepsConnectionsAndLosesNothing(t *testing.T) {
	l, c := through(t)
	if _, err := says(c, "one", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	l.Hang(true)
	if got, err := says(c, "two", 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q, %v while it hangs", got, err)
	}
	other := dial(t, l)
	if got, err := says(other, "new", 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q, %v on a new connection while it hangs", got, err)
	}
	l.Hang(false)
	for c, want := range map[net.Conn]string{c: "two", other: "new"} {
		if got, err := hears(c, 3, 10*time.Second); got != want || err != nil {
			t.Errorf("%q, %v afterwards, want %q", got, err, want)
		}
	}
}

func TestALinkThatIsResetResetsWhatIsOpen(t *testing.T) {
	for name, hanging := range map[string]bool{"passing": false, "hanging": true} {
		t.Run(name, func(t *testing.T) {
			l, c := through(t)
			if _, err := says(c, "one", 10*time.Second); err != nil {
				t.Fatal(err)
			}
			if hanging {
				l.Hang(true)
			}
			l.Reset()
			if _, err := hears(c, 1, 10*time.Second); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%v, want a reset", err)
			}
			l.Hang(false)
			if got, err := says(dial(t, l), "again", 10*time.Second); got != "again" || err != nil {
				t.Errorf("a new connection: %q, %v", got, err)
			}
		})
	}
}

// refused checks that nothing comes back over a new connection. Its reset may come before or after the client takes
// itself to be connected.
func refused(t *testing.T, l *Link) {
	t.Helper()
	c, err := net.Dial("tcp", l.Address())
	if err != nil {
		return
	}
	defer c.Close()
	if got, err := says(c, "x", 10*time.Second); err == nil {
		t.Errorf("%q came back over a new connection", got)
	}
}

func TestALinkRefusesUntilItAdmits(t *testing.T) {
	l, c := through(t)
	l.Refuse(true)
	if got, err := says(c, "x", 10*time.Second); err == nil {
		t.Errorf("%q came back over the old connection", got)
	}
	refused(t, l)
	l.Refuse(false)
	if got, err := says(dial(t, l), "x", 10*time.Second); got != "x" || err != nil {
		t.Errorf("afterwards: %q, %v", got, err)
	}
}

func TestALinkThatPointsElsewhereLeadsNewConnectionsThere(t *testing.T) {
	l, c := through(t)
	l.Point("127.0.0.1:1")
	if got, err := says(c, "x", 10*time.Second); err == nil {
		t.Errorf("%q came back over the old connection", got)
	}
	refused(t, l)
	l.Point(echo(t))
	if got, err := says(dial(t, l), "x", 10*time.Second); got != "x" || err != nil {
		t.Errorf("from the new target: %q, %v", got, err)
	}
}
