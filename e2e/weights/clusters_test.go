package weights

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/testbed"
	"steelyard/internal/api"
)

// withSecond gives an Envoy of mode shedding the second cluster, under /second.
var withSecond = []testbed.Edit{
	{"              routes:\n", "              routes:\n              - {match: {prefix: /second}, route: " +
		"{cluster: second, timeout: 0s}}\n"},
	{"  clusters:\n", `  clusters:
  - name: second
    type: EDS
    connect_timeout: 2s
    eds_cluster_config:
      eds_config:
        resource_api_version: V3
        api_config_source:
          api_type: GRPC
          transport_api_version: V3
          grpc_services: [{envoy_grpc: {cluster_name: steelyard_xds}}]
`},
}

func TestCountsOfOneClusterDoNotMoveAnother(t *testing.T) {
	pool := testbed.Pool(t, 4)
	busy, idle := testbed.Addresses(pool[:2]), testbed.Addresses(pool[2:])
	cluster1 := func(members ...string) string {
		list := strings.Join(members, "}, {address: ")
		return "scrape: {disabled: true}\nendpoints: {static: [{address: " + list + "}]}"
	}
	f := start(t, testbed.Plan{
		Cluster:   cluster1(busy[0]),
		More:      "- name: second\n  engine: vllm\n  " + strings.ReplaceAll(cluster1(idle...), "\n", "\n  ") + "\n",
		Bootstrap: []string{"--mode", "shedding", "--lb-policy", "round_robin"}, Edits: withSecond,
	})
	const long = 60 // requests of the first cluster, which stay at its first endpoint
	ctx, end := context.WithCancel(t.Context())
	wait := testbed.Asking(ctx, t, long, f.URLs[0], modelsim.HeaderService, "60")
	f.Eventually("the long requests are there", func() error {
		if n := pool[0].InFlight(); n != long {
			return fmt.Errorf("%d in flight", n)
		}
		return nil
	})
	f.WriteConfig(cluster1(busy...))
	f.Eventually("the first cluster avoids its busy endpoint", func() error {
		if hosts := f.Hosts(0); len(hosts) != 2 || !testbed.Avoided(hosts, busy[0]) {
			return fmt.Errorf("hosts %v", hosts)
		}
		return nil
	})

	clusters, err := f.Envoys[0].Clusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if hosts := clusters[testbed.SecondCluster]; len(hosts) != 2 ||
		math.Abs(float64(hosts[0].Weight)/float64(hosts[1].Weight)-1) > 0.1 {
		t.Errorf("the idle second cluster has the hosts %v, want two of one weight", hosts)
	}
	p := testbed.Quick(600)
	p.Targets = []string{f.URLs[0] + testbed.SecondCluster}
	result, err := load.Run(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range idle {
		share := float64(result.Servers[a]) / float64(result.Requests)
		if math.Abs(share-0.5) > 0.3 || result.Errors > 0 {
			t.Errorf("the second cluster sends %.2f of its requests to %s, with %d errors; want about half, and none",
				share, a, result.Errors)
		}
	}
	f.Eventually("the first cluster has its count", func() error { return f.loads(testbed.Cluster, busy[0], long) })
	f.Eventually("the second cluster has its count", func() error { return f.loads(testbed.SecondCluster, idle[0], 0) })
	end()
	wait()
}

// loads wants an endpoint of a cluster to have this number of requests, counted by Envoys.
func (f *fleet) loads(name, address string, want float64) error {
	v, err := f.ViewOf(name)
	if err != nil {
		return err
	}
	for _, e := range v.Endpoints {
		if e.Address == address && (e.Load.Or(-1) != want || e.InFlightSource == "") {
			return fmt.Errorf("%s has %v requests at %s by %q, want %v", name, e.Load.Or(-1), address, e.InFlightSource,
				want)
		}
	}
	return nil
}

// The slow server has by far the largest capacity, so the policies disagree about it.
func TestAReloadSwitchesThePolicyToLeastLatencyLive(t *testing.T) {
	pool := testbed.Servers(t, modelsim.Options{Slots: 1000, Speed: 0.1}, testbed.Wide, testbed.Wide)
	slow := pool[0].Address()
	endpoints := fmt.Sprintf("endpoints:\n  static:\n  - {address: %s, capacity: 100}\n"+
		"  - {address: %s, capacity: 1}\n  - {address: %s, capacity: 1}\n",
		slow, pool[1].Address(), pool[2].Address())
	f := start(t, testbed.Plan{Cluster: endpoints, Envoys: 2})
	traffic := f.Send(load.Plan{Rate: 100, Work: load.Work{Mean: 20 * time.Millisecond}, Seed: 5})
	f.Eventually("the policy load follows the capacity", func() error { return f.ShareOf(slow, 0.8, 1) })
	before, err := f.subscription("envoy-0")
	if err != nil {
		t.Fatal(err)
	}

	f.WriteConfig("policy: least-latency\n" + endpoints)
	f.Eventually("least-latency avoids the slow server", func() error { return f.ShareOf(slow, 0, 0.25) })
	f.WriteConfig(endpoints)
	f.Eventually("the policy load is back", func() error { return f.ShareOf(slow, 0.8, 1) })

	after, err := f.subscription("envoy-0")
	if err != nil {
		t.Fatal(err)
	}
	if requests, failed := traffic.Stop(t); failed != 0 || requests == 0 {
		t.Errorf("%d of %d requests failed", failed, requests)
	}
	if n := f.EnvoyStat("cluster.steelyard_xds.upstream_cx_destroy"); n != 0 || after.Acks <= before.Acks ||
		after.Nacks != 0 {
		t.Errorf("%v connections to the control plane ended, ACKs %d then %d, %d NACKs; want the same stream going on",
			n, before.Acks, after.Acks, after.Nacks)
	}
}

// Envoys above reports_above report their requests only by load reports.
func TestCountsOfEnvoysInModeReportsComeBackWithARestartedControlPlane(t *testing.T) {
	t.Parallel()
	pool := testbed.Pool(t, 2)
	f := start(t, testbed.Plan{Servers: pool, Envoys: 2, Listen: ", access_log: {batch_above: 5, reports_above: 10}"})
	const long = 20 // requests that are open throughout, whose begin a restarted Steelyard has not seen
	ctx, end := context.WithCancel(t.Context())
	wait := testbed.Asking(ctx, t, long, f.URLs[0], modelsim.HeaderService, "60")
	traffic := f.Send(load.Plan{Rate: 100, Work: load.Work{Mean: 10 * time.Millisecond}, Seed: 4})
	counted := func() error {
		if err := f.Modes(api.ModeReports); err != nil {
			return err
		}
		return f.countedByReports(long)
	}
	f.Eventually("the Envoys send only load reports", counted)

	if err := f.Control.Kill(); err != nil {
		t.Fatal(err)
	}
	served := pool[1].Served()
	f.Eventually("traffic goes on without a control plane", func() error {
		if got := pool[1].Served() - served; got < 20 {
			return fmt.Errorf("%d served", got)
		}
		return nil
	})
	f.Control = f.StartControl("steelyard-2")
	f.Eventually("the counts are back", counted)
	if requests, failed := traffic.Stop(t); failed != 0 || requests == 0 {
		t.Errorf("%d of %d requests failed", failed, requests)
	}
	end()
	wait()
}

// countedByReports wants at least this number of requests to be counted, by load reports.
func (f *fleet) countedByReports(least float64) error {
	v, err := f.View()
	if err != nil {
		return err
	}
	sum := 0.0
	for _, e := range v.Endpoints {
		if e.InFlightSource != api.SourceLoadReports {
			return fmt.Errorf("%s is counted by %q", e.Address, e.InFlightSource)
		}
		sum += e.Input("in_flight").Value.Or(0)
	}
	if sum < least {
		return fmt.Errorf("%v requests in flight, want %v", sum, least)
	}
	return nil
}
