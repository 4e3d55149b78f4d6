package picking

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"steelyard/e2e/rig/grpctest"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/testbed"
	"steelyard/xds/loads/loadsv1"
)

// one sends all requests to one address: a state that a control plane gets into only by chance.
type one struct {
	loadsv1.UnimplementedLoadsServer
	addresses []string              // the first is free
	queue     *loadsv1.QueueHeaders // nil without one; it is not served
}

func (o *one) Follow(_ *loadsv1.FollowRequest, stream grpc.ServerStreamingServer[loadsv1.Update]) error {
	for {
		u := &loadsv1.Update{Cluster: testbed.Cluster, Cost: &loadsv1.Cost{Base: 1, Mean: 1}, Queue: o.queue}
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
	pool := testbed.Pool(t, 2)
	f := start(t, testbed.Plan{Servers: pool, Envoys: 1, Bootstrap: []string{"--picker", "127.0.0.1:1"}})
	const requests = 5
	for range requests {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URLs[0], nil)
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
	if n := f.EnvoyStat("cluster." + testbed.Cluster + "_picked.upstream_rq_total"); n != 0 {
		t.Errorf("%v of %d requests went where the client said", n, requests)
	}
}

func TestEnvoyFollowsThePickerAndNotTheWeights(t *testing.T) {
	for _, mode := range []string{"failsafe", "shedding"} {
		t.Run(mode, func(t *testing.T) {
			pool := testbed.Pool(t, 3)
			f := withoutEnvoys(t, testbed.Plan{Servers: pool})
			p := testbed.StartPicker(t, f.Dir, serveLoads(t, &one{addresses: []string{
				pool[1].Address(), pool[0].Address(), pool[2].Address()}}), "")
			f.Eventually("the picker has loads", p.Ready)
			f.Plan.Bootstrap = []string{"--picker", p.Address, "--mode", mode}
			f.StartEnvoy(0)
			const requests = 200
			if r := f.Send(testbed.Quick(requests)).Wait(t); r.Errors != 0 {
				t.Errorf("%d errors: %v", r.Errors, r.Codes)
			}
			// a machine that is too busy to ask the picker within 0.1 s leaves a request to the weights
			late := uint64(f.EnvoyStat("http.ingress.ext_proc.message_timeouts"))
			if late > requests/2 {
				t.Errorf("%d of %d requests did not wait for the picker", late, requests)
			}
			if got := p.Choices(t, "fill"); got < float64(requests-late) {
				t.Errorf("%v requests were chosen for, want %d", got, requests-late)
			}
			if got := pool[1].Served(); got < requests-late {
				t.Errorf("the server of the picker's choice served %d, want at least %d", got, requests-late)
			}
		})
	}
}

func TestNoRequestFailsWhateverDiesOfPickerAndControlPlane(t *testing.T) {
	t.Parallel()
	pool := testbed.Servers(t, testbed.Same(4, modelsim.Options{Slots: 8})...)
	f := withoutEnvoys(t, testbed.Plan{Servers: pool, Cluster: "push: {heartbeat: 300ms, endpoint_stale_after: 1s}"})
	p := testbed.StartPicker(t, f.Dir, f.XDS, "")
	f.Plan.Bootstrap = []string{"--picker", p.Address}
	for i := range 2 {
		f.StartEnvoy(i)
	}
	f.Eventually("the picker has loads", p.Ready)
	traffic := f.Send(load.Plan{Rate: 60, Seed: 7, Work: load.Work{Mean: 30 * time.Millisecond}})
	chosen := func(p *testbed.PickerProcess, what, reason string) {
		t.Helper()
		before := p.Choices(t, reason)
		f.Eventually(what, func() error {
			if got := p.Choices(t, reason) - before; got < 20 {
				return fmt.Errorf("%v choices for the reason %s", got, reason)
			}
			return nil
		})
	}
	served := func(what string) {
		t.Helper()
		before := f.Served()
		f.Eventually(what, func() error {
			if got := f.Served() - before; got < 40 {
				return fmt.Errorf("%d served", got)
			}
			return nil
		})
	}
	chosen(p, "the picker chooses", "fill")

	if err := f.Control.Kill(); err != nil {
		t.Fatal(err)
	}
	chosen(p, "without loads the weights decide", "stale")
	f.Control = f.StartControl("steelyard-2")
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
	p = testbed.StartPicker(t, f.Dir, f.XDS, p.Address)
	f.Eventually("the new picker has loads", p.Ready)
	chosen(p, "the new picker chooses", "fill")
	if sent, failed := traffic.Stop(t); failed != 0 {
		t.Errorf("%d of %d requests failed", failed, sent)
	}
}

// TestWhatAGatewayLosesWithItsPickerDependsOnItsSettings: steelyard bootstrap has those with which nothing fails.
func TestWhatAGatewayLosesWithItsPickerDependsOnItsSettings(t *testing.T) {
	t.Parallel()
	refuses := testbed.Edit{"failure_mode_allow: true", "failure_mode_allow: false"}
	answers := testbed.Edit{"response_header_mode: SKIP", "response_header_mode: SEND"}
	bodies := []testbed.Edit{{"request_body_mode: NONE", "request_body_mode: FULL_DUPLEX_STREAMED"},
		{"request_trailer_mode: SKIP", "request_trailer_mode: SEND"}}
	all := append([]testbed.Edit{answers, {"response_body_mode: NONE", "response_body_mode: FULL_DUPLEX_STREAMED"},
		{"response_trailer_mode: SKIP", "response_trailer_mode: SEND"}}, bodies...)
	const ok, lost = http.StatusOK, http.StatusInternalServerError
	for what, c := range map[string]struct {
		edits                       []testbed.Edit
		atServer, halfSent, without int // status of a request there, with half its body, and of a new one
	}{
		"steelyard bootstrap":                   {nil, ok, ok, ok},
		"with headers of answers":               {[]testbed.Edit{answers}, ok, ok, ok},
		"failures not allowed":                  {[]testbed.Edit{refuses}, ok, ok, lost},
		"failures not allowed, with answers":    {[]testbed.Edit{refuses, answers}, lost, lost, lost},
		"bodies through the picker":             {bodies, ok, lost, ok},
		"all bodies through the picker":         {all, lost, lost, ok},
		"bodies through it, not allowed either": {append([]testbed.Edit{refuses}, bodies...), ok, lost, lost},
	} {
		t.Run(what, func(t *testing.T) {
			pool := testbed.Servers(t, testbed.Same(2, modelsim.Options{Slots: 8})...)
			f := withoutEnvoys(t, testbed.Plan{Servers: pool, Edits: c.edits})
			p := testbed.StartPicker(t, f.Dir, serveIdle(t, pool), "")
			f.Eventually("the picker has loads", p.Ready)
			f.Plan.Bootstrap = []string{"--picker", p.Address}
			f.StartEnvoy(0)
			post := func(service string, body io.Reader) chan int {
				code := make(chan int, 1)
				go func() {
					defer close(code)
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URLs[0], body)
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
			f.Eventually("one is at a server, and the picker has chosen for both", func() error {
				if n, m := pool[0].InFlight()+pool[1].InFlight(), p.Choices(t, "fill"); n == 0 || m < 2 {
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
			f.Eventually("new requests are answered as is wanted", func() error { // once its health check has failed
				if code := <-post("0.001", strings.NewReader("a prompt")); code != c.without {
					return fmt.Errorf("status %d, want %d", code, c.without)
				}
				return nil
			})
		})
	}
}
