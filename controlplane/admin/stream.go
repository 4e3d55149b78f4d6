package admin

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
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

// A hub hands the frame of each second to all readers. What they have in common is encoded once.
type hub struct {
	mu      sync.Mutex
	readers map[*reader]struct{}
	closed  chan struct{} // when there will be no more frames; made with the first reader
	ended   bool
}

// A topic is what a reader looks at.
type topic struct {
	cluster, endpoint string // empty: none
	matrix            bool
}

// A reader is one stream. It takes the latest frame when it is ready for one.
type reader struct {
	topic
	frames chan encoded  // capacity one: the latest
	order  atomic.Uint64 // of the addresses that it was sent last
}

// An encoded frame is what is written to a stream.
type encoded struct {
	body  []byte
	order uint64 // of the addresses in it, or of those before
}

// join adds a reader; nil when there are too many, or when everything is about to end.
func (h *hub) join(t topic) *reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || len(h.readers) >= maxStreams {
		return nil
	}
	if h.readers == nil {
		h.readers, h.closed = map[*reader]struct{}{}, make(chan struct{})
	}
	r := &reader{topic: t, frames: make(chan encoded, 1)}
	h.readers[r] = struct{}{}
	return r
}

func (h *hub) leave(r *reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.readers, r)
}

// close ends all streams.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended = true; h.closed != nil {
		close(h.closed)
	}
}

func (h *hub) all() []*reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]*reader, 0, len(h.readers))
	for r := range h.readers {
		out = append(out, r)
	}
	return out
}

// publish encodes the frame of this second for those that read it, and for nobody otherwise.
func (h *hub) publish(rec *Recorder, p *observation, m *moment) {
	readers := h.all()
	if len(readers) == 0 {
		return
	}
	e := encoder{rec: rec, p: p, m: m, parts: map[partKey][]byte{}}
	for _, r := range readers {
		r.offer(e.frame(r.topic, r.order.Load()))
	}
}

// offer replaces a frame that was not taken yet.
func (r *reader) offer(f encoded) {
	select {
	case <-r.frames:
	default:
	}
	select {
	case r.frames <- f:
	default: // cannot be: only publish sends
	}
}

// An encoder makes the parts of the frames of one second, each once.
type encoder struct {
	rec   *Recorder
	p     *observation
	m     *moment
	parts map[partKey][]byte
}

type partKey struct{ kind, cluster, endpoint string }

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

// frame puts the parts together, in the form of type frame.
func (e *encoder) frame(t topic, known uint64) encoded {
	out := encoded{order: known}
	none := []byte("null")
	fleet := e.part(partKey{kind: "fleet"}, func() any { return e.m.fleet })
	cluster, endpoint, matrix := none, none, none
	if c := e.cluster(t.cluster); c != nil {
		row := e.rec.o.History.latest(c.Name)
		kind := "cluster"
		if row != nil && row.order.id != known {
			kind, out.order = "cluster with addresses", row.order.id
		}
		cluster = e.part(partKey{kind, c.Name, ""}, func() any { return e.clusterFrame(c, row, kind != "cluster") })
		if i := indexOf(c.Endpoints, t.endpoint); i >= 0 {
			endpoint = e.part(partKey{"endpoint", c.Name, t.endpoint}, func() any { return e.endpoint(c, i) })
		}
		if t.matrix {
			matrix = e.part(partKey{"matrix", c.Name, ""}, func() any { return e.matrix(c.Name) })
		}
	}
	out.body = fmt.Appendf(nil, "id: %d\nevent: frame\ndata: {\"at\":%s,\"fleet\":%s,\"cluster\":%s,\"endpoint\":%s,"+
		"\"matrix\":%s}\n\n", e.m.at.Unix(), e.part(partKey{kind: "at"}, func() any { return view.At(e.m.at) }), fleet,
		cluster, endpoint, matrix)
	return out
}

func (e *encoder) cluster(name string) *view.Cluster {
	for i := range e.p.clusters {
		if name != "" && e.p.clusters[i].Name == name {
			return &e.p.clusters[i]
		}
	}
	return nil
}

// clusterFrame is a cluster in columns.
func (e *encoder) clusterFrame(c *view.Cluster, r *row, withAddresses bool) clusterFrame {
	whole := completeCluster(e.p, *c, e.m)
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
	completeEndpoint(e.p, c, &one, capacityOf(c.Endpoints), e.m.measures[c.Name])
	one.Why = c.Working.Explain(one.Address)
	return one
}

func (e *encoder) matrix(cluster string) any {
	m, ok := e.rec.o.Source.Matrix(cluster)
	if !ok {
		return nil
	}
	return completeMatrix(m, e.p.now)
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
	reader := h.Recorder.hub.join(t)
	if reader == nil {
		w.Header().Set("Retry-After", "5")
		writeError(w, http.StatusServiceUnavailable, "there are %d streams already: close some pages, or try again",
			maxStreams)
		return
	}
	defer h.Recorder.hub.leave(reader)
	s := stream{w: w, control: http.NewResponseController(w)}
	if err := s.begin(); err != nil {
		return
	}
	if body := h.missed(r, t); body != nil && s.write(body) != nil {
		return
	}
	heartbeat := time.NewTicker(time.Second)
	defer heartbeat.Stop()
	for {
		var body []byte
		select {
		case <-r.Context().Done():
			return
		case <-h.Recorder.hub.closed:
			return
		case <-heartbeat.C:
			body = []byte(": heartbeat\n\n")
		case f := <-reader.frames:
			reader.order.Store(f.order)
			body = f.body
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
