package modelsim

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// MetricsFault is a way in which /metrics misbehaves, while requests are served
// as ever.
type MetricsFault int32

// The faults of /metrics.
const (
	MetricsHealthy MetricsFault = iota
	MetricsHang                 // accepts and never answers
	MetricsGarbage              // 200 with bytes that are not a metrics page
	MetricsError                // 500
	MetricsHuge                 // a valid page that goes on for 100 MB
	MetricsDrip                 // a valid page, one byte every 20 ms
	MetricsRefuse               // the connection is reset
	MetricsIdle                 // a valid page that claims no load, whatever there is
	MetricsInsane               // a valid page that claims 10^18 completions more than there were
	MetricsStuck                // the page as it was when the fault began
)

// ServingFault is a way in which requests are not served.
type ServingFault int32

// The faults of serving.
const (
	ServingHealthy     ServingFault = iota
	ServingUnavailable              // 503 at once, counted nowhere; health checks fail as well
	// 500 after the service time, counted as a failure; of an engine at once, and counted nowhere
	ServingFailing
	ServingTooManyRequests  // 429 at once, counted nowhere, as an engine that is full
	ServingFailedDependency // 424 at once, counted nowhere: TGI's "failed generation"
	ServingNotFound         // 404 at once, counted nowhere: the model is gone
)

// status returns the status that the fault answers at once; 0 if it does not.
func (f ServingFault) status() int {
	switch f {
	case ServingUnavailable:
		return http.StatusServiceUnavailable
	case ServingTooManyRequests:
		return http.StatusTooManyRequests
	case ServingFailedDependency:
		return http.StatusFailedDependency
	case ServingNotFound:
		return http.StatusNotFound
	}
	return 0
}

const (
	hugeBytes  = 100 << 20
	dripPeriod = 20 * time.Millisecond
)

// SetMetricsFault switches a fault of /metrics on, or off with MetricsHealthy.
// Scrapes under way end as they began.
func (s *Server) SetMetricsFault(f MetricsFault) {
	if f == MetricsStuck {
		page := s.metricsPage(MetricsHealthy)
		s.stuckPage.Store(&page)
	}
	s.metricsFault.Store(int32(f))
}

// SetSpeed changes the speed of a server with slots, for requests that begin to execute from now on.
func (s *Server) SetSpeed(speed float64) { s.station.setSpeed(speed) }

// SetServingFault switches a fault of serving on, or off with ServingHealthy.
// Requests accepted before are not concerned.
func (s *Server) SetServingFault(f ServingFault) { s.servingFault.Store(int32(f)) }

// SetFrozen stalls the server or resumes it: while it is frozen it accepts
// requests and completes none, and its metrics show that
// (MetricsIdle makes them lie).
func (s *Server) SetFrozen(frozen bool) {
	if frozen {
		s.backend.freeze()
		return
	}
	select {
	case <-s.closed:
	default:
		s.backend.thaw()
	}
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	fault := MetricsFault(s.metricsFault.Load())
	switch fault {
	case MetricsHang:
		s.hold(r)
	case MetricsRefuse:
		reset(w)
	case MetricsError:
		http.Error(w, "simulated failure", http.StatusInternalServerError)
	case MetricsGarbage:
		_, _ = io.WriteString(w, "<html>\x00\xff{{{ 1e999 \"unterminated\nnum_requests_running 3 4 5 six\n")
	default:
		w.Header().Set("Content-Type", s.contentType)
		s.writePage(w, r, fault)
	}
}

func (s *Server) writePage(w http.ResponseWriter, r *http.Request, fault MetricsFault) {
	body := s.metricsPage(fault)
	switch fault {
	case MetricsHuge:
		s.flood(w, body)
	case MetricsDrip:
		s.drip(w, r, body)
	default:
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
	}
}

// metricsPage returns the current body of /metrics.
func (s *Server) metricsPage(fault MetricsFault) []byte {
	if fault == MetricsStuck {
		return *s.stuckPage.Load()
	}
	r := s.backend.state()
	switch fault {
	case MetricsIdle:
		r.waiting, r.running, r.kvUsage = 0, 0, 0
	case MetricsInsane:
		r.served += 1e18
	}
	return s.page.render(r)
}

// hold keeps a request until its client gives up or the server closes.
func (s *Server) hold(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-s.closed:
	}
	panic(http.ErrAbortHandler)
}

// reset drops the connection with a RST, and so without a trace of an answer.
func reset(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// flood writes the page and then comments without end, or nearly so.
func (s *Server) flood(w http.ResponseWriter, body []byte) {
	if _, err := w.Write(body); err != nil {
		return
	}
	filler := make([]byte, 0, 1<<20)
	for len(filler) < cap(filler)-64 {
		filler = append(filler, "# simulated padding without meaning\n"...)
	}
	for sent := 0; sent < hugeBytes; sent += len(filler) {
		if _, err := w.Write(filler); err != nil {
			return
		}
	}
}

func (s *Server) drip(w http.ResponseWriter, r *http.Request, body []byte) {
	ticker := time.NewTicker(dripPeriod)
	defer ticker.Stop()
	for i := range body {
		if _, err := w.Write(body[i : i+1]); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		case <-s.closed:
			return
		}
	}
}
