package admin

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"time"

	"steelyard/internal/api"
)

// An Operator acts on the control plane for people who may. Its methods may block, on no lock that a loop needs.
type Operator interface {
	// Override puts an override in force, Undo removes that of an endpoint; ok is false if there was none.
	Override(o api.Override) (api.Override, error)
	Undo(cluster, address, by string) (o api.Override, ok bool)
	// Overrides are those in force, sorted by cluster and address.
	Overrides() []api.Override
	// Diff is what another configuration would change, by a dry run. The name stands for its file in messages.
	Diff(name string, text []byte) (api.Diff, error)
	// LogLevel is the least level that is logged, in lower case; SetLogLevel changes it until the restart.
	LogLevel() string
	SetLogLevel(level string) error
}

// The bounds and the default of requests that change something.
const (
	defaultOverride = time.Hour
	maxConfig       = 1 << 20 // bytes
)

func (h *handler) getOverrides(*http.Request) (api.OverrideList, error) {
	return api.OverrideList{At: api.At(h.Now()), Overrides: api.OrEmpty(h.Operator.Overrides())}, nil
}

func (h *handler) putOverride(r *http.Request, body api.OverrideRequest) (api.Override, error) {
	e, err := h.endpointIn(r)
	if err != nil {
		return api.Override{}, err
	}
	now := h.Now()
	length := time.Duration(body.ForSeconds.Or(defaultOverride.Seconds()) * float64(time.Second))
	return h.Operator.Override(api.Override{
		Cluster: r.PathValue("name"), Address: e.Address, Pod: e.Pod, Kind: body.Kind, Share: body.Share,
		Since: api.At(now), Until: api.At(now.Add(length)), By: callerOf(r).name, Reason: body.Reason,
	})
}

// endpointIn is the endpoint that the path names.
func (h *handler) endpointIn(r *http.Request) (api.Endpoint, error) {
	c, _ := h.Source.Cluster(r.PathValue("name")) // the Operator says if there is none
	return find(c.Endpoints, r.PathValue("address"), r.PathValue("name"))
}

func (h *handler) deleteOverride(r *http.Request) (api.Override, error) {
	cluster := r.PathValue("name")
	e, err := h.endpointIn(r)
	if err != nil {
		return api.Override{}, err
	}
	o, ok := h.Operator.Undo(cluster, e.Address, callerOf(r).name)
	if !ok {
		return o, Missing(fmt.Errorf("endpoint %s of cluster %s is neither drained nor pinned", e.Named(), cluster))
	}
	return o, nil
}

func (h *handler) postDiff(r *http.Request) (api.Diff, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		err = fmt.Errorf("the configuration is larger than %d bytes", maxConfig)
		return api.Diff{}, codedError{err, http.StatusRequestEntityTooLarge}
	}
	d, err := h.Operator.Diff(cmp.Or(r.URL.Query().Get("name"), "configuration"), text)
	if err != nil {
		return d, err
	}
	s := h.snapshot()
	for i := range d.Clusters {
		if c, ok := s.Cluster(d.Clusters[i].Name); ok {
			addServed(&d.Clusters[i], &c)
		}
	}
	return d, nil
}

// addServed adds what the endpoints really got, and how much of the capacity is in use, to compare with.
func addServed(d *api.ClusterDiff, c *api.Cluster) {
	served := make(map[string]api.Number, len(c.Endpoints))
	for i := range c.Endpoints {
		served[c.Endpoints[i].Address] = c.Endpoints[i].ServedShare1m
	}
	for i := range d.Endpoints {
		d.Endpoints[i].ServedShare1m = served[d.Endpoints[i].Address]
	}
	used, known := c.Use.CapacityUsed.Value()
	before, after := d.CapacityBefore.Or(0), d.CapacityAfter.Or(0)
	if known && before > 0 && after > 0 {
		d.CapacityUsed, d.CapacityUsedAfter = api.Num(used), api.Num(used*before/after)
	}
}

func (h *handler) getLogLevel(*http.Request) (api.LogLevel, error) {
	return api.LogLevel{Level: h.Operator.LogLevel()}, nil
}

func (h *handler) postLogLevel(_ *http.Request, body api.LogLevel) (api.LogLevel, error) {
	err := h.Operator.SetLogLevel(body.Level)
	return api.LogLevel{Level: h.Operator.LogLevel()}, err
}
