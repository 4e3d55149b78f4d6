package admin

import (
	"log/slog"
	"net/http"
	"time"
)

// Options are what the handler is built of.
type Options struct {
	Source  Source
	Metrics *Metrics // nil: a new one
	History *History // nil: a new one
	Version string   // of Steelyard
	Log     *slog.Logger
	Now     func() time.Time // nil: time.Now
}

// New returns the handler of all routes. It answers GET and HEAD only.
func New(o Options) http.Handler {
	return http.NotFoundHandler()
}
