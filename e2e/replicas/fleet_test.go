package replicas

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/proc"
	"steelyard/internal/api"
)

// elsewhere wants the replica to show one Envoy of another one, in a state.
func (f *fleet) elsewhere(replica string, state api.EnvoyState) error {
	var list api.ClientList
	if err := f.Get("/api/v1/clients", &list); err != nil {
		return err
	}
	var found []string
	for _, e := range list.Elsewhere {
		if e.Replica == replica && e.NodeID == "envoy-"+replica && e.State == state &&
			slices.Contains(e.Clusters, "llama") {
			found = append(found, e.Address)
		}
	}
	if len(found) != 1 || len(list.Clients) != 1 {
		return fmt.Errorf("want one that is %s at %s, and one here: %+v, %d here", state, replica, list.Elsewhere,
			len(list.Clients))
	}
	return nil
}

// pageCounts wants the strip of the page to have these Envoys.
func (f *fleet) pageCounts(followers, all int) error {
	page, err := f.Answer("/")
	want := fmt.Sprintf("followed by <b>%d of %d</b> Envoys", followers, all)
	if err == nil && !strings.Contains(page, want) {
		err = fmt.Errorf("the page has no %q", want)
	}
	return err
}

// status runs steelyard status with these options; what it prints is returned whatever its exit status.
func status(t *testing.T, args ...string) (out, notes string) {
	t.Helper()
	var stdout, stderr strings.Builder
	binary, err := proc.BuildSteelyard()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), binary, append([]string{"status"}, args...)...)
	c.Stdout, c.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := c.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String()
}

// TestEachReplicaShowsTheEnvoysOfBoth, and those of one that is silent as unknown, with an age.
func TestEachReplicaShowsTheEnvoysOfBoth(t *testing.T) {
	r := startReplicas(t, 2, 2)
	a, b := r.all[0], r.all[1]
	for _, c := range []struct {
		f     *fleet
		other string
	}{{a, "replica-1"}, {b, "replica-0"}} {
		c.f.Eventually("the Envoy of the other replica is shown", func() error {
			return errors.Join(c.f.elsewhere(c.other, api.EnvoyFollows), c.f.pageCounts(2, 2))
		})
		series := fmt.Sprintf("steelyard_fleet_envoys{replica=%q,state=\"follows\"} 1\n", c.other)
		if text, err := c.f.Answer("/metrics"); err != nil || !strings.Contains(text, series) {
			t.Errorf("no series %s, %v", series, err)
		}
	}
	nobody, err := proc.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	out, notes := status(t, "--admin", nobody[0], "--admin", a.Admin, "--admin", b.Admin)
	if !strings.Contains(out, " at http://"+a.Admin) || !strings.Contains(out, "envoy-replica-0") ||
		!strings.Contains(out, "envoy-replica-1") || !strings.Contains(out, "REPLICA") {
		t.Errorf("status prints\n%s", out)
	}
	if !strings.Contains(notes, nobody[0]+" does not answer") {
		t.Errorf("it does not say which replica did not answer: %q", notes)
	}

	if err := a.Control.Pause(); err != nil {
		t.Fatal(err)
	}
	b.Eventually("the Envoy of the silent replica is unheard", func() error {
		return errors.Join(b.elsewhere("replica-0", api.EnvoyUnheard), b.pageCounts(1, 2))
	})
	began := time.Now()
	out, _ = status(t, "--admin", a.Admin, "--admin", b.Admin)
	if !strings.Contains(out, " at http://"+b.Admin) || !strings.Contains(out, "unheard for ") {
		t.Errorf("status prints\n%s", out)
	}
	t.Logf("status has the answer of the second after %v", time.Since(began))
	if err := a.Control.Resume(); err != nil {
		t.Fatal(err)
	}
	b.Eventually("it is heard of again", func() error {
		return errors.Join(b.elsewhere("replica-0", api.EnvoyFollows), b.pageCounts(2, 2))
	})
}

// TestAnEnvoyThatMovesIsCountedOnce, at the replica that it follows now.
func TestAnEnvoyThatMovesIsCountedOnce(t *testing.T) {
	r := startReplicas(t, 2, 2)
	a, b := r.all[0], r.all[1]
	b.Eventually("both are shown", func() error { return b.pageCounts(2, 2) })
	r.doors[0].Point(b.XDS)
	if err := a.Control.Kill(); err != nil {
		t.Fatal(err)
	}
	b.Eventually("both are here", func() error {
		clients, err := b.Clients()
		if err == nil && len(clients) != 2 {
			err = fmt.Errorf("%d Envoys", len(clients))
		}
		return errors.Join(err, b.pageCounts(2, 2))
	})
}

// TestNoReplicaAnswers: each is named, with the reason.
func TestNoReplicaAnswers(t *testing.T) {
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	nobody, err := proc.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	_, notes := status(t, "--admin", nobody[0], "--admin", hangs.Addr().String())
	for _, want := range []string{"none of 2 admin listeners answers", "http://" + nobody[0], "connection refused",
		"http://" + hangs.Addr().String(), "timeout awaiting response headers"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the error has no %q:\n%s", want, notes)
		}
	}
}
