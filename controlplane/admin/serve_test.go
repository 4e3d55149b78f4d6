package admin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// serving runs Serve until the test stops it; the channel gives its result.
func serving(t *testing.T, h http.Handler) (string, context.CancelFunc, <-chan error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, listener, h) }()
	return listener.Addr().String(), stop, done
}

// get asks on a connection of its own, so that none is left open.
func get(address, path string) (int, string, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + address + path)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}

func TestServeAnswersUntilItIsStopped(t *testing.T) {
	address, stop, done := serving(t, handlerOf(typical(noon)))
	if code, body, err := get(address, "/healthz"); code != 200 || body != "ok\n" || err != nil {
		t.Errorf("got %d %q %v", code, body, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("stopping: %v", err)
	}
	if _, _, err := get(address, "/healthz"); err == nil {
		t.Error("it still answers")
	}
}

// TestServeEndsSoonWithAStuckRequest: the process is to end whatever its readers do.
func TestServeEndsSoonWithAStuckRequest(t *testing.T) {
	begun, gone := make(chan struct{}), make(chan struct{})
	endless := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(gone)
	})
	address, stop, done := serving(t, endless)
	silent, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	running, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	if _, err := io.WriteString(running, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-begun
	start := time.Now()
	stop()
	if err := <-done; err != nil {
		t.Errorf("stopping: %v", err)
	}
	if took := time.Since(start); took < shutdownTimeout || took > 3*shutdownTimeout {
		t.Errorf("it took %v, want about %v", took, shutdownTimeout)
	}
	<-gone
}

// A told connection records whether a request is running on it.
type told struct {
	net.Conn
	busy chan bool
}

func (c told) Busy(busy bool) { c.busy <- busy }

type tellsAll struct {
	net.Listener
	busy chan bool
}

func (l tellsAll) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return told{c, l.busy}, nil
}

func TestAConnectionIsMarkedBusyWhileARequestRuns(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	busy, done := make(chan bool, 10), make(chan error, 1)
	go func() { done <- Serve(ctx, tellsAll{inner, busy}, handlerOf(typical(noon))) }()
	conn, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if first, second, third := <-busy, <-busy, <-busy; first || !second || third {
		t.Errorf("new %v, with a request %v, after it %v; want false, true, false", first, second, third)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestServeWaitsForARunningRequest(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	slow := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-finish
		_, _ = io.WriteString(w, "whole")
	})
	address, stop, done := serving(t, slow)
	answered := make(chan string, 1)
	go func() {
		_, body, err := get(address, "/")
		answered <- body + errorText(err)
	}()
	<-begun
	stop()
	select {
	case err := <-done:
		t.Errorf("Serve returned (%v) while a request was running", err)
	default:
	}
	close(finish)
	if got := <-answered; got != "whole" {
		t.Errorf("the running request got %q", got)
	}
	if err := <-done; err != nil {
		t.Errorf("stopping: %v", err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestServeRefusesHeadersWithoutEnd(t *testing.T) {
	address, stop, done := serving(t, handlerOf(typical(noon)))
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The server may close before it has read all of it: what counts is its answer.
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Long: "+strings.Repeat("a", 4*maxHeaderBytes)+
		"\r\n\r\n")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.Contains(line, "431") {
		t.Errorf("got %q", line)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("stopping: %v", err)
	}
}

func TestServeReturnsTheErrorOfItsListener(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	err = Serve(t.Context(), listener, handlerOf(typical(noon)))
	if !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), listener.Addr().String()) {
		t.Errorf("got %v", err)
	}
}
