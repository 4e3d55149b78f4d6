package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/grpclog"

	"steelyard/cmd/internal/asynclog"
)

// logFlush is how long the end of the process waits for the reader of the log.
const logFlush = 500 * time.Millisecond

// The forms of the log.
const (
	logText = "text"
	logJSON = "json"
)

// logLevels are the words for the least level that is logged.
var logLevels = []string{"debug", "info", "warn", "error"}

// logging is the options of the log, which all commands that serve have in common.
type logging struct{ level, format string }

// flags adds the options.
func (l *logging) flags(c *cobra.Command) {
	c.Flags().StringVar(&l.level, "log-level", "info", "least level that is logged: debug, info, warn or error")
	c.Flags().StringVar(&l.format, "log-format", logText, "form of the log on standard error: text or json")
	completes(c, "log-level", logLevels...)
	completes(c, "log-format", logText, logJSON)
}

// start makes the log of the process and of its libraries, and the level that can be changed while it is in use. It
// ends with Close.
func (l *logging) start(to io.Writer) (*asynclog.Log, *slog.LevelVar, error) {
	if err := oneOf("log-level", l.level, logLevels...); err != nil {
		return nil, nil, err
	}
	if err := oneOf("log-format", l.format, logText, logJSON); err != nil {
		return nil, nil, err
	}
	var minimum slog.LevelVar
	if err := minimum.UnmarshalText([]byte(l.level)); err != nil {
		return nil, nil, err
	}
	o := &slog.HandlerOptions{Level: &minimum}
	log := asynclog.New(to, func(w io.Writer) slog.Handler {
		if l.format == logJSON {
			return slog.NewJSONHandler(w, o)
		}
		return slog.NewTextHandler(w, o)
	})
	logEverythingTo(slog.New(log.Handler()))
	return log, &minimum, nil
}

// ended logs the error that ends a process whose log is JSON. Else it is the last line, for people.
func (l *logging) ended(log *slog.Logger, err error) error {
	if err == nil || l.format != logJSON || errors.Is(err, context.Canceled) {
		return err
	}
	log.Error("ended", "error", err)
	return errNotWell
}

// during runs what serves with a log on standard error, for a level that does not change.
func (l *logging) during(serve func(log *slog.Logger) error) error {
	out, _, err := l.start(logFile())
	if err != nil {
		return err
	}
	defer out.Close(logFlush)
	log := slog.New(out.Handler())
	return l.ended(log, serve(log))
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
