package admin

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"time"

	"steelyard/controlplane/view"
)

// An Operator acts on the control plane for people who may. Its methods may block, on no lock that a loop needs.
type Operator interface {
	// Override puts an override in force, Undo removes that of an endpoint; ok is false if there was none.
	Override(o view.Override) (view.Override, error)
	Undo(cluster, address string) (o view.Override, ok bool)
	// Overrides are those in force, sorted by cluster and address.
	Overrides() []view.Override
	// Diff is what another configuration would change, by a dry run. The name stands for its file in messages.
	Diff(name string, text []byte) (view.Diff, error)
	// LogLevel is the least level that is logged, in lower case; SetLogLevel changes it until the restart.
	LogLevel() string
	SetLogLevel(level string) error
}

// Missing marks the error of an Operator about a cluster or an endpoint that does not exist: the answer is a 404.
func Missing(err error) error { return codedError{err, http.StatusNotFound} }

// An OverrideStatus is how many overrides there are, and whether they outlive a restart.
type OverrideStatus struct {
	Count  int    `json:"count"`   // in force
	KeptIn string `json:"kept_in"` // `redis`: they outlive a restart; empty: they end with the process
	Error  string `json:"error"`   // why Redis does not keep them now
}

// The bounds and the default of requests that change something.
const (
	defaultOverride = time.Hour
	maxConfig       = 1 << 20 // bytes
)

// An OverrideList is the answer of /api/v1/overrides.
type OverrideList struct {
	At        view.Time       `json:"at"`        // when
	Overrides []view.Override `json:"overrides"` // in force, sorted by cluster and address
}

// An OverrideRequest is the body of a PUT of an override.
type OverrideRequest struct {
	Kind       view.OverrideKind `json:"kind"`        // `drain` or `pin`
	Share      view.Number       `json:"share"`       // share of a pin, 0.0001 to 0.99
	ForSeconds view.Number       `json:"for_seconds"` // how long, 1 s to 7 days; null: an hour
	Reason     string            `json:"reason"`      // at most 200 bytes
}

// logLevel is the answer and the body of /api/v1/log-level.
type logLevel struct {
	Level string `json:"level"` // `debug`, `info`, `warn` or `error`
}

func (h *handler) getOverrides(*http.Request) (OverrideList, error) {
	return OverrideList{At: view.At(h.Now()), Overrides: orEmpty(h.Operator.Overrides())}, nil
}

func (h *handler) putOverride(r *http.Request, body OverrideRequest) (view.Override, error) {
	now := h.Now()
	length := time.Duration(body.ForSeconds.Or(defaultOverride.Seconds()) * float64(time.Second))
	return h.Operator.Override(view.Override{
		Cluster: r.PathValue("name"), Address: r.PathValue("address"), Kind: body.Kind, Share: body.Share,
		Since: view.At(now), Until: view.At(now.Add(length)), By: callerOf(r).name, Reason: body.Reason,
	})
}

func (h *handler) deleteOverride(r *http.Request) (view.Override, error) {
	cluster, address := r.PathValue("name"), r.PathValue("address")
	o, ok := h.Operator.Undo(cluster, address)
	if !ok {
		return o, Missing(fmt.Errorf("endpoint %s of cluster %s is neither drained nor pinned", address, cluster))
	}
	return o, nil
}

func (h *handler) postDiff(r *http.Request) (view.Diff, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		err = fmt.Errorf("the configuration is larger than %d bytes", maxConfig)
		return view.Diff{}, codedError{err, http.StatusRequestEntityTooLarge}
	}
	d, err := h.Operator.Diff(cmp.Or(r.URL.Query().Get("name"), "configuration"), text)
	if err != nil {
		return d, err
	}
	s := h.snapshot()
	for i := range d.Clusters {
		if c, ok := s.cluster(d.Clusters[i].Name); ok {
			addServed(&d.Clusters[i], &c)
		}
	}
	return d, nil
}

// addServed adds what the endpoints really got, and how much of the capacity is in use, to compare with.
func addServed(d *view.ClusterDiff, c *view.Cluster) {
	served := make(map[string]view.Number, len(c.Endpoints))
	for i := range c.Endpoints {
		served[c.Endpoints[i].Address] = c.Endpoints[i].ServedShare1m
	}
	for i := range d.Endpoints {
		d.Endpoints[i].ServedShare1m = served[d.Endpoints[i].Address]
	}
	used, known := c.Use.CapacityUsed.Value()
	before, after := d.CapacityBefore.Or(0), d.CapacityAfter.Or(0)
	if known && before > 0 && after > 0 {
		d.CapacityUsed, d.CapacityUsedAfter = view.Num(used), view.Num(used*before/after)
	}
}

func (h *handler) getLogLevel(*http.Request) (logLevel, error) {
	return logLevel{h.Operator.LogLevel()}, nil
}

func (h *handler) postLogLevel(_ *http.Request, body logLevel) (logLevel, error) {
	err := h.Operator.SetLogLevel(body.Level)
	return logLevel{h.Operator.LogLevel()}, err
}

// overrideText is an override in words.
func overrideText(o view.Override) string {
	if o.Kind == view.OverridePin {
		return fmt.Sprintf("pinned to %.4g %% of the requests by %s until %s%s", 100*o.Share.Or(0), orUnknown(o.By),
			clock(o.Until), because(o.Reason))
	}
	return fmt.Sprintf("drained by %s until %s: it gets no new requests%s", orUnknown(o.By), clock(o.Until),
		because(o.Reason))
}

// clock is a time for a sentence.
func clock(t view.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
