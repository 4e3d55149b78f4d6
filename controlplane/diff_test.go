package controlplane

import (
	"slices"
	"testing"

	"steelyard/controlplane/config"
)

func TestADryRunKnowsTheEndpointsOfAListAndOfTheSameSourceOnly(t *testing.T) {
	file := config.Endpoints{File: "endpoints.yaml"}
	dns := func(name string) config.Endpoints {
		return config.Endpoints{DNS: &config.DNS{Name: name, Type: "A", Port: 80}}
	}
	service := func(name string) config.Endpoints {
		return config.Endpoints{Kubernetes: &config.KubernetesService{Service: name}}
	}
	pool := config.Endpoints{InferencePool: &config.InferencePool{Name: "llama"}}
	for _, c := range []struct {
		name          string
		before, after config.Endpoints
		endpoints     []string // nil: those of today
		known         bool
	}{
		{"the same file", file, file, nil, true},
		{"another file", file, config.Endpoints{File: "others.yaml"}, nil, false},
		{"the same name in DNS", dns("a"), dns("a"), nil, true},
		{"another name in DNS", dns("a"), dns("b"), nil, false},
		{"the same Service", service("a"), service("a"), nil, true},
		{"another Service", service("a"), service("b"), nil, false},
		{"an InferencePool in place of a Service", service("a"), pool, nil, false},
		{"a list in place of a Service", service("a"), static("10.0.0.1:80"), []string{"10.0.0.1:80"}, true},
		{"a Service in place of a list", static("10.0.0.1:80"), service("a"), nil, false},
	} {
		before, after := config.Cluster{Endpoints: c.before}, config.Cluster{Endpoints: c.after}
		endpoints, known := nextEndpoints(&before, &after)
		var got []string
		for _, e := range endpoints {
			got = append(got, e.Address)
		}
		if known != c.known || !slices.Equal(got, c.endpoints) {
			t.Errorf("%s: endpoints %v, known %t; want %v, %t", c.name, got, known, c.endpoints, c.known)
		}
	}
}

func TestADryRunNamesTheSectionsThatNeedARestart(t *testing.T) {
	var running, next config.Config
	next.XDS.Listen, next.Admin.Listen, next.Kubernetes.Kubeconfig = "a:1", "b:2", "kubeconfig"
	next.XDS.Clients = []config.ClientRule{{SAN: "envoy"}}
	var m Manager
	want := []string{"xds", "admin", "kubernetes"}
	if got := m.Diff(&running, &next).Restart; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	next = config.Config{XDS: config.XDS{Clients: next.XDS.Clients}}
	if got := m.Diff(&running, &next).Restart; len(got) > 0 {
		t.Errorf("only clients: %q, want none", got)
	}
}
