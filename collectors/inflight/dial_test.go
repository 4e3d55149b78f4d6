package inflight

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A server that takes the connection and never greets would keep a dial for its whole timeout.
func TestCloseCancelsADialUnderWayAndRefusesNewOnes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := newDialer(func(_ context.Context, host string) (*tls.Config, error) {
		return &tls.Config{ServerName: host}, nil
	}, time.Hour)
	dialled := make(chan error, 1)
	go func() {
		_, err := d.dial(t.Context(), "tcp", l.Addr().String())
		dialled <- err
	}()
	silent, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if _, err := silent.Read(make([]byte, 1)); err != nil { // the handshake has begun
		t.Fatal(err)
	}

	closed := make(chan struct{})
	go func() { d.close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Fatal("close waits for the handshake")
	}
	wantError(t, <-dialled, "TLS with Redis at "+l.Addr().String(), "canceled")
	_, err = d.dial(t.Context(), "tcp", l.Addr().String())
	wantError(t, err, "the poller has stopped")
}

func TestCloseWaitsForTheDialsItCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer(nil, time.Hour)
		d.begin() // a dial that takes its time to end
		closed := false
		go func() { d.close(); closed = true }()
		synctest.Wait()
		if closed || d.ctx.Err() == nil {
			t.Errorf("closed %v with a dial under way, cancelled: %v; want it cancelled and waited for", closed,
				d.ctx.Err())
		}
		d.dials.Done()
		synctest.Wait()
		if !closed {
			t.Error("close did not return after the last dial")
		}
	})
}
