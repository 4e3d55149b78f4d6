package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"steelyard/cmd/internal/gateway"
	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery/kubernetes"
	"steelyard/internal/api"
	"steelyard/internal/loops"
)

// A poolAPI is a Kubernetes API with InferencePools and Gateways.
type poolAPI struct {
	*httptest.Server
	mu       sync.Mutex
	version  int
	pools    map[string]map[string]any // NAMESPACE/NAME
	gateways map[string]int            // the routes of NAMESPACE/NAME; negative if it may not be read
	refuses  string                    // the namespace whose statuses may not be written
	webhook  string                    // the pool that a webhook refuses
	writes   int                       // that were tried
}

func newPoolAPI(t *testing.T) *poolAPI {
	t.Helper()
	a := &poolAPI{pools: map[string]map[string]any{}, gateways: map[string]int{}}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

// pool makes one, and whatever had its name is gone.
func (a *poolAPI) pool(namespace, name string, parents ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	version := strconv.Itoa(a.version)
	a.pools[namespace+"/"+name] = map[string]any{
		"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
		"metadata": map[string]any{"namespace": namespace, "name": name, "uid": version, "generation": 1,
			"resourceVersion": version},
		"spec": map[string]any{}, "status": map[string]any{"parents": parents}}
}

// parents returns those in the status of a pool, as KIND NAMESPACE/NAME, with a reason where they do not take it.
func (a *poolAPI) parents(pool string) (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all, _ := a.pools[pool]["status"].(map[string]any)["parents"].([]any)
	for _, p := range all {
		p := p.(map[string]any)
		ref := p["parentRef"].(map[string]any)
		text := fmt.Sprintf("%v %v/%v", ref["kind"], ref["namespace"], ref["name"])
		if c, ok := p["conditions"].([]any); ok && c[0].(map[string]any)["status"] == "False" {
			text += ": " + c[0].(map[string]any)["message"].(string)
		}
		out = append(out, text)
	}
	return out
}

func (a *poolAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	q := r.URL.Query()
	if q.Get("watch") != "" {
		if q.Get("sendInitialEvents") != "" {
			refuse(w, http.StatusBadRequest, "BadRequest", "")
			return
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	parts := strings.Split(r.URL.Path, "/") // /apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME/status
	namespace := parts[5]
	switch {
	case parts[6] == "gateways":
		routes, ok := a.gateways[namespace+"/"+parts[7]]
		if routes < 0 {
			refuse(w, http.StatusForbidden, "Forbidden", parts[7])
			return
		}
		if !ok {
			refuse(w, http.StatusNotFound, "NotFound", parts[7])
			return
		}
		answer(w, map[string]any{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
			"status": map[string]any{"listeners": []any{map[string]any{"name": "http", "attachedRoutes": routes}}}})
	case r.Method == http.MethodPatch:
		a.patch(w, r, namespace, parts[7])
	default:
		var items []any
		for _, name := range slices.Sorted(maps.Keys(a.pools)) {
			if strings.HasPrefix(name, namespace+"/") {
				items = append(items, a.pools[name])
			}
		}
		answer(w, map[string]any{"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePoolList",
			"metadata": map[string]any{"resourceVersion": strconv.Itoa(a.version)}, "items": items})
	}
}

func (a *poolAPI) patch(w http.ResponseWriter, r *http.Request, namespace, name string) {
	a.writes++
	if a.refuses == namespace {
		refuse(w, http.StatusForbidden, "Forbidden", name, `inferencepools.inference.networking.k8s.io is forbidden: `+
			`User "steelyard" cannot patch resource "inferencepools/status"`)
		return
	}
	if a.webhook == namespace+"/"+name {
		refuse(w, http.StatusForbidden, "Forbidden", name, `admission webhook "odd.example.com" denied the request`)
		return
	}
	var patch struct {
		Metadata struct{ ResourceVersion string }
		Status   map[string]any
	}
	body, _ := io.ReadAll(r.Body)
	pool := a.pools[namespace+"/"+name]
	metadata := pool["metadata"].(map[string]any)
	if json.Unmarshal(body, &patch) != nil || patch.Metadata.ResourceVersion != metadata["resourceVersion"] {
		refuse(w, http.StatusConflict, "Conflict", name)
		return
	}
	a.version++
	metadata["resourceVersion"], pool["status"] = strconv.Itoa(a.version), patch.Status
	answer(w, pool)
}

func answer(w io.Writer, object map[string]any) { _ = json.NewEncoder(w).Encode(object) }

func refuse(w http.ResponseWriter, code int, reason, name string, message ...string) {
	w.WriteHeader(code)
	answer(w, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
		"message": strings.Join(message, ""), "details": map[string]any{"name": name}})
}

// A parentsTest is a replica whose passes are made by hand.
type parentsTest struct {
	*Daemon
	t       *testing.T
	api     *poolAPI
	now     time.Time
	follows map[string]bool // the clusters that Envoys follow
}

// newParentsTest makes a replica of Steelyard in the namespace steelyard.
func newParentsTest(t *testing.T, a *poolAPI) *parentsTest {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Appendf(nil, "current-context: a\ncontexts: [{name: a, context: {cluster: a, namespace: steelyard}}]\n"+
		"clusters: [{name: a, cluster: {server: %q}}]\n", a.URL)
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := parse(t, fmt.Sprintf("kubernetes: {kubeconfig: %q}\nreplicas: {lease: none}\n"+
		"pools: {namespaces: [models, more]}", kubeconfig))
	d, err := New(cfg, Options{Version: "test", Service: "steelyard-xds", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	p := &parentsTest{Daemon: d, t: t, api: a, now: time.Now(), follows: map[string]bool{}}
	d.gateway = &extensionServer{Server: gateway.New(gateway.Options{Log: d.options.Log})}
	t.Cleanup(func() { d.gateway = nil }) // it has no listener
	return p
}

// pass reads the pools, and makes one pass after some time.
func (p *parentsTest) pass(after time.Duration) error {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	defer cancel()
	read := func(found map[string][]kubernetes.FoundPool, err error) {
		if len(found) == 2 {
			p.poolsFound(found, err)
			cancel()
		}
	}
	p.kubernetes.client.Pools(ctx, []string{"models", "more"}, read)
	p.now = p.now.Add(after)
	v := p.parentsView()
	v.follow = func(cluster string) bool { return p.follows[cluster] }
	return p.parents.pass(p.t.Context(), p.now, v)
}

func (p *parentsTest) passes(after time.Duration) {
	p.t.Helper()
	if err := p.pass(after); err != nil {
		p.t.Error(err)
	}
}

func (p *parentsTest) has(pool string, want ...string) {
	p.t.Helper()
	if got := p.api.parents(pool); !slices.Equal(got, want) {
		p.t.Errorf("the parents of %s are %q, want %q", pool, got, want)
	}
}

func naming(gateway string, pools ...string) map[string][]api.GatewayPool {
	out := map[string][]api.GatewayPool{gateway: nil}
	for _, p := range pools {
		name, reason, _ := strings.Cut(p, ": ")
		out[gateway] = append(out[gateway], api.GatewayPool{Namespace: "models", Name: name, Reason: reason})
	}
	return out
}

// foreign is a parent that another controller has written.
func foreign(accepted string) map[string]any {
	return map[string]any{"controllerName": "example.com/other", "parentRef": map[string]any{"kind": "Gateway",
		"namespace": "other", "name": "gw"}, "conditions": []any{map[string]any{"type": "Accepted", "status": accepted,
		"reason": "EndpointPickerRefMissing", "message": "it has no picker"}}}
}

func TestAGatewayIsAParentWhileItsRoutesNameThePool(t *testing.T) {
	a := newPoolAPI(t)
	a.gateways["models/eg"], a.gateways["models/two"] = 1, 1
	a.pool("models", "llama", foreign("True"))
	a.pool("models", "next")
	p := newParentsTest(t, a)
	p.parents.named(naming("models/eg", "llama", "next: its appProtocol is odd"))
	p.parents.named(naming("models/two", "llama"))
	p.passes(0)
	p.has("models/llama", "Gateway other/gw", "Gateway models/eg", "Gateway models/two")
	p.has("models/next", "Gateway models/eg: its appProtocol is odd")

	p.parents.named(naming("models/eg", "next"))
	p.passes(time.Second)
	p.has("models/llama", "Gateway other/gw", "Gateway models/two")
	p.has("models/next", "Gateway models/eg")
	writes := a.writes
	for range 20 {
		p.parents.named(naming("models/eg", "next"))
		p.passes(time.Minute)
	}
	if a.writes != writes {
		t.Errorf("nothing has changed, and %d writes were tried", a.writes-writes)
	}
}

func TestWhatAProcessBeforeHasWrittenStaysUntilTheGatewayIsAskedAboutOrGone(t *testing.T) {
	a := newPoolAPI(t)
	a.gateways["models/eg"], a.gateways["models/old"], a.gateways["models/idle"] = 1, 1, 1
	a.pool("models", "llama", foreign("True"))
	a.pool("models", "next")
	before := newParentsTest(t, a)
	for _, gateway := range []string{"models/eg", "models/old", "models/idle"} {
		before.parents.named(naming(gateway, "llama"))
	}
	before.passes(0)

	delete(a.gateways, "models/old") // while no Steelyard runs
	p := newParentsTest(t, a)
	p.passes(0)
	p.has("models/llama", "Gateway other/gw", "Gateway models/eg", "Gateway models/idle", "Gateway models/old")
	p.parents.named(naming("models/eg", "next"))
	p.passes(time.Second)
	p.has("models/llama", "Gateway other/gw", "Gateway models/idle", "Gateway models/old")
	a.gateways["models/idle"] = 0 // its last route goes; with merged Gateways, no translation names it
	p.passes(gatewaysInterval)
	p.passes(gatewaysInterval)
	p.passes(gatewaysInterval)
	p.has("models/llama", "Gateway other/gw")
}

// Envoy Gateway says nothing of a Gateway that goes.
func TestAGatewayThatIsGoneIsForgotten(t *testing.T) {
	a := newPoolAPI(t)
	a.gateways["models/eg"] = 1
	a.pool("models", "llama")
	p := newParentsTest(t, a)
	p.parents.named(naming("models/eg", "llama"))
	p.passes(0)
	delete(a.gateways, "models/eg")
	p.passes(gatewaysInterval)
	p.has("models/llama", "Gateway models/eg") // it may be made again at this moment
	p.passes(gatewaysInterval)
	p.has("models/llama")
}

func TestAPoolThatOnlyEnvoysFollowHasSteelyardsServiceAsItsParent(t *testing.T) {
	const service = "Service steelyard/steelyard-xds"
	a := newPoolAPI(t)
	a.gateways["models/eg"] = 1
	a.pool("models", "llama", foreign("False")) // such as Istio, of a pool without a picker
	a.pool("models", "next", foreign("True"))
	p := newParentsTest(t, a)
	p.follows["models.llama"], p.follows["models.next"] = true, true
	p.passes(0)
	p.passes(followedAfter - time.Second)
	p.has("models/llama", "Gateway other/gw: it has no picker") // an Envoy that is about to get its gateway's routes
	p.passes(time.Second)
	p.has("models/llama", "Gateway other/gw: it has no picker", service)
	p.has("models/next", "Gateway other/gw")

	p.parents.named(naming("models/eg", "llama"))
	p.passes(parentsRest)
	p.has("models/llama", "Gateway other/gw: it has no picker", "Gateway models/eg")
	p.parents.named(naming("models/eg", "llama: it is refused"))
	p.passes(parentsRest)
	p.has("models/llama", "Gateway other/gw: it has no picker", "Gateway models/eg: it is refused", service)
	p.parents.named(naming("models/eg"))
	p.passes(parentsRest)

	p = newParentsTest(t, a) // Steelyard is started again, and Envoys need some seconds to find it
	p.passes(0)
	p.passes(leftAfter - time.Second)
	p.has("models/llama", "Gateway other/gw: it has no picker", service)
	p.passes(time.Second)
	p.has("models/llama", "Gateway other/gw: it has no picker")
}

// Each replica is asked at other times.
func TestReplicasDoNotFightAboutParents(t *testing.T) {
	a := newPoolAPI(t)
	a.gateways["models/eg"] = 1
	a.pool("models", "llama")
	first, second := newParentsTest(t, a), newParentsTest(t, a)
	first.parents.named(naming("models/eg", "llama"))
	first.passes(0)
	second.parents.named(naming("models/eg"))
	second.passes(0)
	writes := a.writes
	for range 10 {
		first.passes(parentsRest)
		second.passes(parentsRest)
	}
	first.has("models/llama")
	if a.writes != writes {
		t.Errorf("nothing has changed, and they have written %d times", a.writes-writes)
	}
}

func TestReplicasDoNotFightWhileAPoolThatARouteNamesIsMissing(t *testing.T) {
	a := newPoolAPI(t)
	a.gateways["models/eg"] = 1
	a.pool("models", "llama")
	first, second := newParentsTest(t, a), newParentsTest(t, a)
	first.parents.named(naming("models/eg", "llama", "ghost"))
	first.passes(0)
	second.parents.named(naming("models/eg", "ghost"))
	second.passes(0)
	writes := a.writes
	for range 10 {
		first.passes(parentsInterval)
		second.passes(parentsInterval)
	}
	first.has("models/llama")
	if a.writes != writes {
		t.Errorf("nothing has changed, and they have written %d times", a.writes-writes)
	}
	a.pool("models", "ghost")
	first.passes(parentsInterval)
	first.has("models/ghost", "Gateway models/eg")
	first.has("models/llama")
}

func TestAllReplicasKnowThatAnEnvoyFollows(t *testing.T) {
	first, _ := serve(t, parse(t, pool))
	second, _ := serve(t, parse(t, pool))
	know(t, first, second)
	if second.envoysFollow("llama") {
		t.Error("an Envoy follows before there is one")
	}
	subscribe(t, first.XDSAddress(), "envoy", "llama")
	for _, d := range []*Daemon{first, second} {
		eventually(t, "an Envoy follows", func() error {
			if !d.envoysFollow("llama") || d.envoysFollow("other") {
				return fmt.Errorf("llama %v, other %v", d.envoysFollow("llama"), d.envoysFollow("other"))
			}
			return nil
		})
	}
}

func TestAStatusThatMayNotBeWrittenIsAStateAndTriedOnceAMinute(t *testing.T) {
	a := newPoolAPI(t)
	a.gateways["models/eg"] = 1
	a.pool("models", "llama")
	a.pool("models", "next")
	a.pool("more", "llama")
	a.refuses = "models"
	p := newParentsTest(t, a)
	p.parents.named(map[string][]api.GatewayPool{"models/eg": {{Namespace: "models", Name: "llama"},
		{Namespace: "models", Name: "next"}, {Namespace: "more", Name: "llama"}}})
	for range 12 {
		err := p.pass(5 * time.Second)
		if err == nil || !strings.Contains(err.Error(), "may not patch inferencepools/status in namespace models") {
			t.Fatalf("the error is %v", err)
		}
	}
	p.has("more/llama", "Gateway models/eg")
	if a.writes != 2 {
		t.Errorf("%d writes were tried in the first minute", a.writes)
	}
	p.parents.finish(p.pass(0), p.options.Log)
	if s := p.Status().Pools; !strings.Contains(s.StatusError, "may not patch") {
		t.Errorf("the state is %+v", s)
	}
	a.refuses = "" // the Role is corrected
	p.passes(parentsRetry)
	p.has("models/llama", "Gateway models/eg")
	p.has("models/next", "Gateway models/eg")
}

func TestAPoolThatCannotBeWrittenDoesNotStopTheOthersOfItsNamespace(t *testing.T) {
	a := newPoolAPI(t)
	a.gateways["models/eg"] = 1
	a.pool("models", "bad")
	a.pool("models", "llama")
	a.webhook = "models/bad"
	p := newParentsTest(t, a)
	p.parents.named(naming("models/eg", "bad", "llama"))
	err := p.pass(0)
	if text := fmt.Sprint(err); !strings.Contains(text, "InferencePool models/bad") || strings.Contains(text, "Role") {
		t.Errorf("the error is %v", err)
	}
	p.has("models/llama", "Gateway models/eg")
	_ = p.pass(parentsInterval)
	if a.writes != 2 {
		t.Errorf("%d writes were tried", a.writes)
	}
}

// A webhook may hang for longer than a pass may take.
func TestAPassWithoutTimeLeftIsNotTheFaultOfPools(t *testing.T) {
	a := newPoolAPI(t)
	a.gateways["models/eg"] = 1
	a.pool("models", "llama")
	p := newParentsTest(t, a)
	p.passes(0)
	p.parents.named(naming("models/eg", "llama"))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.parents.pass(over, p.now, p.parentsView()); err != nil {
		t.Error(err)
	}
	p.passes(parentsInterval)
	p.has("models/llama", "Gateway models/eg")
}

func TestAGatewayThatCannotBeReadDoesNotStopTheLookForOthers(t *testing.T) {
	a := newPoolAPI(t)
	a.gateways["models/a"], a.gateways["models/b"], a.gateways["models/c"] = 1, 1, 1
	a.pool("models", "llama")
	p := newParentsTest(t, a)
	for _, gateway := range []string{"models/a", "models/b", "models/c"} {
		p.parents.named(naming(gateway, "llama"))
	}
	p.passes(0)
	a.gateways["models/b"] = -1
	delete(a.gateways, "models/a")
	delete(a.gateways, "models/c")
	for range 2 {
		if err := p.pass(gatewaysInterval); err == nil || !strings.Contains(err.Error(), "may not get gateways") {
			t.Errorf("the error is %v", err)
		}
	}
	p.has("models/llama", "Gateway models/b")
}

func TestPoolsOfANamespaceThatIsTakenOutLoseTheirParents(t *testing.T) {
	a := newPoolAPI(t)
	a.gateways["models/eg"] = 1
	a.pool("models", "llama", foreign("True"))
	a.pool("models", "bad")
	p := newParentsTest(t, a)
	p.parents.named(naming("models/eg", "llama", "bad"))
	p.passes(0)
	p.passes(0) // what was written is read
	next := *p.written
	next.Pools = &config.Pools{Namespaces: []string{"more"}}
	if err := p.Apply(&next); err != nil {
		t.Fatal(err)
	}
	p.poolsFound(map[string][]kubernetes.FoundPool{"more": {}}, nil)
	a.webhook = "models/bad"
	err := p.parents.pass(t.Context(), p.now, p.parentsView())
	if err == nil || !strings.Contains(err.Error(), "InferencePool models/bad") {
		t.Errorf("of the one that cannot be written, the error is %v", err)
	}
	p.has("models/llama", "Gateway other/gw")
	p.has("models/bad", "Gateway models/eg")
}

// Such as one of a watch that hangs.
func TestAPoolThatHasChangedIsTriedOnceAMinute(t *testing.T) {
	a := newPoolAPI(t)
	a.gateways["models/eg"] = 1
	a.pool("models", "llama")
	p := newParentsTest(t, a)
	p.follows["models.llama"] = true
	p.passes(0)
	pass := func(after time.Duration) {
		p.now = p.now.Add(after)
		v := p.parentsView() // of the pool as it was found
		v.follow = func(string) bool { return true }
		if err := p.parents.pass(t.Context(), p.now, v); err != nil {
			t.Error(err)
		}
	}
	a.pool("models", "llama")
	pass(followedAfter)
	for range 11 {
		pass(parentsInterval)
	}
	if a.writes != 1 {
		t.Errorf("%d writes were tried in a minute", a.writes)
	}
	p.passes(parentsRest)
	p.has("models/llama", "Service steelyard/steelyard-xds")
}

func TestWithoutPoolsNoneAreKnown(t *testing.T) {
	a := newPoolAPI(t)
	a.pool("models", "llama")
	p := newParentsTest(t, a)
	p.passes(0)
	following := loops.Start(t.Context(), func(ctx context.Context) { _ = p.followPools(ctx) })
	defer following.Stop()
	next := *p.written
	next.Pools = nil
	if err := p.Apply(&next); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no pool is known", func() error {
		if v := p.parentsView(); len(v.pools) > 0 {
			return fmt.Errorf("%d are", len(v.pools))
		}
		return nil
	})
}

// Envoy Gateway may know of it before Steelyard.
func TestAPoolThatIsMadeAgainGetsItsParents(t *testing.T) {
	a := newPoolAPI(t)
	a.gateways["models/eg"] = 1
	p := newParentsTest(t, a)
	p.parents.named(naming("models/eg", "llama"))
	p.passes(0)
	a.pool("models", "llama")
	p.passes(time.Second)
	p.has("models/llama", "Gateway models/eg")
	a.pool("models", "llama") // another one of this name
	p.parents.named(naming("models/eg", "llama"))
	p.passes(time.Second)
	p.has("models/llama", "Gateway models/eg")
}
