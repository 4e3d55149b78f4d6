package controlplane

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"steelyard/controlplane/discovery"
	"steelyard/internal/api"
	"steelyard/weighting"
)

// TestAnEndpointThatTerminatesGetsNoShareAndIsShown, until the source removes it.
func TestAnEndpointThatTerminatesGetsNoShareAndIsShown(t *testing.T) {
	r := &recorder{}
	c := NewCluster("llama", Options{Scraped: true}, r, r, r, slog.New(slog.DiscardHandler))
	stays := discovery.Endpoint{Address: "10.0.0.1:80", ID: "1", Pod: "a"}
	goes := discovery.Endpoint{Address: "10.0.0.2:80", ID: "2", Pod: "b", Node: "node-1", Terminating: true}
	c.SetEndpoints([]discovery.Endpoint{stays, goes})
	s := c.snapshot(time.Now())
	if len(s.Endpoints) != 1 || s.Endpoints[0].Address != stays.Address || s.Endpoints[0].ID != "1" {
		t.Errorf("the law is given %+v, want only the endpoint that stays", s.Endpoints)
	}
	want := []api.Terminating{{Address: goes.Address, Pod: "b", Node: "node-1"}}
	if diff := cmp.Diff(want, c.View(time.Now()).Terminating); diff != "" {
		t.Errorf("shown as terminating (-want +got):\n%s", diff)
	}
	c.SetEndpoints([]discovery.Endpoint{stays})
	if got := c.View(time.Now()).Terminating; len(got) != 0 {
		t.Errorf("%+v are still shown", got)
	}
}

// TestReportsOfAnEndpointAreNotThoseOfTheNextAtItsAddress, where the source tells them apart.
func TestReportsOfAnEndpointAreNotThoseOfTheNextAtItsAddress(t *testing.T) {
	const address = "10.0.0.1:80"
	for name, after := range map[string]struct {
		id   string
		kept bool
	}{"same": {"uid-1", true}, "another": {"uid-2", false}, "unknown": {"", true}} {
		r := &recorder{}
		c := NewCluster("llama", Options{Scraped: true}, r, r, r, slog.New(slog.DiscardHandler))
		c.SetEndpoints([]discovery.Endpoint{{Address: address, ID: "uid-1"}})
		now := time.Now()
		c.Scraped(address, weighting.ServerReport{Queue: weighting.Reading{Value: 3, At: now}}, Scrape{At: now})
		c.SetEndpoints([]discovery.Endpoint{{Address: address, ID: after.id}})
		endpoints := slices.Clone(c.snapshot(now).Endpoints)
		if kept := endpoints[0].Server.Queue.Known(); kept != after.kept {
			t.Errorf("%s: the report is kept: %v, want %v", name, kept, after.kept)
		}
	}
}
