package customrouter

import (
	_ "embed"
	"html/template"
	"math"
	"net/http"
	"strconv"
	"time"

	"steelyard/picking"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("").Funcs(template.FuncMap{
	"latency": func(seconds float64) string {
		if math.IsNaN(seconds) {
			return "none yet"
		}
		return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond).String()
	},
	"seconds": func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s" },
	"meaning": func(s picking.BackendState) string { return meanings[s] },
}).Parse(pageText))

// meanings are the states in words.
var meanings = map[picking.BackendState]string{
	picking.BackendIdle:       "takes the next request",
	picking.BackendOpen:       "takes more requests",
	picking.BackendConnecting: "new, or failed last: takes nothing until it can be connected to",
	picking.BackendProbed:     "new: its first answer is awaited",
	picking.BackendSlow:       "over the threshold: takes nothing until it is idle or answers",
	picking.BackendRamping:    "new: takes more with each answer",
	picking.BackendPaused:     "failed: left out for a while",
	picking.BackendRemoved:    "removed: takes nothing; its requests end there",
}

// page is GET /_custom_router/, for people.
func (r *Router) page(w http.ResponseWriter, _ *http.Request) {
	s := r.state()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	_ = pageTemplate.Execute(w, map[string]any{ // the client may be gone
		"Depth": s.depth, "Max": r.options.Queue.QueueMax, "Timeout": r.options.Queue.QueueTimeout,
		"Threshold": r.options.Queue.Threshold, "Dispatched": s.dispatched, "Evicted": s.evicted,
		"TimedOut": s.timedOut, "Backends": s.backends,
	})
}
