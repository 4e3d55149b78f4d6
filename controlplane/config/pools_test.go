package config

import "testing"

func TestAPoolIsAClusterUnlessOneHasItAlready(t *testing.T) {
	cfg, err := Parse("steelyard.yaml", []byte(`
pools: {namespaces: [models, more], engine: sglang, metrics_port: 9000}
clusters: [{name: mine, engine: vllm, endpoints: {inferencePool: {name: own}}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	const own = "models"
	next := cfg.WithPools([]PoolName{{"models", "own"}, {"models", "llama"}, {"more", "llama.8b"}}, own)
	if len(cfg.Clusters) != 1 {
		t.Errorf("the configuration itself has now %d clusters", len(cfg.Clusters))
	}
	for i, want := range []string{"mine", "models.llama", "more.llama.8b"} {
		if i >= len(next.Clusters) || next.Clusters[i].Name != want {
			t.Fatalf("the clusters are %+v, want %s at %d", next.Clusters, want, i)
		}
	}
	if c := next.Cluster("models.llama"); c.Engine != "sglang" || c.Endpoints.InferencePool.MetricsPort != 9000 ||
		c.Push != cfg.Clusters[0].Push || c.Weighting != cfg.Clusters[0].Weighting {
		t.Errorf("its cluster is %+v", c)
	}
	for _, c := range []struct{ namespace, name, cluster string }{
		{"models", "own", "mine"}, {"models", "later", "models.later"}, {"elsewhere", "llama", ""},
	} {
		if got, err := cfg.ServesPool(c.namespace, c.name, own); got != c.cluster || (err == nil) != (c.cluster != "") {
			t.Errorf("pool %s/%s is served by %q, %v, want %q", c.namespace, c.name, got, err, c.cluster)
		}
	}
}
