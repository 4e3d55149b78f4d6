package page

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
)

// queueing runs Steelyard with one server, of so many slots, whose cluster has a queue.
func queueing(t *testing.T, slots int, queue string) *fleet {
	t.Helper()
	f := &fleet{t: t, dir: proctest.Dir(t), urls: map[string][]string{}}
	f.xds, f.admin = port(t), port(t)
	f.write("steelyard.yaml", fmt.Sprintf(`xds: {listen: %s}
admin: {listen: %s}
clusters:
- name: llama
  engine: vllm
  endpoints: {static: [{address: %s}]}
  queue: %s
`, f.xds, f.admin, server(t, modelsim.Options{Slots: slots}).Address(), queue))
	f.start("steelyard")
	return f
}

func TestAQueueHasARowForEachClass(t *testing.T) {
	t.Parallel()
	f := queueing(t, 1,
		"{max_in_flight: 2, classes: [{name: urgent, strict: true}, {name: interactive, weight: 3}, {name: batch}]}")
	p := newBrowser(t).tab(t, 1280, 900)
	p.open(f.url("#/c/llama"))
	const rows = `[...document.querySelectorAll('[aria-label=Queue] tbody tr')].map((r) =>
		r.cells[0].textContent + ' ' + parseFloat(r.cells[1].textContent) + ' ' + r.cells[2].textContent).join()`
	p.until("the classes with their shares", rows+` === 'urgent NaN 0,interactive 75 0,batch 25 0'`)
	axe := axeScript(t)
	for _, width := range []int64{390, 1280} {
		p.resize(width, 900)
		p.frames(2)
		if over := eval[int](p, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
			t.Errorf("%d px: %d px too wide: %s", width, over, eval[string](p, tooWide))
		}
		p.shot(fmt.Sprintf("queue-%d", width))
		for _, v := range eval[[]string](p, axe+axeRun) {
			t.Errorf("%d px: %s", width, v)
		}
	}
	p.noErrors()
}

// TestRequestsThatWaitAreOnThePage: one request holds the only place, and the page shows what waits behind it, what is
// refused, what gives up and what is sent at last.
func TestRequestsThatWaitAreOnThePage(t *testing.T) {
	module, err := proc.BuildModule()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(proc.ModulePath, module)
	f := queueing(t, 8,
		"{max_in_flight: 1, classes: [{name: interactive, weight: 3}, {name: batch, max_waiting: 3}]}")
	f.envoy("gw-1", "llama", "--module")
	p := newBrowser(t).tab(t, 1280, 900)
	p.open(f.url("#/c/llama"))
	p.until("the Envoy is in the queue", `document.body.innerText.includes('of 1 Envoy')`)

	var sent sync.WaitGroup
	t.Cleanup(sent.Wait)
	// request returns what makes the client give up.
	request := func(class, tenant, service string) context.CancelFunc {
		ctx, giveUp := context.WithCancel(t.Context())
		t.Cleanup(giveUp)
		sent.Go(func() { f.request(ctx, class, tenant, service) })
		return giveUp
	}
	// Waiting, tenants, sent, refused, gave up, by the weights; and whether the longest wait is a time.
	rows := func(interactive, batch string) string {
		return `[...document.querySelectorAll('[aria-label=Queue] tbody tr')].map((r) => [2, 3, 5, 6, 7, 8].map((i) =>
			r.cells[i].textContent).join(' ') + ' ' + /^\d.*s$/.test(r.cells[4].textContent)).join()
			=== '` + interactive + "," + batch + "'"
	}
	release := request("interactive", "", "60")
	p.until("the place is taken", rows("0 0 1 0 0 0 false", "0 0 0 0 0 0 false"))
	request("interactive", "", "0.01")
	p.until("one waits", rows("1 1 1 0 0 0 true", "0 0 0 0 0 0 false"))
	leave := request("batch", "alice", "0.01")
	p.until("a batch request waits", rows("1 1 1 0 0 0 true", "1 1 0 0 0 0 true"))
	leave()
	p.until("its client gave up", rows("1 1 1 0 0 0 true", "0 0 0 0 1 0 false"))
	for range 3 {
		request("batch", "alice", "0.01")
	}
	p.until("the class is full", rows("1 1 1 0 0 0 true", "3 1 0 0 1 0 true"))
	request("batch", "bob", "0.01")
	p.until("alice's latest makes room for bob", rows("1 1 1 0 0 0 true", "3 2 0 1 1 0 true"))
	p.until("the time passes", `parseFloat(document.querySelector('[aria-label=Queue] tbody tr').cells[4].textContent)
		>= 2`)
	taken := `document.body.innerText.includes('all places are taken: requests wait')`
	p.until("no endpoint gets the next request", taken)
	p.shot("queue-waiting-1280")
	release()
	p.until("the endpoint gets it", "!"+taken)
	p.until("all are sent", rows("0 0 2 0 0 0 false", "0 0 3 1 1 0 false"))
	p.noErrors()
}

// request sends a request of a class to the Envoy of llama and reads its answer, if any: its client may give up.
func (f *fleet) request(ctx context.Context, class, tenant, service string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.urls["llama"][0], nil)
	if err != nil {
		f.t.Error(err)
		return
	}
	r.Header.Set(modelsim.HeaderService, service)
	r.Header.Set("X-Steelyard-Class", class)
	r.Header.Set("X-Steelyard-Tenant", tenant)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
}
