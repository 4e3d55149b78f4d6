package page

import (
	"context"
	"fmt"
	"testing"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc/proctest"
)

// TestDropsAreOnThePageAndTheTimeline offers a pool three times what it can do, and then nothing.
func TestDropsAreOnThePageAndTheTimeline(t *testing.T) {
	t.Parallel()
	f := &fleet{t: t, dir: proctest.Dir(t), urls: map[string][]string{}}
	f.xds, f.admin = port(t), port(t)
	one, two := server(t, modelsim.Options{Slots: 1}), server(t, modelsim.Options{Slots: 1, Seed: 1})
	f.write("steelyard.yaml", fmt.Sprintf(`xds: {listen: %s}
admin: {listen: %s}
clusters:
- name: embed
  engine: vllm
  endpoints: {static: [{address: %s}, {address: %s}]}
  shedding: {enabled: true, target_wait: 500ms}
`, f.xds, f.admin, one.Address(), two.Address()))
	f.start("steelyard")
	f.envoy("gw-1", "embed", "--mode", "shedding")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = load.Run(ctx, load.Plan{Targets: f.urls["embed"], Rate: 60, Duration: 10 * time.Minute, Seed: 3,
			Work: load.Work{Mean: 100 * time.Millisecond}}) // it is cancelled
	}()
	defer func() { stop(); <-ended }()

	p := newBrowser(t).tab(t, 1280, 900)
	p.open(f.url("#/c/embed?range=5m"))
	p.until("it is an incident, in red",
		"document.querySelector('.incident.error')?.innerText.includes('Cluster embed refuses requests')")
	p.until("the sentence of the cluster has the part that is refused", `/Envoys refuse \d/.test(document
		.querySelector('.lead').innerText)`)
	p.shot("drops-1280-light")
	lane := "[...document.querySelectorAll('canvas')].find((e) => e.ariaLabel.includes('the view Events lists them'))"
	p.until("the lane has an event", "parseInt("+lane+".ariaLabel) > 0")
	p.open(f.url("#/events?range=5m&kind=drops"))
	began := "[...document.querySelectorAll('.event')].some((e) => e.innerText.includes('began to refuse'))"
	p.until("it is on the timeline", began)
	stop()
	p.until("so is its end", began+
		" && [...document.querySelectorAll('.event')].some((e) => e.innerText.includes('refuse no more requests'))")
	p.until("the incident ends", `![...document.querySelectorAll('.incident')].some((e) =>
		e.innerText.includes('refuses requests'))`)
	p.noErrors()
	p.leave()
}
