package discovery

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// An operator reads the log first, and what it says last should be what is wrong now.
func TestAnotherReasonOfAFailureIsLogged(t *testing.T) {
	var log bytes.Buffer
	r := NewRefresher(make(chan []Endpoint), func(error) {}, slog.New(slog.NewTextHandler(&log, nil)))
	for _, step := range []struct {
		err  string
		says string // empty: nothing
	}{
		{"read 10.0.0.1:41233: connection refused", "connection refused"},
		{"read 10.0.0.1:50871: connection refused", ""}, // another port of this machine
		{"it has no port http: its ports are 8101", "no port http"},
		{"it has no port http: its ports are 8101", ""},
		{"", "again"},
		{"", ""},
	} {
		log.Reset()
		var err error
		if step.err != "" {
			err = errors.New(step.err)
		}
		r.Done(nil, err)
		if got := log.String(); !strings.Contains(got, step.says) || step.says == "" && got != "" {
			t.Errorf("%q is logged as %q, want %q", step.err, got, step.says)
		}
	}
}
