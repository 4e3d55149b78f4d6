package main

import (
	"bytes"
	"errors"
	"io"
	stdlog "log"
	"log/slog"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/grpclog"

	"steelyard/cmd/internal/asynclog"
	"steelyard/controlplane/admin"
	"steelyard/controlplane/view"
)

func TestLibrariesLogThroughTheLogOfTheProcess(t *testing.T) {
	before := slog.Default()
	t.Cleanup(func() {
		slog.SetDefault(before)
		signal.Reset(syscall.SIGPIPE)
	})
	var out bytes.Buffer
	log, _, err := (&logging{level: "info", format: logText}).start(&out)
	if err != nil {
		t.Fatal(err)
	}
	stdlog.Print("unsolicited response")
	grpclog.Error("failed to marshal a status")
	grpclog.Warning("a client's preface is no HTTP/2") // as by default, not logged
	log.Close(time.Minute)
	for _, want := range []string{
		`level=INFO msg="unsolicited response" library="standard library"`,
		`failed to marshal a status" library=grpc`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Errorf("%d lines, want 2:\n%s", n, out.String())
	}
}

func TestTheLastLineWaitsForNoReader(t *testing.T) {
	r, w := io.Pipe()
	defer r.Close() // ends the write
	began := time.Now()
	sayLast(w, errors.New("the port is taken"))
	if took := time.Since(began); took < logFlush || took > logFlush+10*time.Second {
		t.Errorf("it waited for %v, want %v", took, logFlush)
	}
}

func TestTheStateOfTheLogAsTheAdminAPIShowsIt(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tc := range map[string]struct {
		in   asynclog.Status
		want admin.LogStatus
	}{
		"well": {asynclog.Status{}, admin.LogStatus{}},
		"stalled": {
			asynclog.Status{Dropped: 3, LastDrop: now, WritingSince: now.Add(-2 * time.Second)},
			admin.LogStatus{DroppedLines: 3, LastDrop: view.At(now), StalledSeconds: view.Num(2)},
		},
		"gone": {
			asynclog.Status{Dropped: 3, LastDrop: now, Err: syscall.EPIPE},
			admin.LogStatus{DroppedLines: 3, LastDrop: view.At(now), Error: "broken pipe"},
		},
	} {
		if got := logStatus(tc.in, now); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}
