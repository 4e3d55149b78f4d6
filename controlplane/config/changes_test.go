package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"steelyard/internal/api"
)

func TestChangesNameEachValueThatDiffers(t *testing.T) {
	parse := func(text string) *Cluster {
		cfg, err := Parse("x.yaml", []byte("clusters:\n- name: llama\n  engine: vllm\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		return &cfg.Clusters[0]
	}
	before := parse(`  endpoints: {static: [{address: 10.0.0.1:1}, {address: 10.0.0.2:1, capacity: 4}]}
  scrape: {body_limit: 1MiB}
`)
	after := parse(`  endpoints: {static: [{address: 10.0.0.2:1, capacity: 8}, {address: 10.0.0.3:1}]}
  capacity: 2.5
  scrape: {interval: 1s, timeout: 200ms, tls: {ca_file: /ca.pem}, scheme: https, body_limit: 2MiB}
`)
	var want differences
	for _, d := range [][3]string{
		{"endpoints.static[10.0.0.1:1]", "10.0.0.1:1", ""},
		{"endpoints.static[10.0.0.2:1].capacity", "4", "8"},
		{"endpoints.static[10.0.0.3:1]", "", "10.0.0.3:1"},
		{"capacity", "", "2.5"},
		{"scrape.interval", "250ms", "1s"},
		{"scrape.scheme", "http", "https"},
		{"scrape.body_limit", "1MiB", "2MiB"},
		{"scrape.tls", "", "{…}"},
	} {
		want.add(d[0], d[1], d[2])
	}
	if diff := cmp.Diff([]api.KeyDiff(want), Changes(before, after)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := Changes(after, after); got != nil {
		t.Errorf("of itself: %v", got)
	}
}
