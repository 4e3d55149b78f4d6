package admin

import (
	"fmt"
	"net/http"

	"steelyard/controlplane/admin/conditions"
	"steelyard/internal/api"
)

// healthz reports whether the process makes progress, and nothing else: restarting it does not
// bring back a model server. It does not use the Source, whose locks may be what is stuck.
func (h *handler) healthz(w http.ResponseWriter, _ *http.Request) {
	stuck := h.Stuck()
	if len(stuck) == 0 {
		text(w, http.StatusOK, "ok\n")
		return
	}
	body := "stuck, restart it\n"
	for _, s := range api.Limit(stuck, maxStuck) {
		body += s + "\n"
	}
	if more := len(stuck) - maxStuck; more > 0 {
		body += fmt.Sprintf("and %d more\n", more)
	}
	text(w, http.StatusServiceUnavailable, body)
}

// maxStuck is how many lines /healthz has for what is stuck: one lock stops many loops.
const maxStuck = 20

// readyz lists every cluster, so that a failing probe shows the reason: to those who may view.
func (h *handler) readyz(w http.ResponseWriter, r *http.Request) {
	s := h.snapshot()
	clusters := s.Clusters()
	status := s.Status(clusters)
	code, body := http.StatusOK, "ready\n"
	switch {
	case status.Draining:
		code, body = http.StatusServiceUnavailable, "not ready: draining\n"
	case status.ConfigGeneration == 0:
		code, body = http.StatusServiceUnavailable, "not ready: no config has been applied yet\n"
	case !status.Ready:
		code, body = http.StatusServiceUnavailable, "not ready\n"
	}
	if !callerOf(r).mayView() {
		text(w, code, body)
		return
	}
	if status.Pools.Error != "" {
		body += fmt.Sprintf("InferencePools cannot be read: %s\n", conditions.InOneLine(status.Pools.Error))
	}
	for _, c := range clusters {
		if c.Ready {
			body += fmt.Sprintf("cluster %s: ready\n", c.Name)
		} else {
			body += fmt.Sprintf("cluster %s: not ready: %s\n", c.Name, conditions.OrUnknown(c.NotReadyReason))
		}
	}
	text(w, code, body)
}
