package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/redis/go-redis/v9"
	discoveryv1 "k8s.io/api/discovery/v1"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
)

// TestEndpointSlicesBecomeMembersWhoseScoresAreCounts: from the Kubernetes API through sync_members into the sorted
// set, where a proxy counts its requests, and from there into the decision.
func TestEndpointSlicesBecomeMembersWhoseScoresAreCounts(t *testing.T) {
	r := newRoom(t, client(t, apiServer(t)))
	r.account()
	r.grant(r.name, readSlices, readPods)
	r.slice("llama", "four", httpPort, at("192.0.2.1", "a"), at("192.0.2.2", "b"))
	r.sliceOf(discoveryv1.AddressTypeIPv6, "llama", "six", httpPort, at("2001:db8::9", ""))
	r.slice("llama", "job", nil, at("192.0.2.3", "job")) // left out, by its lack of a port
	server := proctest.Redis(t, proc.RedisConfig{})
	db := redis.NewClient(&redis.Options{Addr: server.Address()})
	t.Cleanup(func() { _ = db.Close() })
	p := r.serve(fmt.Sprintf("scrape: {disabled: true}\n  warm_up: 1s\n  "+
		"endpoints: {kubernetes: {service: llama, port: 8000, namespace: %s}}\n  "+
		"inflight: {redis_key: \"inflight:{cluster}\", sync_members: true}\nredis: {addresses: [%q]}",
		r.name, server.Address()))
	scores := func(want map[string]float64) {
		t.Helper()
		eventually(t, fmt.Sprintf("the sorted set is %v", want), func() error {
			all, err := db.ZRangeWithScores(context.Background(), "inflight:llama", 0, -1).Result()
			got := map[string]float64{}
			for _, z := range all {
				got[z.Member.(string)] = z.Score
			}
			if err != nil || !maps.Equal(got, want) {
				return fmt.Errorf("it is %v (%w)", got, err)
			}
			return nil
		})
	}
	counts := func(want map[string]float64) {
		t.Helper()
		eventually(t, fmt.Sprintf("the decision is made by %v", want), func() error {
			v, err := p.view()
			got := map[string]float64{}
			for _, e := range v.Endpoints {
				for _, in := range e.Inputs {
					if in.Field == "in_flight" {
						got[e.Address] = in.Value.Or(-1)
					}
				}
			}
			if err != nil || !maps.Equal(got, want) {
				return fmt.Errorf("it is made by %v (%w)", got, err)
			}
			return nil
		})
	}
	scores(map[string]float64{"192.0.2.1:8000": 0, "192.0.2.2:8000": 0, "[2001:db8::9]:8000": 0})
	counts(map[string]float64{"192.0.2.1:8000": 0, "192.0.2.2:8000": 0, "[2001:db8::9]:8000": 0})
	r.must(db.ZIncrBy(t.Context(), "inflight:llama", 7, "192.0.2.1:8000").Err()) // as the proxies do
	counts(map[string]float64{"192.0.2.1:8000": 7, "192.0.2.2:8000": 0, "[2001:db8::9]:8000": 0})

	// One goes and another comes: counts of those that stay are left alone.
	r.slice("llama", "four", httpPort, at("192.0.2.1", "a"), at("192.0.2.4", "c"))
	scores(map[string]float64{"192.0.2.1:8000": 7, "192.0.2.4:8000": 0, "[2001:db8::9]:8000": 0})
	counts(map[string]float64{"192.0.2.1:8000": 7, "192.0.2.4:8000": 0, "[2001:db8::9]:8000": 0})
	// The Pod without the port gets it, and comes.
	r.slice("llama", "job", httpPort, at("192.0.2.3", "job"))
	scores(map[string]float64{"192.0.2.1:8000": 7, "192.0.2.3:8000": 0, "192.0.2.4:8000": 0, "[2001:db8::9]:8000": 0})
	// All go.
	r.slice("llama", "four", httpPort)
	r.slice("llama", "job", httpPort)
	r.sliceOf(discoveryv1.AddressTypeIPv6, "llama", "six", httpPort)
	scores(map[string]float64{})
	counts(map[string]float64{})
}
