package asynclog

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"steelyard/internal/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func text(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) }

// pipe is a log that goes into a pipe, as standard error does.
func pipe(t *testing.T) (l *Log, log *slog.Logger, reader *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l = New(w, text)
	t.Cleanup(func() { r.Close(); w.Close(); l.Close(time.Minute) })
	return l, slog.New(l.Handler()), r
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// writing reports whether a write has not returned yet.
func writing(s api.LogStatus) bool {
	_, known := s.StalledSeconds.Value()
	return known
}

// overflow logs numbered lines without a reader, until some are dropped.
func overflow(t *testing.T, l *Log, log *slog.Logger) (lines int) {
	t.Helper()
	padding := strings.Repeat("x", 1000)
	for l.Status().DroppedLines < 100 {
		log.Info("line", "number", lines, "padding", padding)
		if lines++; lines > 10*limit/len(padding) {
			t.Fatalf("%d lines of 1000 bytes, and none was dropped", lines)
		}
	}
	return lines
}

var (
	numbered = regexp.MustCompile(`msg=line number=(\d+)`)
	dropped  = regexp.MustCompile(`level=WARN msg="log lines were dropped[^"]*" lines=(\d+)`)
)

func TestALogReaderThatStallsBlocksNoCallerAndGetsTheNumberOfDroppedLines(t *testing.T) {
	l, log, r := pipe(t)
	lines := overflow(t, l, log)
	eventually(t, "a write is under way", func() bool { return writing(l.Status()) })
	status := l.Status()
	if status.LastDrop.IsZero() || status.Error != "" {
		t.Errorf("while the reader stalls: %+v; want the time of the last drop, and no error",
			status)
	}
	l.queue.mu.Lock()
	held := cap(l.queue.waiting) + cap(l.queue.spare)
	l.queue.mu.Unlock()
	if held > 3*limit {
		t.Errorf("%d bytes are held for lines, want at most twice the limit and what append adds", held)
	}

	in := bufio.NewScanner(r)
	next, told := 0, 0 // the number of the next line
	for told == 0 && in.Scan() {
		if m := numbered.FindStringSubmatch(in.Text()); m != nil {
			if m[1] != strconv.Itoa(next) {
				t.Fatalf("line %s, want %d: those before the gap are to be whole and in order", m[1], next)
			}
			next++
		}
		if m := dropped.FindStringSubmatch(in.Text()); m != nil {
			told, _ = strconv.Atoi(m[1])
		}
	}
	if next+told != lines || uint64(told) != l.Status().DroppedLines {
		t.Errorf("%d lines were read and %d reported as dropped, of %d; the status says %d", next, told, lines,
			l.Status().DroppedLines)
	}
	log.Info("after the gap")
	if !in.Scan() || !strings.Contains(in.Text(), "after the gap") {
		t.Errorf("then %q, want the next line", in.Text())
	}
	eventually(t, "no write is under way", func() bool { return !writing(l.Status()) })
}

func TestLinesWithoutAReaderAreDroppedUntilThereIsOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(flag int) *os.File {
		f, err := os.OpenFile(path, flag, 0)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	r := open(os.O_RDONLY | syscall.O_NONBLOCK)
	w := open(os.O_WRONLY)
	defer w.Close()
	l := New(w, text)
	defer l.Close(time.Minute)
	log := slog.New(l.Handler())
	r.Close()
	for i := range 3 {
		log.Info("unread")
		eventually(t, "the line is dropped", func() bool { return l.Status().DroppedLines == uint64(i+1) })
	}
	if s := l.Status(); !strings.Contains(s.Error, "broken pipe") || writing(s) {
		t.Errorf("%+v; want the error of the pipe, and no write under way", s)
	}

	r = open(os.O_RDONLY | syscall.O_NONBLOCK)
	defer r.Close()
	log.Info("read")
	in := bufio.NewScanner(r)
	for _, want := range []string{"msg=read", "lines=3"} {
		if !in.Scan() || !strings.Contains(in.Text(), want) {
			t.Errorf("read %q, %v; want %s", in.Text(), in.Err(), want)
		}
	}
	eventually(t, "the error is over", func() bool { return l.Status().Error == "" })
}

func TestCloseWritesWhatWaitsAndDoesNotWaitForAReaderThatStalls(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, text)
	log := slog.New(l.Handler())
	for i := range 100 {
		log.Info("line", "number", i)
	}
	l.Close(time.Minute)
	if n := len(numbered.FindAllString(out.String(), -1)); n != 100 {
		t.Errorf("%d of 100 lines were written before Close returned", n)
	}

	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stalled := New(w, text)
	overflow(t, stalled, slog.New(stalled.Handler()))
	began := time.Now()
	stalled.Close(50 * time.Millisecond)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("Close took %v with a reader that stalls", took)
	}
	r.Close() // fails the write
	w.Close()
	<-stalled.done
}

