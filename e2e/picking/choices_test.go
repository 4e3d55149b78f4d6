package picking

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/testbed"
	"steelyard/xds/loads/loadsv1"
)

// reason returns the reason of the choice for a prompt whose answer teaches nothing: the server rejects it.
func (f *fleet) reason(t *testing.T, body []byte) string {
	t.Helper()
	all := []string{"fill", "prefix", "override"}
	before := make(map[string]float64)
	for _, reason := range all {
		before[reason] = f.Choices(t, 0, reason)
	}
	resp := f.PostWith(t, body, modelsim.HeaderService, "rejected")
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Fatalf("the answer is %d", resp.StatusCode)
	}
	for _, reason := range all {
		if f.Choices(t, 0, reason) > before[reason] {
			return reason
		}
	}
	return "by the weights"
}

// answersInParts is a backend that begins an answer of status 200 with its headers, sends the first byte after more,
// and does not end it before the client leaves. It answers other paths with 404.
func answersInParts(t *testing.T, more <-chan struct{}) (address string) {
	t.Helper()
	// Without metrics, Steelyard would wait for some before it serves the endpoint.
	metrics := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: testbed.Pool(t, 1)[0].Address()})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			metrics.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("X-Parts") == "" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		answer := http.NewResponseController(w)
		_ = answer.Flush()
		select {
		case <-more:
			_, _ = w.Write([]byte("a"))
			_ = answer.Flush()
		case <-r.Context().Done():
		}
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// TestTheModuleLearnsARouteWithTheFirstBytesOfAnAnswer: not with its headers, which engines send before they compute
// the prompt, and not only with its end.
func TestTheModuleLearnsARouteWithTheFirstBytesOfAnAnswer(t *testing.T) {
	testbed.WithModule(t)
	more := make(chan struct{})
	backend := answersInParts(t, more)
	f := withoutEnvoys(t, testbed.Plan{Cluster: "endpoints:\n  static:\n  - {address: " + backend + "}\n"})
	_, loads := testbed.StartIdleAt(t, backend)
	f.follows(loads, "--prefix")
	f.StartEnvoy(0)
	prompt := testbed.Talk("a conversation")
	asked := func() {
		t.Helper()
		resp := f.PostWith(t, prompt, "X-Other", "")
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Fatalf("the answer is %d", resp.StatusCode)
		}
	}
	f.Eventually("the module has loads", func() error {
		if asked(); f.Choices(t, 0, "fill") == 0 {
			return errors.New("no choice")
		}
		return nil
	})
	resp := f.PostWith(t, prompt, "X-Parts", "yes")
	defer resp.Body.Close()
	if asked(); f.Choices(t, 0, "prefix") != 0 {
		t.Error("a route is learned with the headers of an answer")
	}
	more <- struct{}{}
	if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if asked(); f.Choices(t, 0, "prefix") != 1 {
		t.Error("no route is learned with the first bytes of an answer")
	}
}

// TestAnswersOfEndpointsThatWereNotNamedAreCounted: Envoy does not have the endpoint that the module names, so the
// requests go by the weights. None fails, and nothing is learned.
func TestAnswersOfEndpointsThatWereNotNamedAreCounted(t *testing.T) {
	testbed.WithModule(t)
	const requests = 5
	elsewhere := func([]*modelsim.Server) string { return "127.0.0.1:1" }
	for _, c := range []struct {
		name    string
		named   func(pool []*modelsim.Server) string // address
		flags   []string
		other   float64 // answers of endpoints that were not named
		unknown float64 // answers of endpoints that the loads do not have
	}{
		{"by size", elsewhere, nil, requests, 0},
		{"by prompt", elsewhere, []string{"--prefix"}, requests, requests},
		{"its port begins as that of a server", func(pool []*modelsim.Server) string {
			return pool[0].Address()[:len(pool[0].Address())-1]
		}, nil, requests, 0},
		{"one that Envoy has", func(pool []*modelsim.Server) string { return pool[0].Address() }, nil, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			pool := testbed.Servers(t, modelsim.Options{Slots: 8})
			f := withoutEnvoys(t, testbed.Plan{Servers: pool})
			_, loads := testbed.StartIdleAt(t, c.named(pool))
			f.startModules(t, 1, loads, c.flags...)
			want := map[string]float64{"choices_fill": requests, "not_followed": c.other, "unknown_endpoint": c.unknown}
			before := map[string]float64{}
			for name := range want {
				before[name] = f.EnvoyStat("dynamicmodulescustom.picker_" + name)
			}
			for range requests {
				f.Post(t, testbed.Talk("a conversation"))
			}
			for name, n := range want {
				if got := f.EnvoyStat("dynamicmodulescustom.picker_"+name) - before[name]; got != n {
					t.Errorf("%s: %v of %d requests, want %v", name, got, requests, n)
				}
			}
		})
	}
}

