package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"steelyard/e2e/rig/proc"
	"steelyard/internal/api"
)

// Steelyard returns the process of a replica; the first is 0.
func (f *Fleet) Steelyard(i int) *proc.Process { return f.replicas[i].process }

// Envoys returns the Envoys of the row.
func (f *Fleet) Envoys() []*proc.Envoy { return f.envoys }

// Picker returns the picker of Envoy i, nil where the policy has none.
func (f *Fleet) Picker(i int) *proc.Process { return f.pickers[i].process }

// RestartSteelyard starts a replica that has ended once more, at its addresses.
func (f *Fleet) RestartSteelyard(ctx context.Context, i int) error { return f.replicas[i].run(ctx, f) }

// RestartPicker does the same with the picker of Envoy i.
func (f *Fleet) RestartPicker(ctx context.Context, i int) error { return f.pickers[i].run(ctx, f) }

// QueueState returns the queue of the row's cluster as its first Steelyard has it.
func (f *Fleet) QueueState(ctx context.Context) (*api.Queue, error) {
	url := "http://" + f.replicas[0].admin + "/api/v1/clusters/" + clusterName
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var c api.Cluster
	if err := json.NewDecoder(resp.Body).Decode(&c); err != nil {
		return nil, fmt.Errorf("reading %s: %w", url, err)
	}
	if c.Queue == nil {
		return nil, fmt.Errorf("%s: the cluster has no queue", url)
	}
	return c.Queue, nil
}

// URLs returns where the requests of the row go.
func (f *Fleet) URLs() []string { return slices.Clone(f.urls) }
