package admin

import (
	"html/template"
	"log/slog"
	"net/http"
	"time"

	"steelyard/controlplane/admin/conditions"
	"steelyard/controlplane/admin/current"
	"steelyard/controlplane/admin/history"
	"steelyard/controlplane/admin/metrics"
)

// Options are what the handler is built of.
type Options struct {
	Source history.Source
	// Operator acts on the control plane. Nil: nobody can.
	Operator Operator
	Metrics  *metrics.Metrics // nil: a new one
	// Recorder samples all state every second; nil: one that takes no samples.
	Recorder *history.Recorder
	// Stuck lists what in the process makes no progress, and for how long; empty while all does.
	// It must answer whatever is stuck. Nil: never anything.
	Stuck   func() []string
	Version string // of Steelyard
	// AllowedHosts are further accepted Host names; *.NAME stands for all names below NAME.
	AllowedHosts []string
	// Access is who may view and who may operate. Nil: everyone who can connect may view, and nobody may operate.
	Access *Access
	Log    *slog.Logger
	Now    func() time.Time // nil: time.Now
}

// handler is what the routes share.
type handler struct {
	Options
	page   *template.Template
	hosts  *hostCheck
	frames frames
}

func withDefaults(o Options) Options {
	if o.Metrics == nil {
		o.Metrics = metrics.NewMetrics(o.Version)
	}
	if o.Stuck == nil {
		o.Stuck = func() []string { return nil }
	}
	if o.Recorder == nil {
		o.Recorder = history.NewRecorder(history.RecorderOptions{Source: o.Source, Stuck: o.Stuck, Now: o.Now,
			Log: o.Log})
	}
	if o.Access == nil {
		o.Access = NewAccess(AccessOptions{Loopback: true})
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

func text(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body)) // a client that has gone needs no response
}

func (h *handler) snapshot() *current.Snapshot {
	s := &current.Snapshot{Source: h.Source, Version: h.Version, Refused: h.hosts.totals(), Access: h.Access.status(),
		Moment: h.Recorder.Latest(),
		Seen: conditions.Observation{Now: h.Now(), Stuck: h.Stuck(), Clients: h.Source.Clients(),
			Elsewhere: h.Source.Elsewhere()}}
	if m := s.Moment; m != nil {
		s.Seen.Left, s.Seen.Refusing, s.Seen.Status.Pickers = m.Left, m.Refusing, m.Status.Pickers
	}
	return s
}