func TestManyMayLogAtATime(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, text)
	log := slog.New(l.Handler())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 200 {
				log.Info("line", "number", i)
				l.Status()
			}
		})
	}
	all.Wait()
	l.Close(time.Minute)
	if n := len(numbered.FindAllString(out.String(), -1)); n != 1600 {
		t.Errorf("%d whole lines, want 1600", n)
	}
}

// bubble runs a test of the lines that repeat in its own time and returns what was logged.
func bubble(t *testing.T, level slog.Level, test func(log *slog.Logger)) string {
	t.Helper()
	var out bytes.Buffer
	synctest.Test(t, func(*testing.T) {
		l := New(&out, func(w io.Writer) slog.Handler {
			return slog.NewTextHandler(w,
				&slog.HandlerOptions{Level: level})
		})
		test(slog.New(l.Handler()))
		l.Close(time.Minute)
	})
	return out.String()
}

func TestAClientThatRepeatsItselfIsSummarised(t *testing.T) {
	out := bubble(t, slog.LevelInfo, func(log *slog.Logger) {
		for i := range 35_000 { // for 35 seconds, under ever new names
			log.Info("stream opened", "node", i, "peer", fmt.Sprintf("10.0.0.1:%d", 1024+i))
			log.With("host", "10.0.0.1").Warn("stream refused")
			time.Sleep(time.Millisecond)
		}
		log.Info("stream opened", "peer", "[::ffff:10.0.0.2]:80")
	})
	for line, level := range map[string]string{`"stream opened"`: "INFO", `"stream refused"`: "WARN"} {
		if n := strings.Count(out, "msg="+line); n < burst || n > burst+1 {
			t.Errorf("%d times %s, want the first %d of one client and none after that", n, line, burst)
		}
		left := 0
		summary := regexp.MustCompile(`level=` + level + ` msg="repeated lines were left out" line=` + line +
			` host=10.0.0.1 left_out=(\d+)`)
		for _, m := range summary.FindAllStringSubmatch(out, -1) {
			n, _ := strconv.Atoi(m[1])
			left += n
		}
		if left != 35_000-burst {
			t.Errorf("%d times %s are in the summaries, want %d", left, line, 35_000-burst)
		}
	}
	if n := strings.Count(out, "repeated lines"); n != 2*4 {
		t.Errorf("%d summaries, want one of each line for each ten seconds begun", n)
	}
	if !strings.Contains(out, "ffff:10.0.0.2") {
		t.Error("the line about another client was left out")
	}
}

func TestAClientThatCalmsDownIsHeardAgain(t *testing.T) {
	out := bubble(t, slog.LevelInfo, func(log *slog.Logger) {
		about := log.With("host", "10.0.0.1").WithGroup("g")
		for range burst + 5 {
			about.Info("opened")
		}
		time.Sleep(2*interval + time.Second) // one in which it is on probation
		for range burst {
			about.Info("opened")
		}
	})
	if n := strings.Count(out, "msg=opened"); n != 2*burst || !strings.Contains(out, "left_out=5") {
		t.Errorf("%d lines, want %d and 5 left out:\n%s", n, 2*burst, out)
	}
}

func TestLinesWithoutASubjectOrForDebuggingAreAllWritten(t *testing.T) {
	const n = 10 * burst
	out := bubble(t, slog.LevelDebug, func(log *slog.Logger) {
		for range n {
			log.Info("cluster is served", "cluster", "llama")
			log.Debug("details", "host", "10.0.0.1")
		}
	})
	if served, details := strings.Count(out, "is served"), strings.Count(out, "details"); served != n || details != n {
		t.Errorf("%d and %d lines, want %d each", served, details, n)
	}
}

func TestALibraryIsBoundedWhateverItLogs(t *testing.T) {
	out := bubble(t, slog.LevelInfo, func(log *slog.Logger) {
		library := log.With("library", "net/http")
		for i := range 1000 {
			library.Warn(fmt.Sprintf("unsolicited response %d", i))
		}
	})
	if n := strings.Count(out, "unsolicited"); n != burst || !strings.Contains(out, "library=net/http left_out=980") {
		t.Errorf("%d lines, want %d and 980 left out:\n%s", n, burst, out)
	}
}

func TestAnyNumberOfClientsIsKeptInBoundedMemory(t *testing.T) {
	r := newRepeats()
	record := slog.NewRecord(time.Now(), slog.LevelInfo, "opened", 0)
	admitted := 0
	for i := range 10 * maxTallies {
		if r.admit(record, subject{"host", strconv.Itoa(i)}) {
			admitted++
		}
	}
	if admitted != maxTallies+burst || len(r.tallies) != maxTallies+1 {
		t.Errorf("%d lines and %d tallies, want one line for each of %d clients and %d for all others", admitted,
			len(r.tallies), maxTallies, burst)
	}
	if s := r.summaries(); len(s) != 1 || s[0].about != others || s[0].leftOut != 9*maxTallies-burst {
		t.Errorf("summaries %+v, want one of all others", s)
	}
}
