package testbed

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"steelyard/e2e/rig/grpctest"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/xds/loads"
	"steelyard/xds/loads/loadsv1"
)

// A PickerProcess is a running steelyard picker.
type PickerProcess struct {
	*proc.Process
	Address, admin string
}

// StartPicker runs steelyard picker for the cluster of the tests.
func StartPicker(t *testing.T, dir, steelyard, address string, args ...string) *PickerProcess {
	t.Helper()
	free, err := proc.FreeAddresses(2)
	if err != nil {
		t.Fatal(err)
	}
	if address == "" {
		address = free[0]
	}
	binary, err := proc.BuildSteelyard()
	if err != nil {
		t.Fatal(err)
	}
	p := &PickerProcess{Address: address, admin: free[1]}
	p.Process = proctest.Start(t, proc.Spec{Name: "picker", Path: binary, Dir: dir, Args: append([]string{"picker",
		"--steelyard", steelyard, "--cluster", Cluster, "--listen", address, "--admin", p.admin}, args...)})
	return p
}

// Choices is the count of choices with a reason.
func (p *PickerProcess) Choices(t *testing.T, reason string) float64 {
	t.Helper()
	return p.Value(t, fmt.Sprintf("steelyard_picker_choices_total{envoy_cluster_name=%q,reason=%q}", Cluster, reason))
}

// Age returns the age of the loads.
func (p *PickerProcess) Age(t *testing.T) time.Duration {
	t.Helper()
	seconds := p.Value(t, fmt.Sprintf("steelyard_picker_loads_age_seconds{envoy_cluster_name=%q}", Cluster))
	return time.Duration(seconds * float64(time.Second))
}

// Value returns the value of a series, 0 if there is none.
func (p *PickerProcess) Value(t *testing.T, series string) float64 {
	t.Helper()
	resp, err := http.Get("http://" + p.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 0
}

// Ready is nil when the picker has loads.
func (p *PickerProcess) Ready() error {
	return proc.AnswersHTTP("http://" + p.admin + "/readyz")(context.Background())
}

// Idle has endpoints without load, where requests cost by their size. What pickers learn is shared as by Steelyard.
type Idle struct {
	*loads.Server
	addresses []string
	Updates   atomic.Int64 // that were sent
	Change    atomic.Pointer[func(*loadsv1.Update)]
}

func (a *Idle) Follow(_ *loadsv1.FollowRequest, stream grpc.ServerStreamingServer[loadsv1.Update]) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		u := &loadsv1.Update{Cluster: Cluster, Cost: &loadsv1.Cost{Base: 0.1, PerByte: 0.0002, Mean: 1}}
		for _, address := range a.addresses {
			u.Endpoints = append(u.Endpoints, &loadsv1.Endpoint{Address: address, Slots: 1, Speed: 1})
		}
		if change := a.Change.Load(); change != nil {
			(*change)(u)
		}
		if err := stream.Send(u); err != nil {
			return err
		}
		a.Updates.Add(1)
		select {
		case <-stream.Context().Done():
			return nil
		case <-tick.C:
		}
	}
}

// StartIdleAt serves the loads of idle endpoints until the test ends. The endpoints need not exist.
func StartIdleAt(t *testing.T, addresses ...string) (a *Idle, address string) {
	t.Helper()
	a = &Idle{Server: loads.New(slog.New(slog.DiscardHandler)), addresses: addresses}
	address, _ = grpctest.Serve(t, func(s *grpc.Server) { loadsv1.RegisterLoadsServer(s, a) })
	return a, address
}
