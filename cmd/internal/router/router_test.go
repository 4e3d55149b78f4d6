package router

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"steelyard/picking"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheEnvironmentHasTheDefaultsOfTheContract(t *testing.T) {
	o, err := FromEnvironment(func(string) string { return "" })
	want := picking.QueuedOptions{Threshold: 3 * time.Second, Alpha: 0.3, QueueMax: 1000,
		QueueTimeout: 1200 * time.Second}
	if err != nil || o.Port != 3000 || o.Queue != want || o.LogInterval != 30*time.Second {
		t.Errorf("got %+v, %v", o, err)
	}
	set := map[string]string{EnvPort: "8080", EnvThreshold: "65.5", EnvAlpha: "1", EnvQueueMax: "0",
		EnvQueueTimeout: "300", EnvLogInterval: "0"}
	o, err = FromEnvironment(func(name string) string { return set[name] })
	want = picking.QueuedOptions{Threshold: 65500 * time.Millisecond, Alpha: 1, QueueTimeout: 5 * time.Minute}
	if err != nil || o.Port != 8080 || o.Queue != want || o.LogInterval != 0 {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestVariablesThatCannotBeUsedAreAllNamed(t *testing.T) {
	set := map[string]string{EnvPort: "70000", EnvThreshold: "fast", EnvAlpha: "1.5", EnvQueueMax: "2.5",
		EnvQueueTimeout: "4000", EnvLogInterval: "NaN"}
	_, err := FromEnvironment(func(name string) string { return set[name] })
	for name := range set {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
}

func TestBothFormsOfABackendAreRead(t *testing.T) {
	got, err := parseBackends(strings.NewReader(
		`{"backends": ["http://10.0.0.1:8000", "10.0.0.2:80", "http://[::1]:90/", "http://pod", "10.0.0.2:80"]}`))
	if want := "10.0.0.1:8000 10.0.0.2:80 [::1]:90 pod:80"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("got %v, %v; want %s", got, err, want)
	}
}

func FuzzBackends(f *testing.F) {
	f.Add(`{"backends": ["http://10.0.0.1:8000"]}`)
	f.Add(`{"backends": ["[::1]:1", "x:0", "http://a:1/b?c#d"]}`)
	f.Fuzz(func(t *testing.T, body string) {
		got, err := parseBackends(strings.NewReader(body))
		for _, b := range got {
			if again, failed := parseBackend(b); err == nil && (failed != nil || again != b) {
				t.Errorf("%q reads as %q, %v", b, again, failed)
			}
		}
	})
}

func TestAnEndIsAnAnswerAFailureOrAbandoned(t *testing.T) {
	entry := func(code uint32, flags *accesslogv3.ResponseFlags) *accesslogv3.HTTPAccessLogEntry {
		return &accesslogv3.HTTPAccessLogEntry{
			CommonProperties: &accesslogv3.AccessLogCommon{ResponseFlags: flags},
			Response:         &accesslogv3.HTTPResponseProperties{ResponseCode: wrapperspb.UInt32(code)},
		}
	}
	for _, c := range []struct {
		name  string
		entry *accesslogv3.HTTPAccessLogEntry
		want  picking.Outcome
	}{
		{"200", entry(200, nil), picking.Answered},
		{"a client's own error", entry(404, nil), picking.Answered},
		{"too many requests", entry(429, nil), picking.Failed},
		{"503", entry(503, nil), picking.Failed},
		{"no answer", entry(0, nil), picking.Failed},
		{"cut off", entry(200, &accesslogv3.ResponseFlags{UpstreamConnectionTermination: true}), picking.Failed},
		{"the client left", entry(0, &accesslogv3.ResponseFlags{DownstreamConnectionTermination: true}),
			picking.Abandoned},
		{"the client left an HTTP/2 stream", entry(200, &accesslogv3.ResponseFlags{DownstreamRemoteReset: true}),
			picking.Abandoned},
	} {
		if got := outcome(c.entry); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestTheAPIRefusesOtherMethodsAndLargeBodies(t *testing.T) {
	r := &Router{queue: newQueue(picking.QueuedOptions{QueueMax: 1}),
		options: Options{Log: slog.New(slog.DiscardHandler)}}
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodGet, "set-backends", "", http.StatusMethodNotAllowed},
		{http.MethodPost, "health", "", http.StatusMethodNotAllowed},
		{http.MethodPost, "set-backends", `{"backends": ["` + strings.Repeat("x", maxBody) + `"]}`,
			http.StatusBadRequest},
		{http.MethodPost, "set-backends", `{"backends": []} trailing`, http.StatusBadRequest},
		{http.MethodPost, "set-backends", `{"backends": []}`, http.StatusOK},
		{http.MethodGet, "nothing", "", http.StatusNotFound},
	} {
		w := httptest.NewRecorder()
		r.handler().ServeHTTP(w, httptest.NewRequest(c.method, apiPath+c.path, strings.NewReader(c.body)))
		if w.Code != c.want {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, w.Code, c.want, w.Body)
		}
	}
}

func TestTheRouterEndsWithItsEnvoy(t *testing.T) {
	ends := filepath.Join(t.TempDir(), "envoy")
	if err := os.WriteFile(ends, []byte("#!/bin/sh\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, envoy := range []string{ends, filepath.Join(t.TempDir(), "missing")} {
		r, err := New(Options{Host: "127.0.0.1", Port: 3000, Envoy: envoy, LogInterval: time.Hour,
			Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(context.Background()); err == nil || !strings.Contains(err.Error(), envoy) ||
			errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v, want an error that names the program", err)
		}
	}
}
