package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limits of the listener. A peer that sends slowly, or that does not read, does not hold a connection for longer than
// these. Prometheus gives up after 10 s by default.
const (
	readTimeout     = 5 * time.Second
	writeTimeout    = 10 * time.Second
	idleTimeout     = 60 * time.Second
	maxHeaderBytes  = 16 << 10
	shutdownTimeout = 300 * time.Millisecond
)

// Serve answers on the listener until ctx is done, lets the requests that are running finish for at most 0.3 s, and
// returns nil. It closes the listener. It returns an error when the listener fails before that.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         markBusy,
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving the admin API on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	stop(server)
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the admin API on %s: %w", listener.Addr(), err)
	}
	return nil
}

// markBusy passes on to the connection whether a request is running on it, if it has a use for
// that: one without may be closed in favour of another.
func markBusy(c net.Conn, s http.ConnState) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	if b, ok := c.(interface{ Busy(bool) }); ok {
		b.Busy(s == http.StateActive)
	}
}

// stop waits for running requests, and cuts those off that take too long.
func stop(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close()
	}
}