// TestTheLongestMatchIsFollowedUnlessItHasTooMuchToDo, with more load there than least work would accept.
func TestTheLongestMatchIsFollowedUnlessItHasTooMuchToDo(t *testing.T) {
	testbed.WithModule(t)
	pool := testbed.Pool(t, 3)
	f := withoutEnvoys(t, testbed.Plan{Servers: pool})
	loads, address := startIdle(t, pool)
	const load = 20
	set := func(busy string, its float64) {
		change := func(u *loadsv1.Update) {
			u.Prefix = &loadsv1.Prefix{LongestMatch: true}
			for _, e := range u.GetEndpoints() {
				if e.Load = load; e.GetAddress() == busy {
					e.Load = its
				}
			}
		}
		loads.Change.Store(&change)
	}
	set("", load)
	f.startModules(t, 1, address, "--prefix")
	f.settled(loads)
	first := f.Post(t, testbed.Talk("a conversation"))
	for i, c := range []struct {
		its     float64
		matched bool
		reason  string
	}{{load, true, "prefix"}, {1.5 * load, true, "prefix"}, {5 * load, false, "override"}} {
		set(pool[first].Address(), c.its)
		f.settled(loads)
		before := f.Choices(t, 0, c.reason)
		got := f.Post(t, testbed.Talk("a conversation", fmt.Sprint("turn ", i)))
		if n := f.Choices(t, 0, c.reason) - before; (got == first) != c.matched || n != 1 {
			t.Errorf("at a load of %v of %v: server %d after %d, %v choices for the reason %s", c.its, float64(load),
				got, first, n, c.reason)
		}
	}
}

// TestThePrefixSectionIsFollowedWhileEnvoyRuns. The engine does not count tokens, so that the default choice does not
// follow a route.
func TestThePrefixSectionIsFollowedWhileEnvoyRuns(t *testing.T) {
	testbed.WithModule(t)
	const engine = "engine: triton\n"
	pool := testbed.Servers(t, testbed.Same(2, modelsim.Options{Engine: modelsim.Triton, Slots: 8})...)
	f := start(t, testbed.Plan{Servers: pool, Cluster: engine, Bootstrap: []string{"--module", "--prefix"}})
	f.Chooses(t, 0)
	prompt := testbed.Talk("a conversation")
	f.Post(t, prompt)
	if got := f.reason(t, prompt); got != "fill" {
		t.Errorf("by default the reason is %s", got)
	}
	becomes := func(section string, wanted ...string) {
		t.Helper()
		f.WriteConfig(engine + section)
		f.Eventually(section, func() error {
			if got := f.reason(t, prompt); !slices.Contains(wanted, got) {
				return fmt.Errorf("the reason is %s", got)
			}
			return nil
		})
	}
	becomes("prefix: {choice: longest-match}", "prefix", "override")
	becomes("prefix: {choice: least-work}", "fill")
	becomes("prefix: {choice: longest-match}", "prefix", "override")
	becomes("prefix: {choice: longest-match, ttl: 1s}", "fill") // nothing confirms the route
}

