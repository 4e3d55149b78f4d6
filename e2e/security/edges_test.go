package security

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/testbed"
	"steelyard/internal/api"
)

// gone wants these Envoys to be listed as gone, as "node: cause" by node, and to be named in the problems.
func (f *fleet) gone(want ...string) error {
	s, err := f.Status()
	if err != nil {
		return err
	}
	var got []string
	for _, g := range s.GoneEnvoys {
		got = append(got, g.NodeID+": "+g.Cause)
		what := "disconnected without closing its streams: " + g.NodeID + " (" + g.Address + "): " + g.Cause
		if g.Silent {
			what = "does not answer"
		}
		named := func(p api.Problem) bool {
			return strings.HasPrefix(p.Message, "Envoy "+g.NodeID+" "+what)
		}
		if !slices.ContainsFunc(s.Problems, named) {
			return fmt.Errorf("%s is not among the problems: %+v", g.NodeID, s.Problems)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("gone %q, want %q", got, want)
	}
	return nil
}

// left returns the states of the Envoys that are not connected any more, and the kinds of their incidents.
func (f *fleet) left() (states map[string]api.EnvoyState, incidents map[string]api.IncidentKind, err error) {
	var clients struct{ Left []api.LeftEnvoy }
	var found struct{ Incidents []api.Incident }
	err = errors.Join(f.Get("/api/v1/clients", &clients), f.Get("/api/v1/incidents", &found))
	states, incidents = map[string]api.EnvoyState{}, map[string]api.IncidentKind{}
	for _, l := range clients.Left {
		states[l.NodeID] = l.State
	}
	for _, i := range found.Incidents {
		incidents[i.Subject.Name] = i.Kind
	}
	return states, incidents, err
}

// connected reports whether the Envoy has a stream.
func (f *fleet) connected(node string) (bool, error) {
	clients, err := f.Clients()
	return slices.ContainsFunc(clients, func(c api.Client) bool { return c.NodeID == node }), err
}

// launch starts an Envoy that need not get endpoints.
func (f *fleet) launch(name string, args ...string) {
	f.T.Helper()
	text := testbed.Run(f.T, append([]string{"bootstrap", "--cluster", testbed.Cluster, "--xds", f.XDS,
		"--node-id", name,
		"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	e, err := proc.LaunchEnvoy(f.T.Context(), proc.EnvoyConfig{Bootstrap: text, Dir: f.Dir, Name: name})
	if err != nil {
		f.T.Fatal(err)
	}
	f.T.Cleanup(func() { e.Stop() })
}

func TestAnEnvoyThatVanishesIsNamedUntilItReturns(t *testing.T) {
	t.Parallel()
	f := start(t, testbed.Plan{Servers: testbed.Pool(t, 1), Envoys: 3})
	killed, frozen, stopped := f.Envoys[0], f.Envoys[1], f.Envoys[2]
	f.Eventually("the events name the last Envoy", func() error { // looked for each second
		var found struct{ Events []api.Event }
		err := f.Get("/api/v1/events", &found)
		if err == nil && !slices.ContainsFunc(found.Events, func(e api.Event) bool {
			return e.Kind == api.EventEnvoyJoined && slices.Contains(e.Subjects, "envoy-2")
		}) {
			err = fmt.Errorf("these are there: %+v", found.Events)
		}
		return err
	})
	if err := stopped.Stop(); err != nil { // as in a rolling restart
		t.Fatal(err)
	}
	f.Eventually("the Envoy that was stopped is no longer connected", func() error {
		there, err := f.connected("envoy-2")
		if err == nil && there {
			err = errors.New("it is connected")
		}
		return err
	})
	if err := f.gone(); err != nil {
		t.Errorf("after a SIGTERM: %v", err)
	}

	if err := frozen.Pause(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := killed.Kill(); err != nil {
		t.Fatal(err)
	}
	const closed, silent = "envoy-0: the connection was closed", "envoy-1: keepalive pings were not answered"
	f.Eventually("the killed one is named", func() error { return f.gone(closed) })
	t.Logf("named %v after SIGKILL", time.Since(began).Round(time.Millisecond))
	f.Eventually("the frozen one is named", func() error { return f.gone(closed, silent) })
	t.Logf("named %v after SIGSTOP", time.Since(began).Round(100*time.Millisecond))
	f.Eventually("the killed one is gone, the frozen one is behind, and the incidents say the same", func() error {
		states, incidents, err := f.left()
		if err == nil && (states["envoy-0"] != api.EnvoyGone || incidents["envoy-0"] != "envoy_gone" ||
			states["envoy-1"] != api.EnvoyBehind || incidents["envoy-1"] != "envoy_behind" ||
			states["envoy-2"] != api.EnvoyLeft || incidents["envoy-2"] != "") {
			err = fmt.Errorf("%v with %v", states, incidents)
		}
		return err
	})
	if n := f.Metric("steelyard_gone_envoys"); n != 2 {
		t.Errorf("steelyard_gone_envoys is %v, want 2", n)
	}

	if err := frozen.Resume(); err != nil {
		t.Fatal(err)
	}
	f.Eventually("the frozen one is back", func() error { return f.gone(closed) })
	f.launch("envoy-0")
	f.Eventually("the killed one is back", func() error { return f.gone() })
}

// Each Envoy retries by itself.
func TestRealEnvoysThatAreRefusedAreCountedByTheReason(t *testing.T) {
	a, strangers := testbed.NewAuthority(t), testbed.NewAuthority(t)
	_, _, cert, key := a.Issue("steelyard", time.Now().Add(13*24*time.Hour))
	_, _, late, lateKey := a.Issue("late", time.Now().Add(-time.Hour))
	_, _, strange, strangeKey := strangers.Issue("stranger", time.Now().Add(time.Hour))
	_, _, good, goodKey := a.Issue("envoy", time.Now().Add(time.Hour))
	f := withoutEnvoys(t, testbed.Plan{Servers: testbed.Pool(t, 1),
		Listen: fmt.Sprintf(", tls: {cert_file: %s, key_file: %s, client_ca_file: %s}", cert, key, a.File)})
	f.launch("none", "--xds-ca-file", a.File)
	f.launch("late", "--xds-ca-file", a.File, "--xds-cert-file", late, "--xds-key-file", lateKey)
	f.launch("strange", "--xds-ca-file", a.File, "--xds-cert-file", strange, "--xds-key-file", strangeKey)
	f.launch("distrustful", "--xds-ca-file", strangers.File, "--xds-cert-file", good, "--xds-key-file", goodKey)
	f.launch("plain")
	f.launch("good", "--xds-ca-file", a.File, "--xds-cert-file", good, "--xds-key-file", goodKey)
	f.Eventually("every reason is counted and a problem", func() error {
		s, err := f.Status()
		if err != nil {
			return err
		}
		for _, reason := range []string{"no_certificate", "expired", "unknown_authority", "refused_by_client",
			"not_tls"} {
			i := slices.IndexFunc(s.RefusedHandshakes,
				func(h api.RefusedHandshake) bool { return h.Reason == reason })
			if i < 0 || s.RefusedHandshakes[i].Count == 0 {
				return fmt.Errorf("%s is not counted: %+v", reason, s.RefusedHandshakes)
			}
			text := "TLS handshakes on the xDS port are refused (" + reason + ")"
			if !slices.ContainsFunc(s.Problems,
				func(p api.Problem) bool { return strings.HasPrefix(p.Message, text) }) {
				return fmt.Errorf("no problem says %q: %+v", text, s.Problems)
			}
		}
		there, err := f.connected("good")
		if err == nil && !there {
			err = fmt.Errorf("the good one is not connected")
		}
		return err
	})
	if err := f.gone(); err != nil {
		t.Errorf("Envoys that never connected: %v", err)
	}
	if end := f.Metric("steelyard_certificate_expiry_timestamp_seconds"); end == 0 {
		t.Error("no series has the end of the certificates")
	}
	s, err := f.Status()
	if err != nil {
		t.Fatal(err)
	}
	soon := func(p api.Problem) bool {
		return p.Severity == api.SeverityWarning && strings.Contains(p.Message, cert+" (xds) expires in 13 d")
	}
	if !slices.ContainsFunc(s.Problems, soon) {
		t.Errorf("the certificate that ends in 13 days is no problem: %+v", s.Problems)
	}
}

func TestTheAdminListenerRefusesTheNamesOfStrangers(t *testing.T) {
	f := withoutEnvoys(t, testbed.Plan{Cluster: "endpoints: {static: [{address: 127.0.0.1:9}]}",
		Asked: ", allowed_hosts: [steelyard.example.com]"})
	ask := func(host, path string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.Admin+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	for host, want := range map[string]int{
		f.Admin: 200, "localhost:19000": 200, "10.1.2.3:19000": 200, "steelyard.gpu.svc:19000": 200,
		"steelyard.example.com": 200, "rebound.example.net": 421,
	} {
		status, body := ask(host, "/api/v1/status")
		if status != want || want == 421 && !strings.Contains(body, "admin.allowed_hosts") {
			t.Errorf("Host %s: %d, %s; want %d", host, status, body, want)
		}
	}
	if status, _ := ask("rebound.example.net", "/healthz"); status != 200 {
		t.Errorf("a liveness probe under any name: %d", status)
	}
	f.Eventually("the refusal is a problem", func() error {
		s, err := f.Status()
		if err == nil && !slices.ContainsFunc(s.Problems,
			func(p api.Problem) bool { return strings.Contains(p.Message, `"rebound.example.net"`) }) {
			err = fmt.Errorf("problems %+v", s.Problems)
		}
		return err
	})
}
