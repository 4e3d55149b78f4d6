package metrics

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// aborted is a client that has gone when the answer is written.
type aborted struct{ *httptest.ResponseRecorder }

func (aborted) Write([]byte) (int, error) { return 0, context.Canceled }

func TestAScrapeThatIsGivenUpIsNoLineOfTheLogForEachSeries(t *testing.T) {
	var log bytes.Buffer
	full := prometheus.NewRegistry()
	full.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "a"}), prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "b"}))
	errs := scrapeErrors{slog.New(slog.NewTextHandler(&log, nil))}
	promhttp.HandlerFor(full, promhttp.HandlerOpts{ErrorLog: errs, ErrorHandling: promhttp.ContinueOnError}).
		ServeHTTP(aborted{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if log.Len() > 0 {
		t.Errorf("the log is\n%s, want nothing", &log)
	}
	errs.Println("error gathering metrics:", errors.New("collected before with the same name"))
	if got := log.String(); !strings.Contains(got, `level=WARN msg="error gathering metrics: collected before`) {
		t.Errorf("of an error of its own the log is %q", got)
	}
}
