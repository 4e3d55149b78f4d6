package page

import (
	"fmt"
	"testing"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc/proctest"
)

func TestAQueueHasARowForEachClass(t *testing.T) {
	f := &fleet{t: t, dir: proctest.Dir(t)}
	f.xds, f.admin = port(t), port(t)
	f.write("steelyard.yaml", fmt.Sprintf(`xds: {listen: %s}
admin: {listen: %s}
clusters:
- name: llama
  engine: vllm
  endpoints: {static: [{address: %s}]}
  queue: {max_in_flight: 2, classes: [{name: urgent, strict: true}, {name: interactive, weight: 3}, {name: batch}]}
`, f.xds, f.admin, server(t, modelsim.Options{Slots: 1}).Address()))
	f.start("steelyard")
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
