package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"steelyard/cmd/internal/daemon"
	"steelyard/controlplane/config"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/output"
	"steelyard/weighting"
	"steelyard/weighting/push"
	"steelyard/xds"
)

// fixed is a control plane that gives every endpoint of the configuration the
// same weight, so that the demo is tested apart from the law.
type fixed struct {
	streams *xds.Server
	grpc    *grpc.Server
	l       net.Listener
	fail    error // Run returns it at once
}

func newFixed(_ context.Context, text []byte) (Handle, error) {
	var c struct {
		Clusters []struct {
			Name      string
			Endpoints struct {
				Static []struct{ Address string }
			}
		}
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &fixed{streams: xds.NewServer(xds.Options{Log: slog.New(slog.DiscardHandler)}),
		grpc: grpc.NewServer(xds.GRPCOptions(nil)...), l: l}
	f.streams.Register(f.grpc)
	d := weighting.Decision{At: time.Now()}
	for _, e := range c.Clusters[0].Endpoints.Static {
		d.Endpoints = append(d.Endpoints, weighting.EndpointDecision{
			Address: e.Address, Share: 1 / float64(len(c.Clusters[0].Endpoints.Static)),
		})
	}
	slices.SortFunc(d.Endpoints, func(a,
		b weighting.EndpointDecision) int {
		return strings.Compare(a.Address, b.Address)
	})
	f.streams.Publish(c.Clusters[0].Name, push.Verdict{Decision: d, Members: true})
	return f, nil
}

func (f *fixed) XDSAddress() string   { return f.l.Addr().String() }
func (f *fixed) AdminAddress() string { return "127.0.0.1:1" }

func (f *fixed) Run(ctx context.Context) error {
	if f.fail != nil {
		return errors.Join(f.fail, f.l.Close())
	}
	var group errgroup.Group
	group.Go(func() error { return f.grpc.Serve(f.l) })
	<-ctx.Done()
	f.streams.Close()
	f.grpc.Stop()
	return group.Wait()
}

// brief is the smallest demo, in a temporary folder of its own.
func brief(t *testing.T) (o Options, out *output.Buffer, dir string) {
	t.Helper()
	dir = t.TempDir()
	t.Setenv("TMPDIR", dir)
	out = new(output.Buffer)
	return Options{Duration: time.Second, Envoys: 2, Endpoints: 3, Out: out, ControlPlane: newFixed}, out, dir
}

// wantNothingLeft fails if a file or an Envoy of this process is still there.
func wantNothingLeft(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Errorf("left behind: %s", f.Name())
	}
	children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range children {
		if pids, _ := os.ReadFile(c); len(bytes.TrimSpace(pids)) > 0 {
			t.Errorf("processes left behind: %s", pids)
		}
	}
}

func TestDemoPlaysBothPhasesAndLeavesNothing(t *testing.T) {
	o, out, dir := brief(t)
	o.JSONFile = filepath.Join(t.TempDir(), "figures.json")
	if err := Run(t.Context(), o); err != nil {
		t.Fatalf("Run: %v\n%s", err, out)
	}
	wantNothingLeft(t, dir)
	if n := strings.Count(out.String(), "Dashboard:"); n != 1 {
		t.Errorf("the page is named %d times, want once: it is gone at the end\n%s", n, out)
	}
	for _, want := range []string{"Dashboard: http://127.0.0.1:1/", "least request", "Steelyard", "p99 of the wait:",
		"0.5x"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	before, after := readFigures(t, o.JSONFile)
	if before.Policy != "least_request" || after.Policy != "steelyard" {
		t.Errorf("policies %q and %q, want least_request and steelyard", before.Policy, after.Policy)
	}
	if before.Requests == 0 || before.Requests != after.Requests {
		t.Errorf("%d and %d requests, want as many in both phases", before.Requests, after.Requests)
	}
	for _, f := range []figures{before, after} {
		if f.Errors != 0 || *f.P50 > *f.P90 || *f.P90 > *f.P99 {
			t.Errorf("%s: %d errors, waits %v, %v, %v; want none, and quantiles in order", f.Policy, f.Errors, *f.P50,
				*f.P90, *f.P99)
		}
	}
}

// figures are one phase in the JSON file, as its readers see it.
type figures struct {
	Policy   string   `json:"policy"`
	Requests int      `json:"requests"`
	Errors   int      `json:"errors"`
	P50      *float64 `json:"wait_p50_seconds"`
	P90      *float64 `json:"wait_p90_seconds"`
	P99      *float64 `json:"wait_p99_seconds"`
}

func readFigures(t *testing.T, path string) (before, after figures) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Phases []figures `json:"phases"`
	}
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if len(got.Phases) != 2 {
		t.Fatalf("%d phases in %s, want 2", len(got.Phases), text)
	}
	for _, f := range got.Phases {
		if f.P50 == nil || f.P90 == nil || f.P99 == nil {
			t.Fatalf("quantiles are missing in %s", text)
		}
	}
	return got.Phases[0], got.Phases[1]
}

