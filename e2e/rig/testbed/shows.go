package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/internal/api"
)

// Get asks the admin API.
func (f *Fleet) Get(path string, into any) error {
	resp, err := http.Get("http://" + f.Admin + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// Answer asks the admin API, with a timeout of a second.
func (f *Fleet) Answer(path string) (string, error) {
	client := http.Client{Timeout: time.Second}
	resp, err := client.Get("http://" + f.Admin + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", path, resp.Status, body)
	}
	return string(body), err
}

// Status returns the answer of /api/v1/status.
func (f *Fleet) Status() (s api.Status, err error) {
	err = f.Get("/api/v1/status", &s)
	return s, err
}

// View returns the cluster as the admin API shows it.
func (f *Fleet) View() (api.Cluster, error) { return f.ViewOf(Cluster) }

// ViewOf returns another cluster.
func (f *Fleet) ViewOf(name string) (v api.Cluster, err error) {
	err = f.Get("/api/v1/clusters/"+name, &v)
	return v, err
}

// Clients returns the connected Envoys as the admin API shows them.
func (f *Fleet) Clients() ([]api.Client, error) {
	var answer struct{ Clients []api.Client }
	err := f.Get("/api/v1/clients", &answer)
	return answer.Clients, err
}

// Endpoint returns one endpoint as the admin API shows it.
func (f *Fleet) Endpoint(address string) (api.Endpoint, error) {
	v, err := f.View()
	if err != nil {
		return api.Endpoint{}, err
	}
	for _, e := range v.Endpoints {
		if e.Address == address {
			return e, nil
		}
	}
	return api.Endpoint{}, fmt.Errorf("no endpoint %s", address)
}

// Modes wants every Envoy to report its requests in a mode.
func (f *Fleet) Modes(want api.SignalMode) error {
	clients, err := f.Clients()
	if err != nil {
		return err
	}
	seen := make(map[string]bool)
	for _, c := range clients {
		if s := c.Signals; s.Mode != want || s.State != api.SignalOK || !s.Runtime.InSync {
			return fmt.Errorf("%s is %s in mode %q, runtime %+v", c.NodeID, s.State, s.Mode, s.Runtime)
		}
		seen[c.NodeID] = true
	}
	if len(seen) != len(f.Envoys) {
		return fmt.Errorf("%d Envoys, want %d", len(seen), len(f.Envoys))
	}
	return nil
}

// Source returns a source of the cluster, by its name.
func (f *Fleet) Source(name string) (api.SourceStatus, error) {
	v, err := f.View()
	if err != nil {
		return api.SourceStatus{}, err
	}
	for _, s := range v.Sources {
		if s.Name == name {
			return s, nil
		}
	}
	return api.SourceStatus{}, fmt.Errorf("no source %s", name)
}

// SourceIs wants a source to be in a state.
func (f *Fleet) SourceIs(name string, want api.SourceState) error {
	s, err := f.Source(name)
	if err == nil && s.State != want {
		err = fmt.Errorf("source %s is %s (%s), want %s", name, s.State, s.LastError, want)
	}
	return err
}

// HasProblem wants a problem of the process with this severity and all these texts.
func (f *Fleet) HasProblem(severity api.Severity, texts ...string) error {
	s, err := f.Status()
	if err != nil {
		return err
	}
	for _, p := range s.Problems {
		missing := func(text string) bool { return !strings.Contains(p.Message, text) }
		if p.Severity == severity && !slices.ContainsFunc(texts, missing) {
			return nil
		}
	}
	return fmt.Errorf("no problem of severity %s has %q: %+v", severity, texts, s.Problems)
}

// InFlight returns the requests in flight at all endpoints.
func (f *Fleet) InFlight() (sum float64, err error) {
	v, err := f.View()
	for _, e := range v.Endpoints {
		in := e.Input("in_flight")
		if in.State != "fresh" || e.InFlightSource != api.SourceAccessLog {
			return 0, errors.Join(err, fmt.Errorf("in flight at %s is %s, from %q", e.Address, in.State,
				e.InFlightSource))
		}
		sum += in.Value.Or(0)
	}
	return sum, err
}

// InFlightBetween wants it within bounds.
func (f *Fleet) InFlightBetween(least, most float64) error {
	n, err := f.InFlight()
	if err == nil && (n < least || n > most) {
		err = fmt.Errorf("%v requests in flight, want %v to %v", n, least, most)
	}
	return err
}

// Queue returns the queue of the tests' cluster; an error while there is none.
func (f *Fleet) Queue() (api.Queue, error) {
	v, err := f.View()
	if err == nil && v.Queue == nil {
		err = fmt.Errorf("the cluster has no queue")
	}
	if err != nil {
		return api.Queue{}, err
	}
	return *v.Queue, nil
}

// Waits returns nil when n requests wait and m are in flight, and all Envoys of the fleet have joined the queue.
func (f *Fleet) Waits(n, m int) error {
	q, err := f.Queue()
	if err != nil {
		return err
	}
	waiting := 0
	for _, c := range q.Classes {
		waiting += c.Waiting
	}
	if waiting != n || q.InFlight.Or(-1) != float64(m) || q.Envoys != len(f.Envoys) {
		return fmt.Errorf("%d wait and %v are in flight of %d Envoys, want %d, %d and %d", waiting, q.InFlight.Or(-1),
			q.Envoys, n, m, len(f.Envoys))
	}
	return nil
}

// Metric returns the sum of a counter over its series on /metrics.
func (f *Fleet) Metric(name string) float64 {
	f.T.Helper()
	resp, err := http.Get("http://" + f.Admin + "/metrics")
	if err != nil {
		f.T.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		f.T.Fatal(err)
	}
	var sum float64
	for _, m := range families[name].GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum
}

// Hosts returns the endpoints of the weighted cluster as Envoy i has them.
func (f *Fleet) Hosts(i int) map[string]proc.Host {
	f.T.Helper()
	hosts, err := Weighted(f.T.Context(), f.Envoys[i])
	if err != nil {
		f.T.Fatal(err)
	}
	return hosts
}

// Weighted returns the endpoints of an Envoy's weighted cluster, by address.
func Weighted(ctx context.Context, e *proc.Envoy) (map[string]proc.Host, error) {
	clusters, err := e.Clusters(ctx)
	out := make(map[string]proc.Host)
	for _, h := range clusters[Cluster] {
		out[h.Address] = h
	}
	return out, err
}

// Shares returns the weights that Envoy i balances by, as parts of their sum.
func (f *Fleet) Shares(i int) map[string]float64 {
	f.T.Helper()
	hosts := f.Hosts(i)
	var sum float64
	for _, h := range hosts {
		sum += float64(h.Weight)
	}
	out := make(map[string]float64, len(hosts))
	for a, h := range hosts {
		out[a] = float64(h.Weight) / sum
	}
	return out
}

// ShareOf wants an endpoint's share, as Envoys have it, within bounds.
func (f *Fleet) ShareOf(address string, least, most float64) error {
	for i := range f.Envoys {
		if share := f.Shares(i)[address]; share < least || share > most {
			return fmt.Errorf("envoy %d gives it %.3f, want %v to %v", i, share, least, most)
		}
	}
	return nil
}

// Everywhere waits until a condition holds for the hosts of every Envoy.
func (f *Fleet) Everywhere(what string, holds func(map[string]proc.Host) bool) {
	f.T.Helper()
	f.Eventually(what, func() error {
		for i := range f.Envoys {
			if hosts := f.Hosts(i); !holds(hosts) {
				return fmt.Errorf("not in envoy %d: %v", i, hosts)
			}
		}
		return nil
	})
}

// Avoided reports whether the weight of an endpoint is less than a tenth of the mean weight.
func Avoided(hosts map[string]proc.Host, address string) bool {
	var sum float64
	for _, h := range hosts {
		sum += float64(h.Weight)
	}
	return float64(hosts[address].Weight) < 0.1*sum/float64(len(hosts))
}

// AvoidsEverywhere waits until all Envoys avoid an endpoint.
func (f *Fleet) AvoidsEverywhere(address string) {
	f.T.Helper()
	f.Everywhere(address+" is avoided", func(hosts map[string]proc.Host) bool { return Avoided(hosts, address) })
}

// WellAgain waits until the endpoint is not flagged and serves its share.
func (f *Fleet) WellAgain(s *modelsim.Server) {
	f.T.Helper()
	served := s.Served()
	f.Eventually(s.Address()+" serves again, without a flag", func() error {
		e, err := f.Endpoint(s.Address())
		if err == nil && (e.Overloaded || s.Served() < served+20) {
			err = fmt.Errorf("flagged %v: %q, %d served", e.Overloaded, e.OverloadReason, s.Served()-served)
		}
		return err
	})
}

// EnvoyStat returns a statistic of the first Envoy; 0 where it has none of that name.
func (f *Fleet) EnvoyStat(name string) float64 {
	f.T.Helper()
	stats, err := f.Envoys[0].Stats(f.T.Context(), "^"+name+"$")
	if err != nil {
		f.T.Fatal(err)
	}
	return stats[name]
}

// Choices returns the number of choices of an Envoy's module for a reason.
func (f *Fleet) Choices(t *testing.T, envoy int, reason string) float64 {
	t.Helper()
	series := "dynamicmodulescustom.picker_choices_" + reason
	stats, err := f.Envoys[envoy].Stats(t.Context(), series)
	if err != nil {
		t.Fatal(err)
	}
	return stats[series]
}

// Chooses waits until an Envoy's module has loads.
func (f *Fleet) Chooses(t *testing.T, envoy int) {
	t.Helper()
	f.Eventually("the module has loads", func() error {
		before := f.Choices(t, envoy, "fill")
		f.PostTo(t, envoy, []byte("{}"))
		if f.Choices(t, envoy, "fill") == before {
			return fmt.Errorf("no choice")
		}
		return nil
	})
}

// Served is the requests that all servers answered.
func (f *Fleet) Served() (n uint64) {
	for _, s := range f.Plan.Servers {
		n += s.Served()
	}
	return n
}
