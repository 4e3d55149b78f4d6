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

func TestServeLetsARunningRequestFinish(t *testing.T) {
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
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Long: "+strings.Repeat("a", 4*maxHeaderBytes)+"\r\n\r\n")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.Contains(line, "431") {
		t.Errorf("got %q", line)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("stopping: %v", err)
	}
}

func TestServeSaysWhenItsListenerFails(t *testing.T) {
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
