package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"steelyard/e2e/rig/grpctest"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/xds/loads/loadsv1"
)

// A pickerProcess is a running steelyard picker.
type pickerProcess struct {
	*proc.Process
	address, admin string
}

// startPicker runs steelyard picker for the cluster of the tests.
func startPicker(t *testing.T, dir, steelyard, address string, args ...string) *pickerProcess {
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
	p := &pickerProcess{address: address, admin: free[1]}
	p.Process = proctest.Start(t, proc.Spec{Name: "picker", Path: binary, Dir: dir, Args: append([]string{"picker",
		"--steelyard", steelyard, "--cluster", cluster, "--listen", address, "--admin", p.admin}, args...)})
	return p
}

// choices is the count of choices with a reason.
func (p *pickerProcess) choices(t *testing.T, reason string) float64 {
	t.Helper()
	return p.value(t, fmt.Sprintf("steelyard_picker_choices_total{envoy_cluster_name=%q,reason=%q}", cluster, reason))
}

// age returns the age of the loads.
func (p *pickerProcess) age(t *testing.T) time.Duration {
	t.Helper()
	seconds := p.value(t, fmt.Sprintf("steelyard_picker_loads_age_seconds{envoy_cluster_name=%q}", cluster))
	return time.Duration(seconds * float64(time.Second))
}

