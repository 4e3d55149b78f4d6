package replicas

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/testbed"
)

// startLearning starts two control planes that know each other, each with an Envoy whose module learns where prompts
// are cached.
func startLearning(t *testing.T, pool []*modelsim.Server) (a, b *fleet) {
	t.Helper()
	own, err := proc.FreeAddresses(2)
	if err != nil {
		t.Fatal(err)
	}
	var all []*fleet
	for i := range own {
		f := withoutEnvoys(t, testbed.Plan{Servers: pool, Own: own[i], Cluster: "prefix: {choice: longest-match}",
			Top: fmt.Sprintf("replicas: {name: replica-%d, peers: [%s]}", i, strings.Join(own, ", "))})
		f.startLearner(t)
		all = append(all, f)
	}
	(&replicas{all: all}).together(t)
	return all[0], all[1]
}

// startLearner starts one more Envoy with the module.
func (f *fleet) startLearner(t *testing.T) {
	t.Helper()
	testbed.ByModule.StartEnvoy(t, f.Fleet, "--prefix")
	f.Chooses(t, len(f.Envoys)-1)
}

// routes wants the replica to keep at least so many routes, of those that pickers of other replicas learned, and of
// all.
func (f *fleet) routes(elsewhere, all int) error {
	v, err := f.View()
	if err != nil {
		return err
	}
	if r := v.Routes; r == nil || r.Elsewhere < elsewhere || r.Here+r.Elsewhere < all {
		return fmt.Errorf("routes: %+v, want %d of elsewhere, and %d", r, elsewhere, all)
	}
	return nil
}

// goOn sends the next message of each conversation through an Envoy, once that has at least a route of each, and wants
// it to go by its prompt where the conversation was, unless that has too much to do at the moment.
func (f *fleet) goOn(t *testing.T, envoy int, places map[string][]int, turn string) {
	t.Helper()
	f.Eventually("the Envoy has the routes", func() error {
		const gauge = "dynamicmodulescustom.picker_prefix_routes.envoy_cluster_name." + testbed.Cluster
		stats, err := f.Envoys[envoy].Stats(t.Context(), gauge)
		if err == nil && stats[gauge] < float64(len(places)) {
			err = fmt.Errorf("%v routes", stats[gauge])
		}
		return err
	})
	before, overridden := f.Choices(t, envoy, "prefix"), f.Choices(t, envoy, "override")
	moved := 0
	for name, were := range places {
		if got := f.PostTo(t, envoy, testbed.Talk(name, turn)); !slices.Contains(were, got) {
			t.Logf("%s %s went to server %d, and was at %v", name, turn, got, were)
			moved++
			places[name] = append(were, got)
		}
	}
	n := f.Choices(t, envoy, "prefix") - before
	overridden = f.Choices(t, envoy, "override") - overridden
	if n+overridden != float64(len(places)) || float64(moved) > overridden {
		t.Errorf("%s: %v choices by a prompt and %v because that had too much to do, of %d; %d went elsewhere", turn, n,
			overridden, len(places), moved)
	}
}

// TestAConversationGoesOnThroughAnEnvoyOfAnotherReplica, and after that replica was started again, through its new
// Envoy, too.
func TestAConversationGoesOnThroughAnEnvoyOfAnotherReplica(t *testing.T) {
	testbed.WithModule(t)
	const conversations = 12
	pool := testbed.Pool(t, 4)
	a, b := startLearning(t, pool)
	places, used := map[string][]int{}, map[int]bool{}
	for i := range conversations {
		name, place := fmt.Sprint("conversation ", i), a.Post(t, testbed.Talk(fmt.Sprint("conversation ", i)))
		places[name], used[place] = []int{place}, true
	}
	if len(used) < 2 {
		t.Fatalf("%d conversations began at %d of 4 servers", conversations, len(used))
	}
	began := time.Now()
	b.Eventually("the other replica has what was learned", func() error {
		return b.routes(conversations, conversations)
	})
	t.Logf("shown after %v", time.Since(began))
	b.goOn(t, 0, places, "through b")

	if err := a.Control.Kill(); err != nil {
		t.Fatal(err)
	}
	b.goOn(t, 0, places, "while a is away")
	a.Control = a.StartControl("again")
	a.Eventually("one that begins gets the routes of the other", func() error { return a.routes(0, conversations) })
	a.startLearner(t)
	a.goOn(t, 1, places, "through a new Envoy")
	a.goOn(t, 0, places, "through the one that was there")
}

// TestARouteThatAnEngineLostIsForgottenEverywhere, also by a replica that cannot see that the engine restarted.
func TestARouteThatAnEngineLostIsForgottenEverywhere(t *testing.T) {
	testbed.WithModule(t)
	pool := testbed.Pool(t, 2)
	a, b := startLearning(t, pool)
	prompt := testbed.Talk("a conversation")
	answered := pool[a.Post(t, prompt)]
	b.Eventually("the other replica has the route", func() error { return b.routes(1, 1) })
	for _, f := range []*fleet{a, b} {
		f.Eventually("its counters are read", func() error {
			e, err := f.Endpoint(answered.Address())
			if err == nil && !(e.CompletedRequests.Or(0) > 0) {
				err = fmt.Errorf("%v requests", e.CompletedRequests)
			}
			return err
		})
	}
	if err := answered.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := modelsim.Start(modelsim.Options{Slots: testbed.Wide.Slots, Address: answered.Address()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	for _, f := range []*fleet{a, b} {
		f.Eventually("its route is forgotten", func() error {
			v, err := f.View()
			if err == nil && v.Routes.Here+v.Routes.Elsewhere > 0 {
				err = fmt.Errorf("routes: %+v", v.Routes)
			}
			return err
		})
	}
}