// The promise of the demo, kept with the control plane that `steelyard serve` runs. Against round robin, because some
// hundred requests are too few for a p99 that is compared with least request's.
func TestDemoShowsTheTailCutInHalf(t *testing.T) {
	o, out, dir := brief(t)
	o.Duration, o.Envoys, o.Endpoints, o.RoundRobin = 8*time.Second, DefaultEnvoys, DefaultEndpoints, true
	o.ControlPlane = func(_ context.Context, text []byte) (Handle, error) {
		c, err := config.Parse("demo.yaml", text)
		if err != nil {
			return nil, err
		}
		return daemon.New(c, daemon.Options{Version: "test", Log: slog.New(slog.DiscardHandler)})
	}
	o.JSONFile = filepath.Join(t.TempDir(), "figures.json")
	if err := Run(t.Context(), o); err != nil {
		t.Fatalf("Run: %v\n%s", err, out)
	}
	before, after := readFigures(t, o.JSONFile)
	if after.Errors != 0 || *after.P99 > *before.P99/2 {
		t.Errorf("p99 of the wait %v s, %d errors; want none, and at most half of round robin's %v s\n%s", *after.P99,
			after.Errors, *before.P99, out)
	}
	wantNothingLeft(t, dir)
}

func TestDemoStopsAtOnceWhenItIsInterrupted(t *testing.T) {
	o, out, dir := brief(t)
	o.Duration = time.Hour
	err := runUntil(t, o, out, "least request   1 s")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	wantNothingLeft(t, dir)
}

func TestDemoKeepsUntilItIsInterrupted(t *testing.T) {
	o, out, dir := brief(t)
	o.Keep = true
	if err := runUntil(t, o, out, "until Ctrl-C"); err != nil {
		t.Errorf("error %v, want none: that is how it ends", err)
	}
	if !strings.Contains(out.String(), "p99 of the wait:") {
		t.Errorf("no results before it was kept up:\n%s", out)
	}
	wantNothingLeft(t, dir)
}

// Of three servers, two at full speed, one of these stalls.
func TestTroubleLeavesTheOtherServersRoom(t *testing.T) {
	o, out, dir := brief(t)
	o.Keep, o.Trouble = true, true
	if err := runUntil(t, o, out, "Try in another terminal"); err != nil {
		t.Errorf("error %v, want none: that is how it ends", err)
	}
	want := "The load is 16\nrequests per second, 80 % of what the other servers"
	if !strings.Contains(out.String(), want) {
		t.Errorf("the output lacks %q:\n%s", want, out)
	}
	wantNothingLeft(t, dir)
}

// A server that stalls never gives the last answers of a plan.
func TestTheLoadThatIsKeptUpHasNoGapWhenNothingIsAnswered(t *testing.T) {
	var served atomic.Int64
	stalled := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		served.Add(1)
		<-r.Context().Done()
	}))
	defer stalled.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	plan := load.Plan{Targets: []string{stalled.URL}, Rate: 100, Duration: 100 * time.Millisecond, Drain: time.Hour,
		Work: load.Work{Mean: meanService}}
	go func() { ended <- keepSending(ctx, plan) }()
	for served.Load() < 50 { // a plan has 10
		select {
		case err := <-ended:
			t.Fatalf("it ended after %d requests: %v", served.Load(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// runUntil runs a demo, interrupts it when its output has the text, and returns
// its error.
func runUntil(t *testing.T, o Options, out *output.Buffer, text string) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- Run(ctx, o) }()
	deadline := time.After(60 * time.Second)
	for {
		select {
		case err := <-done:
			if ctx.Err() == nil {
				t.Fatalf("the demo ended on its own: %v\n%s", err, out)
			}
			return err
		case <-deadline:
			t.Fatalf("no %q in the output after a minute:\n%s", text, out)
		case <-time.After(10 * time.Millisecond):
			if strings.Contains(out.String(), text) {
				cancel()
			}
		}
	}
}

func TestDemoEndsWithAPartThatFails(t *testing.T) {
	broken := errors.New("broken")
	tests := []struct {
		name    string
		control ControlPlane
	}{
		{"at its start", func(context.Context, []byte) (Handle, error) { return nil, broken }},
		{"later", func(ctx context.Context, text []byte) (Handle, error) {
			h, err := newFixed(ctx, text)
			if err == nil {
				h.(*fixed).fail = broken
			}
			return h, err
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, out, dir := brief(t)
			o.ControlPlane = tt.control
			if err := Run(t.Context(), o); !errors.Is(err, broken) {
				t.Errorf("error %v, want the control plane's\n%s", err, out)
			}
			wantNothingLeft(t, dir)
		})
	}
}

func TestDemoNamesTheMakeTargetForAMissingEnvoy(t *testing.T) {
	o, _, dir := brief(t)
	t.Setenv("ENVOY", filepath.Join(dir, "no-envoy-here"))
	if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "make tools") {
		t.Errorf("error %v, want one that names `make tools`", err)
	}
	wantNothingLeft(t, dir)
}

func TestOptionsThatMakeNoSenseAreRefusedByTheirFlags(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"duration", func(o *Options) { o.Duration = time.Millisecond }, "--duration 1ms"},
		{"envoys", func(o *Options) { o.Envoys = 100 }, "--envoys 100"},
		{"endpoints", func(o *Options) { o.Endpoints = 1 }, "--endpoints 1"},
		{"load", func(o *Options) { o.Load = 80 }, "--load 80"},
		{"json", func(o *Options) { o.JSONFile = "/nowhere/at/all.json" }, "--json /nowhere/at/all.json"},
		{"control plane", func(o *Options) { o.ControlPlane = nil }, "no control plane"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, _, _ := brief(t)
			tt.change(&o)
			if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that contains %q", err, tt.want)
			}
		})
	}
}
