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

func TestTheErrorThatEndsAProcessIsALineOfItsLog(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	failed := errors.New("the port is taken")
	err := (&logging{format: logJSON}).ended(log, failed)
	if !errors.Is(err, errNotWell) ||
		!strings.Contains(out.String(), `"level":"ERROR","msg":"ended","error":"the port is taken"`) {
		t.Errorf("JSON: %v, %s", err, &out)
	}
	if err := (&logging{format: logText}).ended(log, failed); !errors.Is(err, failed) {
		t.Errorf("text, which the command prints: %v", err)
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