// value returns the value of a series, 0 if there is none.
func (p *pickerProcess) value(t *testing.T, series string) float64 {
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

// ready is nil when the picker has loads.
func (p *pickerProcess) ready() error {
	return proc.AnswersHTTP("http://" + p.admin + "/readyz")(context.Background())
}

// one sends all requests to one address: a state that a control plane gets into only by chance.
type one struct {
	loadsv1.UnimplementedLoadsServer
	addresses []string              // the first is free
	queue     *loadsv1.QueueHeaders // nil without one; it is not served
}

func (o *one) Follow(_ *loadsv1.FollowRequest, stream grpc.ServerStreamingServer[loadsv1.Update]) error {
	for {
		u := &loadsv1.Update{Cluster: cluster, Cost: &loadsv1.Cost{Base: 1, Mean: 1}, Queue: o.queue}
		for i, a := range o.addresses {
			u.Endpoints = append(u.Endpoints, &loadsv1.Endpoint{Address: a, Load: float64(10_000 * i), Slots: 1,
				Speed: 1})
		}
		if err := stream.Send(u); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// serveLoads serves o until the test ends, and returns its address.
func serveLoads(t *testing.T, o *one) string {
	t.Helper()
	address, _ := grpctest.Serve(t, func(s *grpc.Server) { loadsv1.RegisterLoadsServer(s, o) })
	return address
}

// TestAClientNamesNoEndpoint, also while no picker answers: it would leave the cluster that falls back.
func TestAClientNamesNoEndpoint(t *testing.T) {
	t.Parallel()
	pool := servers(t, same(2, wide)...)
	f := start(t, plan{servers: pool, envoys: 1, bootstrap: []string{"--picker", "127.0.0.1:1"}})
	const requests = 5
	for range requests {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.urls[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("x-gateway-destination-endpoint", pool[0].Address())
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
	if n := f.envoyStat("cluster." + cluster + "_picked.upstream_rq_total"); n != 0 {
		t.Errorf("%v of %d requests went where the client said", n, requests)
	}
}

func TestEnvoyFollowsThePickerAndNotTheWeights(t *testing.T) {
	for _, mode := range []string{"failsafe", "shedding"} {
		t.Run(mode, func(t *testing.T) {
			pool := servers(t, same(3, wide)...)
			f := withoutEnvoys(t, plan{servers: pool})
			p := startPicker(t, f.dir, serveLoads(t, &one{addresses: []string{
				pool[1].Address(), pool[0].Address(), pool[2].Address()}}), "")
			f.eventually("the picker has loads", p.ready)
			f.plan.bootstrap = []string{"--picker", p.address, "--mode", mode}
			f.startEnvoy(0)
			const requests = 200
			if r := f.send(quick(requests)).wait(t); r.Errors != 0 {
				t.Errorf("%d errors: %v", r.Errors, r.Codes)
			}
			if got := p.choices(t, "fill"); got < requests {
				t.Errorf("%v requests were chosen for, want %d", got, requests)
			}
			for i, want := range []uint64{0, requests, 0} {
				if got := pool[i].Served(); got != want {
					t.Errorf("server %d served %d, want %d", i, got, want)
				}
			}
		})
	}
}

func TestNoRequestFailsWhateverDiesOfPickerAndControlPlane(t *testing.T) {
	t.Parallel()
	pool := servers(t, same(4, modelsim.Options{Slots: 8})...)
	f := withoutEnvoys(t, plan{servers: pool, cluster: "push: {heartbeat: 300ms, endpoint_stale_after: 1s}"})
	p := startPicker(t, f.dir, f.xds, "")
	f.plan.bootstrap = []string{"--picker", p.address}
	for i := range 2 {
		f.startEnvoy(i)
	}
	f.eventually("the picker has loads", p.ready)
	traffic := f.send(load.Plan{Rate: 60, Seed: 7, Work: load.Work{Mean: 30 * time.Millisecond}})
	chosen := func(p *pickerProcess, what, reason string) {
		t.Helper()
		before := p.choices(t, reason)
		f.eventually(what, func() error {
			if got := p.choices(t, reason) - before; got < 20 {
				return fmt.Errorf("%v choices for the reason %s", got, reason)
			}
			return nil
		})
	}
	served := func(what string) {
		t.Helper()
		before := f.served()
		f.eventually(what, func() error {
			if got := f.served() - before; got < 40 {
				return fmt.Errorf("%d served", got)
			}
			return nil
		})
	}
	chosen(p, "the picker chooses", "fill")

	if err := f.control.Kill(); err != nil {
		t.Fatal(err)
	}
	chosen(p, "without loads the weights decide", "stale")
	f.control = f.startControl("steelyard-2")
	chosen(p, "the picker chooses again", "fill")

	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	served("the weights decide while the picker hangs")
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	chosen(p, "the picker chooses after it hung", "fill")

	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	served("the weights decide without a picker")
	p = startPicker(t, f.dir, f.xds, p.address)
	f.eventually("the new picker has loads", p.ready)
	chosen(p, "the new picker chooses", "fill")
	if sent, failed := traffic.stop(t); failed != 0 {
		t.Errorf("%d of %d requests failed", failed, sent)
	}
}

// TestWhatAGatewayLosesWithItsPickerDependsOnItsSettings: steelyard bootstrap has those with which nothing fails.
func TestWhatAGatewayLosesWithItsPickerDependsOnItsSettings(t *testing.T) {
	t.Parallel()
	refuses := edit{"failure_mode_allow: true", "failure_mode_allow: false"}
	answers := edit{"response_header_mode: SKIP", "response_header_mode: SEND"}
	bodies := []edit{{"request_body_mode: NONE", "request_body_mode: FULL_DUPLEX_STREAMED"},
		{"request_trailer_mode: SKIP", "request_trailer_mode: SEND"}}
	all := append([]edit{answers, {"response_body_mode: NONE", "response_body_mode: FULL_DUPLEX_STREAMED"},
		{"response_trailer_mode: SKIP", "response_trailer_mode: SEND"}}, bodies...)
	const ok, lost = http.StatusOK, http.StatusInternalServerError
	for what, c := range map[string]struct {
		edits                       []edit
		atServer, halfSent, without int // status of a request there, with half its body, and of a new one
	}{
		"steelyard bootstrap":                   {nil, ok, ok, ok},
		"with headers of answers":               {[]edit{answers}, ok, ok, ok},
		"failures not allowed":                  {[]edit{refuses}, ok, ok, lost},
		"failures not allowed, with answers":    {[]edit{refuses, answers}, lost, lost, lost},
		"bodies through the picker":             {bodies, ok, lost, ok},
		"all bodies through the picker":         {all, lost, lost, ok},
		"bodies through it, not allowed either": {append([]edit{refuses}, bodies...), ok, lost, lost},
	} {
		t.Run(what, func(t *testing.T) {
			pool := servers(t, same(2, modelsim.Options{Slots: 8})...)
			f := withoutEnvoys(t, plan{servers: pool, edits: c.edits})
			p := startPicker(t, f.dir, serveIdle(t, pool), "")
			f.eventually("the picker has loads", p.ready)
			f.plan.bootstrap = []string{"--picker", p.address}
			f.startEnvoy(0)
			post := func(service string, body io.Reader) chan int {
				code := make(chan int, 1)
				go func() {
					defer close(code)
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.urls[0], body)
					if err != nil {
						return
					}
					req.Header.Set(modelsim.HeaderService, service)
					if resp, err := http.DefaultClient.Do(req); err == nil {
						resp.Body.Close()
						code <- resp.StatusCode
					}
				}()
				return code
			}
			body, rest := io.Pipe()
			atServer, halfSent := post("5", strings.NewReader("a prompt")), post("0.001", body)
			if _, err := rest.Write([]byte("half of a")); err != nil {
				t.Fatal(err)
			}
			f.eventually("one is at a server, and the picker has chosen for both", func() error {
				if n, m := pool[0].InFlight()+pool[1].InFlight(), p.choices(t, "fill"); n == 0 || m < 2 {
					return fmt.Errorf("%d at servers, %v choices", n, m)
				}
				return nil
			})
			if err := p.Kill(); err != nil {
				t.Fatal(err)
			}
			_, _ = rest.Write([]byte(" prompt")) // which fails where Envoy has answered
			rest.Close()
			for of, codes := range map[string]struct{ got, want int }{
				"at a server": {<-atServer, c.atServer}, "half sent": {<-halfSent, c.halfSent},
			} {
				if codes.got != codes.want {
					t.Errorf("the request %s: status %d, want %d", of, codes.got, codes.want)
				}
			}
			f.eventually("new requests are answered as is wanted", func() error { // once its health check has failed
				if code := <-post("0.001", strings.NewReader("a prompt")); code != c.without {
					return fmt.Errorf("status %d, want %d", code, c.without)
				}
				return nil
			})
		})
	}
}

// served is the requests that all servers answered.
func (f *fleet) served() (n uint64) {
	for _, s := range f.plan.servers {
		n += s.Served()
	}
	return n
}
