package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"steelyard/controlplane/admin/current"
)

// maxEndpointSeries is how many endpoints, of all clusters together, have series of their own.
const maxEndpointSeries = 2000

// Handler serves the registry together with the state of the process.
func (m *Metrics) Handler(state func() *current.Snapshot, log *slog.Logger) http.Handler {
	ofState := prometheus.NewRegistry()
	ofState.MustRegister(&Collector{State: state, MaxSeries: maxEndpointSeries})
	return promhttp.HandlerFor(prometheus.Gatherers{m.registry, ofState}, promhttp.HandlerOpts{
		ErrorLog: scrapeErrors{log},
		// One series that cannot be written must not hide all the others.
		ErrorHandling:       promhttp.ContinueOnError,
		Registry:            m.registry,
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
		EnableOpenMetrics:   true,
	})
}

// scrapeErrors is the log of what client_golang cannot write of a scrape.
type scrapeErrors struct{ log *slog.Logger }

// Println leaves out what a client causes that does not wait for the answer: a line for each series would follow.
func (s scrapeErrors) Println(v ...any) {
	for _, a := range v {
		if err, ok := a.(error); ok && errors.Is(err, context.Canceled) {
			return
		}
	}
	s.log.Warn(strings.TrimSuffix(fmt.Sprintln(v...), "\n"), "library", "client_golang")
}
