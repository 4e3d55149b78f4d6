package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const aFile = "clusters: [{name: a, engine: triton, endpoints: {file: a.yaml}}]\n"

func TestReplicasWarnOfAddressesThatOthersCannotReach(t *testing.T) {
	for text, want := range map[string][]string{
		"replicas: {peers: [\"10.0.0.6:18000\"]}\n": {
			"x.yaml:1:1: replicas: only this machine can connect to xds.listen, 127.0.0.1:18000 (the default), and " +
				"the other replicas have to: write an address there that they reach, such as 0.0.0.0:18000"},
		"xds: {listen: \"10.0.0.5:18000\", insecure: true}\nreplicas: {peers: [\"127.0.0.1:18001\"]}\n": {
			"x.yaml:2:20: replicas.peers[0]: 127.0.0.1:18001 is on this machine: fine for a test, but a replica on " +
				"another machine needs an address that leads there from here"},
		"replicas: {peers: [\"127.0.0.1:18000\", \"127.0.0.1:18001\"]}\n":                                       nil,
		"xds: {listen: \"0.0.0.0:18000\", insecure: true}\nreplicas: {peers: [\"steelyard.internal:18000\"]}\n": nil,
	} {
		_, warnings, err := Examine("x.yaml", []byte(text+aFile))
		if err != nil {
			t.Errorf("%s%v", text, err)
		}
		var got []string
		for _, w := range warnings {
			got = append(got, w.Error())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s(-want +got):\n%s", text, diff)
		}
	}
}

func TestTheLeaseIsWhereTheReplicasCanAgree(t *testing.T) {
	redis, queue := &Redis{}, []Cluster{{Queue: &Queue{}}}
	service, peers := &Replicas{Service: "xds"}, &Replicas{Peers: []string{"b:1"}}
	for name, c := range map[string]struct {
		cfg   Config
		inPod bool
		want  string
	}{
		"no queue":             {Config{Redis: redis, Replicas: service}, true, ""},
		"the only one":         {Config{Redis: redis, Clusters: queue}, false, ""},
		"a Pod":                {Config{Redis: redis, Clusters: queue}, true, LeaseKubernetes},
		"a Service":            {Config{Clusters: queue, Replicas: service}, false, LeaseKubernetes},
		"a Service, and Redis": {Config{Redis: redis, Clusters: queue, Replicas: service}, true, LeaseRedis},
		"peers, and Redis":     {Config{Redis: redis, Clusters: queue, Replicas: peers}, false, LeaseRedis},
		"peers, and Redis is not": {Config{Redis: redis, Clusters: queue, Replicas: &Replicas{Lease: LeaseKubernetes}},
			false, LeaseKubernetes},
		"peers, which the check refuses": {Config{Clusters: queue, Replicas: peers}, false, ""},
	} {
		if got := c.cfg.Lease(c.inPod); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
