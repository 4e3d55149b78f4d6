package xds

import (
	"context"
	"fmt"
	"log/slog"

	cplog "github.com/envoyproxy/go-control-plane/pkg/log"
)

// quietLog passes go-control-plane's lines to slog. go-control-plane logs at Info for every watch, twice per push and
// Envoy; that is Debug here, and formatted only if the level is enabled.
func quietLog(log *slog.Logger) cplog.Logger {
	at := func(level slog.Level) func(string, ...any) {
		return func(format string, args ...any) {
			if log.Enabled(context.Background(), level) {
				log.Log(context.Background(), level, fmt.Sprintf(format, args...), "library", "go-control-plane")
			}
		}
	}
	return cplog.LoggerFuncs{
		DebugFunc: at(slog.LevelDebug),
		InfoFunc:  at(slog.LevelDebug),
		WarnFunc:  at(slog.LevelWarn),
		ErrorFunc: at(slog.LevelError),
	}
}
