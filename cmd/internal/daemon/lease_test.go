package daemon

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"steelyard/controlplane/config"
	"steelyard/internal/api"
)

func TestNoReplicaHasAnAddressOfItsOwnMachineOnly(t *testing.T) {
	for _, c := range []struct {
		listener, towards string
		fails, found      bool
	}{
		{listener: "10.0.0.5:18000", towards: "127.0.0.1:6379"},
		{listener: "127.0.0.1:18000", towards: "10.0.0.9:6379", fails: true},
		{listener: "[::1]:18000", towards: "10.0.0.9:6379", fails: true},
		{listener: "0.0.0.0:18000", towards: "127.0.0.1:6379", found: true},
		{listener: "[::]:18000", towards: "localhost:6379", found: true},
	} {
		got, err := reachable(c.listener, c.towards)
		host, _, _ := net.SplitHostPort(got)
		switch {
		case c.fails:
			if err == nil || !strings.Contains(err.Error(), "address: HOST:PORT below replicas") {
				t.Errorf("%s: %q, %v; want an error", c.listener, got, err)
			}
		case c.found:
			if err == nil && (config.Loopback(got) || net.ParseIP(host).IsUnspecified()) { // or it has no network
				t.Errorf("%s towards %s: %q", c.listener, c.towards, got)
			}
		case got != c.listener || err != nil:
			t.Errorf("%s: %q, %v", c.listener, got, err)
		}
	}
}

const queued = "\nclusters: [{name: llama, engine: vllm, endpoints: {static: [{address: 127.0.0.1:1}]}, " +
	"scrape: {disabled: true}, queue: {max_in_flight: 1}}]\n"

// TestAPodWithoutATokenHasNoQueueOfItsOwn: each of its replicas would have one.
func TestAPodWithoutATokenHasNoQueueOfItsOwn(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	_, err := config.Parse("steelyard.yaml", []byte(queued), CheckFiles)
	for what, err := range map[string]error{"check": err, "the start": start(t, queued)} {
		for _, want := range []string{"automountServiceAccountToken: true", "lease: redis, peers: [HOST:PORT]",
			"{lease: none}"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", what, err, want)
			}
		}
	}
	if err := start(t, "replicas: {lease: none}"+queued); err != nil {
		t.Errorf("the only replica: %v", err)
	}
}

func start(t *testing.T, text string) error {
	t.Helper()
	d, err := New(parse(t, text), Options{Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		d.Close()
	}
	return err
}

// TestEpochsGoOnRisingFromOneLeaseToTheNext, as modules refuse lower ones.
func TestEpochsGoOnRisingFromOneLeaseToTheNext(t *testing.T) {
	with := func(store string) *config.Config {
		text := ""
		if store != "" {
			text = fmt.Sprintf("redis: {addresses: [%q]}\nreplicas: {address: 127.0.0.1:18000, peers: "+
				"[127.0.0.1:18001]}", store)
		}
		return parse(t, text+queued)
	}
	first, second := miniredis.RunT(t), miniredis.RunT(t)
	if err := first.Set("steelyard:{queue}:epoch", "41"); err != nil {
		t.Fatal(err)
	}
	d, base := serve(t, with(first.Addr()))
	for _, c := range []struct {
		store string
		epoch float64
		lease string
	}{{first.Addr(), 42, "redis"}, {second.Addr(), 43, "redis"}, {"", 43, "none"},
		{second.Addr(), 44, "redis"}} {
		if err := d.Apply(with(c.store)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it grants places with a higher epoch", func() error {
			var cluster api.Cluster
			if err := get(base, "/api/v1/clusters/llama", &cluster); err != nil {
				return err
			}
			if o := cluster.Queue.Owner; o.State != api.QueueGrants || o.Epoch.Or(0) != c.epoch || o.Lease != c.lease {
				return fmt.Errorf("the owner is %+v, want epoch %v by %s", o, c.epoch, c.lease)
			}
			return nil
		})
	}
}

// TestAnotherPeerChangesNothingAboutTheLease, on which the queues of all replicas depend.
func TestAnotherPeerChangesNothingAboutTheLease(t *testing.T) {
	store := miniredis.RunT(t)
	with := func(peers string) *config.Config {
		return parse(t, fmt.Sprintf("redis: {addresses: [%q]}\nreplicas: {address: 127.0.0.1:18000, peers: [%s]}",
			store.Addr(), peers)+queued)
	}
	d, _ := serve(t, with("127.0.0.1:18001"))
	before := d.keeper.Load()
	if err := d.Apply(with("127.0.0.1:18001, 127.0.0.1:18002")); err != nil {
		t.Fatal(err)
	}
	if d.keeper.Load() != before || before == nil {
		t.Error("the lease is another one")
	}
}

// TestReplicasThatAServiceNamesHaveNoQueueEach, also outside a Pod.
func TestReplicasThatAServiceNamesHaveNoQueueEach(t *testing.T) {
	d := &Daemon{options: Options{Service: "steelyard-xds"}}
	if where := parse(t, queued).Lease(d.inCluster()); where != config.LeaseKubernetes {
		t.Errorf("the lease is %q", where)
	}
}

// TestTheOnlyReplicaSharesNothing, though there is a Redis, for example for counts.
func TestTheOnlyReplicaSharesNothing(t *testing.T) {
	redis := miniredis.RunT(t)
	text := fmt.Sprintf("redis: {addresses: [%q]}\nreplicas: {lease: none}", redis.Addr())
	d, base := serve(t, parse(t, text+queued))
	var cluster api.Cluster
	if err := get(base, "/api/v1/clusters/llama", &cluster); err != nil {
		t.Fatal(err)
	}
	if o := cluster.Queue.Owner; o.State != api.QueueGrants || o.Lease != "none" || d.link.Status().Enabled {
		t.Errorf("the owner is %+v, and there is a link: %t", o, d.link.Status().Enabled)
	}
}