// TestAnEngineThatRestartedTakesItsRoutesWithIt: Steelyard sees its counters begin again, and its cache is empty.
func TestAnEngineThatRestartedTakesItsRoutesWithIt(t *testing.T) {
	testbed.WithModule(t)
	pool := testbed.Pool(t, 2)
	f := start(t, testbed.Plan{Servers: pool, Cluster: "prefix: {choice: longest-match}",
		Bootstrap: []string{"--module", "--prefix"}})
	f.Chooses(t, 0)
	prompt := testbed.Talk("a conversation")
	answered := pool[f.Post(t, prompt)]
	if got := f.reason(t, prompt); got == "fill" {
		t.Error("no route is learned")
	}
	f.Eventually("Steelyard has read what it counted", func() error {
		e, err := f.Endpoint(answered.Address())
		if err == nil && !(e.CompletedRequests.Or(0) > 0) {
			err = fmt.Errorf("%v requests", e.CompletedRequests)
		}
		return err
	})
	if err := answered.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := modelsim.Start(modelsim.Options{Slots: testbed.Wide.Slots, Address: answered.Address()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	f.Eventually("its route is forgotten", func() error {
		if got := f.reason(t, prompt); got != "fill" {
			return fmt.Errorf("the reason is %s", got)
		}
		return nil
	})
}

// TestAnEnvoyThatLacksAFunctionRefusesTheModuleAndSaysWhatToDo: the module needs one that no Envoy has.
func TestAnEnvoyThatLacksAFunctionRefusesTheModuleAndSaysWhatToDo(t *testing.T) {
	const function = "envoy_dynamic_module_callback_http_of_another_version"
	folder := testbed.WithChangedModule(t, "abi.c", `"envoy_dynamic_module_callback_http_get_header",`,
		`"`+function+`",`)
	out, err := testbed.ValidateModule(t, folder)
	if err == nil {
		t.Error("Envoy loads the module")
	}
	for _, want := range []string{"made for Envoy 1.40", "or use steelyard picker", "function=" + function,
		"Failed to initialize dynamic module"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestAPanicOfTheModuleIsCountedAndTheThirdHasItStepAside: no request fails, and all go by the weights from then on.
func TestAPanicOfTheModuleIsCountedAndTheThirdHasItStepAside(t *testing.T) {
	const entry = "func (f *filter) readsBody(contentType, expect string) bool {\n"
	testbed.WithChangedModule(t, "waits.go", entry,
		entry+"\tif contentType == \"defect\" {\n\t\tpanic(contentType)\n\t}\n")
	pool := testbed.Pool(t, 2)
	f := withoutEnvoys(t, testbed.Plan{Servers: pool})
	f.startModules(t, 1, serveLoads(t, &one{addresses: []string{pool[1].Address(), pool[0].Address()}}))
	send := func(contentType string) {
		t.Helper()
		resp := f.PostWith(t, []byte("{}"), "Content-Type", contentType)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("content type %s: the answer is %d", contentType, resp.StatusCode)
		}
	}
	named := func() float64 { return f.EnvoyStat("cluster." + testbed.Cluster + "_picked.upstream_rq_total") }
	before := named()
	for n := 1; n <= 3; n++ {
		if f.Choices(t, 0, "aside") != 0 {
			t.Errorf("the filter is aside before panic %d", n)
		}
		send("defect")
		send("text/plain")
		if got := f.EnvoyStat("dynamicmodulescustom.picker_panics"); got != float64(n) {
			t.Errorf("%v panics are counted, want %d", got, n)
		}
	}
	if got := named() - before; got != 2 {
		t.Errorf("%v requests were named an endpoint, want the 2 between the panics", got)
	}
	const requests = 20
	send("defect") // it is not reached any more
	for range requests - 1 {
		send("text/plain")
	}
	if got := f.Choices(t, 0, "aside"); got != requests+1 {
		t.Errorf("%v requests went by the weights, want %d", got, requests+1)
	}
	if got := named() - before; got != 2 {
		t.Errorf("after the third panic %v requests were named an endpoint", got-2)
	}
}
