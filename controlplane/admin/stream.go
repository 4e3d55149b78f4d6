package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"steelyard/controlplane/admin/history"
	"steelyard/internal/api"
)

const (
	// streamPatience is how long a reader may take nothing until it is dropped.
	streamPatience = 10 * time.Second
	// missedPoints and missedEndpoints bound what a reader gets of the time that it missed.
	missedPoints    = 150
	missedEndpoints = 50
)

// getStream answers with server-sent events until the client or Steelyard leaves. A cluster that is not configured is
// null in the frames: it may come and go with reloads, and the rest of a frame is known all the same.
func (h *handler) getStream(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	t := topic{cluster: q.Get("cluster"), endpoint: q.Get("endpoint"), matrix: q.Get("matrix") != ""}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return
	}
	next, ok := h.Recorder.Hub().Join()
	if !ok {
		w.Header().Set("Retry-After", "5")
		writeError(w, http.StatusServiceUnavailable, "there are %d streams already: close some pages, or try again",
			history.MaxStreams)
		return
	}
	defer h.Recorder.Hub().Leave()
	s := stream{w: w, control: http.NewResponseController(w)}
	if err := s.begin(); err != nil {
		return
	}
	if body := h.missed(r, t); body != nil && s.write(body) != nil {
		return
	}
	heartbeat, review := time.NewTicker(time.Second), time.NewTicker(reviewFresh)
	defer heartbeat.Stop()
	defer review.Stop()
	var order uint64
	for {
		var body []byte
		select {
		case <-r.Context().Done():
			return
		case <-review.C: // a right that was taken away ends what it began
			if c, _ := h.Access.identify(r, h.Now()); !c.mayView() {
				return
			}
			continue
		case <-heartbeat.C:
			body = []byte(": heartbeat\n\n")
		case <-next:
			var latest *history.Moment
			if latest, next = h.Recorder.Hub().Second(); latest == nil {
				return
			}
			body, order = h.frames.of(latest, h.Source, h.Recorder.History()).frame(t, order)
		}
		if s.write(body) != nil {
			return
		}
	}
}

// missed is the history since the frame that the client got last; nil where it is a new one.
func (h *handler) missed(r *http.Request, t topic) []byte {
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		last = r.URL.Query().Get("last_event_id")
	}
	second, err := strconv.ParseInt(last, 10, 64)
	if err != nil || t.cluster == "" {
		return nil
	}
	now := h.Now()
	since := time.Unix(second, 0).Add(time.Second / 2)
	if oldest := now.Add(-longestWindow); since.Before(oldest) {
		since = oldest
	}
	q := history.WindowQuery{Since: since, Points: missedPoints, Fields: api.HistoryFields()}
	if t.endpoint != "" {
		q.Addresses = []string{t.endpoint}
	} else if n := len(h.Recorder.History().Latest(t.cluster).Addresses); n == 0 || n > missedEndpoints {
		q.Fields = []string{}
	}
	body, err := json.Marshal(h.Recorder.History().Window(t.cluster, now, q))
	if err != nil {
		return nil
	}
	return fmt.Appendf(nil, "event: missed\ndata: %s\n\n", body)
}

// A stream writes events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// begin sends the headers. The limits of the listener are for answers that end: a stream has one for each write.
func (s *stream) begin() error {
	header := s.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no")
	_ = s.control.SetReadDeadline(time.Time{}) // a recorder of a test has no deadlines
	s.w.WriteHeader(http.StatusOK)
	return s.write([]byte("retry: 1000\n\n"))
}

func (s *stream) write(body []byte) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(streamPatience))
	if _, err := s.w.Write(body); err != nil {
		return err
	}
	return s.control.Flush()
}
