package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A screen is what a program writes to a terminal. Its text is what was written since the last picture began.
type screen struct {
	t        *testing.T
	terminal *os.File // the side of the person
	mu       sync.Mutex
	written  strings.Builder
}

// openTerminal returns a pseudo terminal of 120 columns and 20 lines, and the side of the program.
func openTerminal(t *testing.T) (*screen, *os.File) {
	t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	fd := int(terminal.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 20, Col: 120})
	}
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, terminal: terminal}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := terminal.Read(buf)
			s.mu.Lock()
			s.written.Write(buf[:n])
			s.mu.Unlock()
			if err != nil { // the program has ended, or the test
				return
			}
		}
	}()
	return s, program
}

var controlSequence = regexp.MustCompile("\x1b\\[[?0-9;]*[A-Za-z]")

// text is the latest whole picture.
func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	pictures := strings.Split(s.written.String(), "\x1b[H")
	return controlSequence.ReplaceAllString(pictures[max(0, len(pictures)-2)], "")
}

// types presses keys, and waits until the screen has each of these texts.
func (s *screen) types(keys string, wants ...string) {
	s.t.Helper()
	if _, err := s.terminal.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
	s.shows(func(text string) string {
		for _, want := range wants {
			if !strings.Contains(text, want) {
				return want
			}
		}
		return ""
	})
}

// shows waits until nothing is missing.
func (s *screen) shows(missing func(text string) string) {
	s.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		text := s.text()
		lacks := missing(text)
		if lacks == "" {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the screen lacks %q:\n%s", lacks, text)
		}
	}
}

func TestTopDoesWhatKeysAskFor(t *testing.T) {
	r := serveForReal(t, "")
	first, second := r.servers[0], r.servers[1]
	if first > second {
		first, second = second, first
	}
	s, program := openTerminal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, r.binary, "top", "--interval", "100ms")
	c.Env = append(os.Environ(), "STEELYARD_ADMIN="+r.admin)
	c.Stdin, c.Stdout, c.Stderr = program, program, program
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = program.Close()
	firstIs := func(address string) func(string) string {
		return func(text string) string {
			at, other := strings.Index(text, address), strings.Index(text, map[bool]string{true: second,
				false: first}[address == first])
			if at < 0 || other < 0 || at > other {
				return address + " first"
			}
			return ""
		}
	}
	s.types("", "llama", first, second, "? help")
	s.types("?", "the next cluster", "any key goes back")
	s.types("x", "? help", first)
	s.types(">", "ENDPOINT↑")
	s.shows(firstIs(first))
	s.types("r", "ENDPOINT↓")
	s.shows(firstIs(second))
	s.types("/"+first[len(first)-5:], "filter: ")
	s.shows(func(text string) string {
		if strings.Contains(text, second) {
			return "only " + first
		}
		return ""
	})
	s.types("\r\r", first+" of llama at", "1 hears", "Esc back")
	s.types("\x1b", "ENDPOINT↓", "filter: ")
	s.types("\x1b", second, first)
	s.types("\x1b[B ", "PAUSED")
	s.types(" \t", "Enter why", "llama") // the next cluster is the same one
	s.types("q")
	if err := c.Wait(); err != nil {
		t.Errorf("after q: %v", err)
	}
	s.shows(func(string) string {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !strings.HasSuffix(s.written.String(), "\x1b[?25h\x1b[?1049l") {
			return "the screen that was there before, with its cursor"
		}
		return ""
	})
}
