package modelsim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"steelyard/collectors/modelserver"
)

// The simulated pages stand in for real ones, so what Steelyard reads from them
// must be what the simulated server meant.
func TestCollectorsReadWhatTheServerMeans(t *testing.T) {
	known := func(v float64) modelserver.Number { return modelserver.Number{Value: v, Known: true} }
	tests := []struct {
		engine Engine
		reads  modelserver.Engine
		want   modelserver.Report
	}{
		{VLLM, modelserver.EngineVLLM, modelserver.Report{
			Queue: known(7), Running: known(3), Utilization: known(0.25), Completions: known(102),
			QueueSeconds: known(0.8), BusySeconds: known(1.6),
		}},
		{Triton, modelserver.EngineTriton, modelserver.Report{
			Queue: known(7), Completions: known(100), QueueSeconds: known(0.8), BusySeconds: known(1.6),
		}},
	}
	for _, tt := range tests {
		for _, whole := range []bool{true, false} {
			reader, err := modelserver.NewReader(tt.reads, modelserver.Custom{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := reader.Read(newPage(formatOf(tt.engine), whole).render(loaded(tt.engine)))
			if err != nil {
				t.Fatal(err)
			}
			want := tt.want
			if whole && tt.engine == VLLM { // series that are not live: as they were recorded
				want.PromptTokens, want.CachedTokens, want.GeneratedTokens = known(219), known(0), known(17181)
				want.FirstTokens, want.Iterations, want.BlockTokens = known(47), known(4460), known(128)
				want.Awake = known(1)
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(modelserver.Report{})); diff != "" {
				t.Errorf("%s, whole page %t, report (-want +got):\n%s", tt.engine, whole, diff)
			}
		}
	}
}
