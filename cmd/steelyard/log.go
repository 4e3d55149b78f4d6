package main

import (
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc/grpclog"

	"steelyard/cmd/internal/asynclog"
	"steelyard/controlplane/admin"
	"steelyard/controlplane/view"
)

// logFlush is how long the end of the process waits for the reader of the log.
const logFlush = 500 * time.Millisecond

// newLog makes the log, which goes to sink. It ends with Close.
func newLog(sink io.Writer, level, format string) (*asynclog.Log, error) {
	var o slog.HandlerOptions
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: write debug, info, warn or error", level)
	}
	o.Level = l
	switch format {
	case "text":
		return asynclog.New(sink, func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, &o) }), nil
	case "json":
		return asynclog.New(sink, func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, &o) }), nil
	}
	return nil, fmt.Errorf("--log-format %q: write text or json", format)
}

// logEverythingTo redirects to log what would write to standard error by itself, and so wait
// for its reader: the standard library's loggers and gRPC's. It also makes a reader that has
// gone a write that fails, instead of a signal that kills.
func logEverythingTo(log *slog.Logger) {
	signal.Ignore(syscall.SIGPIPE)
	slog.SetDefault(log.With("library", "standard library")) // and with it package log
	errors := slog.NewLogLogger(log.With("library", "grpc").Handler(), slog.LevelError).Writer()
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, errors))
}

// logStatus shows the log to the admin API.
func logStatus(s asynclog.Status, now time.Time) admin.LogStatus {
	out := admin.LogStatus{DroppedLines: s.Dropped, LastDrop: view.At(s.LastDrop)}
	if !s.WritingSince.IsZero() {
		out.StalledSeconds = view.Seconds(now.Sub(s.WritingSince))
	}
	if s.Err != nil {
		out.Error = s.Err.Error()
	}
	return out
}

// sayLast writes the last line of a process, and gives up on a reader that has stalled.
func sayLast(w io.Writer, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fmt.Fprintln(w, "steelyard:", err)
	}()
	select {
	case <-done:
	case <-time.After(logFlush):
	}
}
