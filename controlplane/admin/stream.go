package admin

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"steelyard/controlplane/view"
)

const (
	maxStreams = 64
	// streamPatience is how long a reader may take nothing until it is dropped.
	streamPatience = 10 * time.Second
	// missedPoints and missedEndpoints bound what a reader gets of the time that it missed.
	missedPoints    = 150
	missedEndpoints = 50
)

// A hub wakes all streams each second. It is made with the channel next.
type hub struct {
	mu      sync.Mutex
	streams int
	latest  *encoder      // of the latest second
	next    chan struct{} // closed when there is another
	ended   bool          // there will be no more
}

// join counts a stream in, and returns what is closed with the next second; ok is false when there are too many
// streams, or when everything is about to end.
func (h *hub) join() (next <-chan struct{}, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || h.streams >= maxStreams {
		return nil, false
	}
	h.streams++
	return h.next, true
}

func (h *hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams--
}

// second returns the latest second, nil when there are no more, and what is closed with the next one.
func (h *hub) second() (*encoder, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.latest, h.next
}

// publish hands out a second; nil ends all streams.
func (h *hub) publish(e *encoder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.latest, h.ended = e, e == nil
	close(h.next)
	h.next = make(chan struct{})
}

// A topic is what a stream is about.
type topic struct {
	cluster, endpoint string // empty: none
	matrix            bool
}

// An encoder makes the frames of one second, when streams ask for them: what these have in common is encoded once. It
// is safe for concurrent use.
type encoder struct {
	*moment
	rec *Recorder

	mu    sync.Mutex
	parts map[partKey][]byte
}

type partKey struct {
	kind, cluster, endpoint string
	order                   uint64 // of the addresses, where the part is about their columns
}

// part encodes a part once.
func (e *encoder) part(k partKey, value func() any) []byte {
	body, ok := e.parts[k]
	if !ok {
		var err error
		if body, err = json.Marshal(value()); err != nil {
			body = []byte("null")
		}
		e.parts[k] = body
	}
	return body
}

// frame puts the parts together, in the form of type frame. known is the order of the addresses that the stream has,
// and order that of those in the frame, or of those before.
func (e *encoder) frame(t topic, known uint64) (body []byte, order uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	order = known
	none := []byte("null")
	fleet := e.part(partKey{kind: "fleet"}, func() any { return e.fleet })
	cluster, endpoint, matrix := none, none, none
	if c := e.cluster(t.cluster); c != nil {
		row := e.rec.o.History.latest(c.Name)
		key := partKey{kind: "cluster", cluster: c.Name}
		if row != nil {
			key.order = row.order.id // a row may be added while streams ask for the frames of a second
		}
		if row != nil && key.order != known {
			key.kind, order = "cluster with addresses", key.order
		}
		cluster = e.part(key, func() any { return e.clusterFrame(c, row, key.kind != "cluster") })
		if i := indexOf(c.Endpoints, t.endpoint); i >= 0 {
			key := partKey{kind: "endpoint", cluster: c.Name, endpoint: t.endpoint}
			endpoint = e.part(key, func() any { return e.endpoint(c, i) })
		}
		if t.matrix {
			matrix = e.part(partKey{kind: "matrix", cluster: c.Name}, func() any { return e.matrix(c.Name) })
		}
	}
	body = fmt.Appendf(nil, "id: %d\nevent: frame\ndata: {\"at\":%s,\"fleet\":%s,\"cluster\":%s,\"endpoint\":%s,"+
		"\"matrix\":%s}\n\n", e.now.Unix(), e.part(partKey{kind: "at"}, func() any { return view.At(e.now) }), fleet,
		cluster, endpoint, matrix)
	return body, order
}

func (e *encoder) cluster(name string) *view.Cluster {
	for i := range e.clusters {
		if name != "" && e.clusters[i].Name == name {
			return &e.clusters[i]
		}
	}
	return nil
}

// clusterFrame is a cluster in columns.
func (e *encoder) clusterFrame(c *view.Cluster, r *row, withAddresses bool) clusterFrame {
	whole := completeCluster(&e.observation, *c, e.moment)
	whole.Endpoints = nil
	f := clusterFrame{Cluster: whole, Fields: []string{"share", "served", "load", "in_flight", "latency", "state"}}
	if r != nil {
		f.Order, f.Columns = r.order.id, base64.StdEncoding.EncodeToString(r.data)
		if withAddresses {
			f.Addresses = r.order.addresses
		}
	}
	return f
}

func (e *encoder) endpoint(c *view.Cluster, i int) view.Endpoint {
	one := c.Endpoints[i]
	completeEndpoint(&e.observation, c, &one, capacityOf(c.Endpoints), e.measures[c.Name])
	one.Why = c.Working.Explain(one.Address)
	return one
}

func (e *encoder) matrix(cluster string) any {
	m, ok := e.rec.o.Source.Matrix(cluster)
	if !ok {
		return nil
	}
	return completeMatrix(m, e.now)
}

// getStream answers with server-sent events until the client or Steelyard leaves. A cluster that is not configured is
// null in the frames: it may come and go with reloads, and the rest of a frame is known all the same.
func (h *handler) getStream(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	t := topic{cluster: q.Get("cluster"), endpoint: q.Get("endpoint"), matrix: q.Get("matrix") != ""}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return
	}
	next, ok := h.Recorder.hub.join()
	if !ok {
		w.Header().Set("Retry-After", "5")
		writeError(w, http.StatusServiceUnavailable, "there are %d streams already: close some pages, or try again",
			maxStreams)
		return
	}
	defer h.Recorder.hub.leave()
	s := stream{w: w, control: http.NewResponseController(w)}
	if err := s.begin(); err != nil {
		return
	}
	if body := h.missed(r, t); body != nil && s.write(body) != nil {
		return
	}
	heartbeat := time.NewTicker(time.Second)
	defer heartbeat.Stop()
	var order uint64
	for {
		var body []byte
		select {
		case <-r.Context().Done():
			return
		case <-heartbeat.C:
			body = []byte(": heartbeat\n\n")
		case <-next:
			var latest *encoder
			if latest, next = h.Recorder.hub.second(); latest == nil {
				return
			}
			body, order = latest.frame(t, order)
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
	q := WindowQuery{Since: since, Points: missedPoints, Fields: historyFields()}
	if t.endpoint != "" {
		q.Addresses = []string{t.endpoint}
	} else if row := h.Recorder.o.History.latest(t.cluster); row == nil || len(row.order.addresses) > missedEndpoints {
		q.Fields = []string{}
	}
	body, err := json.Marshal(h.Recorder.o.History.Window(t.cluster, now, q))
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
