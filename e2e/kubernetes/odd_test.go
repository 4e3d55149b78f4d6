package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"steelyard/internal/api"

	core "k8s.io/api/core/v1"

	discoveryv1 "k8s.io/api/discovery/v1"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"steelyard/controlplane/discovery"

	source "steelyard/controlplane/discovery/kubernetes"
	"steelyard/e2e/rig/proc"
)

// A slice is an EndpointSlice that is written as it stands.
type slice struct {
	family  discoveryv1.AddressType // empty: IPv4
	ports   []discoveryv1.EndpointPort
	entries []entry
}

func ports(all ...discoveryv1.EndpointPort) []discoveryv1.EndpointPort { return all }

func tcp(name string, number int32) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Port: &number}
}

// at returns the entry of a Pod that is ready, as the controller of Kubernetes writes it; without a Pod, as people do.
func at(address, pod string) entry {
	e := entry{address: address, pod: pod, ready: yes()}
	if pod != "" {
		e.uid, e.serving, e.terminating = types.UID("uid-"+pod), yes(), no()
	}
	return e
}

// with returns an entry with other conditions.
func with(e entry, ready, serving, terminating *bool) entry {
	e.ready, e.serving, e.terminating = ready, serving, terminating
	return e
}

// oddServices are EndpointSlices that the API server accepts, and that consumers have stumbled over.
var oddServices = map[string]struct {
	slices []slice
	config source.ServiceConfig
	want   string   // as shown describes it
	left   []string // ADDRESS OBJECT: a part of the reason
	fault  string   // with which nothing is used
}{
	"the same Pods in two slices, and an IP that has a new owner": {
		slices: []slice{
			{ports: httpPort, entries: []entry{at("10.1.0.1", "a"), at("10.1.0.2", "b"),
				going(entry{address: "10.1.0.3", pod: "c", uid: "uid-c-old"})}},
			{ports: httpPort, entries: []entry{going(at("10.1.0.2", "b")), at("10.1.0.1", "a"), at("10.1.0.3", "c")}},
		},
		want: "-10.1.0.2:8000 10.1.0.1:8000 10.1.0.3:8000",
	},
	"250 Pods in three slices that overlap": {
		slices: []slice{{ports: httpPort, entries: entries(0, 110)}, {ports: httpPort, entries: entries(100, 110)},
			{ports: httpPort, entries: entries(200, 50)}},
		want: listed(entries(0, 250)),
	},
	"conditions that contradict each other": {
		slices: []slice{{ports: httpPort, entries: []entry{at("10.3.0.1", "ready"),
			with(at("10.3.0.2", "loading"), yes(), no(), no()), with(at("10.3.0.3", "leaving"), yes(), yes(), yes())}}},
		want: "-10.3.0.3:8000 10.3.0.1:8000 10.3.0.2:8000",
	},
	"another number of the port, by name": {
		slices: []slice{{ports: httpPort, entries: []entry{at("10.4.0.1", "x")}},
			{ports: ports(tcp("http", 8080)), entries: []entry{at("10.4.0.2", "y")}}},
		config: source.ServiceConfig{Port: "http"},
		want:   "10.4.0.1:8000 10.4.0.2:8080",
	},
	"another number of the port, by number": {
		slices: []slice{{ports: httpPort, entries: []entry{at("10.4.0.1", "x")}},
			{ports: ports(tcp("http", 8080)), entries: []entry{at("10.4.0.2", "y")}}},
		config: source.ServiceConfig{Port: "8000"},
		want:   "10.4.0.1:8000",
		left:   []string{"10.4.0.2 EndpointSlice odd-1, Pod y: it has no port 8000: its ports"},
	},
	"a slice without ports, by name": {
		slices: []slice{{ports: httpPort, entries: []entry{at("10.5.0.1", "x")}},
			{entries: []entry{at("10.5.0.2", "job")}}},
		config: source.ServiceConfig{Port: "http"},
		want:   "10.5.0.1:8000",
		left:   []string{"10.5.0.2 EndpointSlice odd-1, Pod job: it has no TCP port, though its Service has ports"},
	},
	"a slice without ports, by number": {
		slices: []slice{{ports: httpPort, entries: []entry{at("10.5.0.1", "x")}},
			{entries: []entry{at("10.5.0.2", "job")}}},
		config: source.ServiceConfig{Port: "8000"},
		want:   "10.5.0.1:8000",
		left:   []string{"10.5.0.2 EndpointSlice odd-1, Pod job: it has no TCP port, though its Service has ports"},
	},
	"a slice without ports, and no word of the port": {
		slices: []slice{{ports: httpPort, entries: []entry{at("10.5.0.1", "x")}},
			{entries: []entry{at("10.5.0.2", "job")}}},
		want: "10.5.0.1:8000",
		left: []string{"10.5.0.2 EndpointSlice odd-1, Pod job: it has no TCP port, though its Service has ports"},
	},
	"a port of another protocol only": {
		slices: []slice{{ports: ports(discoveryv1.EndpointPort{Name: new("dns"), Port: new(int32(8000)),
			Protocol: new(core.ProtocolUDP)}), entries: []entry{at("10.5.1.1", "x")}}},
		config: source.ServiceConfig{Port: "8000"},
		fault:  "10.5.1.1 (EndpointSlice odd-0, Pod x): it has no TCP port, though its Service has ports",
	},
	"no slice has ports": {
		slices: []slice{{entries: []entry{at("10.5.2.1", "x")}}, {entries: []entry{at("10.5.2.2", "y")}}},
		config: source.ServiceConfig{Port: "8000"},
		want:   "10.5.2.1:8000 10.5.2.2:8000",
	},
	"dual stack": {slices: dual, want: "10.6.0.1:8000 10.6.0.2:8000 [fd00::3]:8000"},
	"dual stack, by IPv6": {slices: dual, config: source.ServiceConfig{Family: source.IPv6},
		want: "[fd00::1]:8000 [fd00::2]:8000 [fd00::3]:8000"},
	"dual stack, by IPv4": {slices: dual, config: source.ServiceConfig{Family: source.IPv4},
		want: "10.6.0.1:8000 10.6.0.2:8000",
		left: []string{"[fd00::3]:8000 EndpointSlice odd-1, Pod c: it has no IPv4 address"}},
	"all terminate": {
		slices: []slice{{ports: httpPort, entries: []entry{going(at("10.7.0.1", "a")),
			with(at("10.7.0.2", "b"), no(), no(), yes())}}},
		want: "-10.7.0.2:8000 10.7.0.1:8000",
	},
	"a slice of names": {
		slices: []slice{{ports: httpPort, entries: []entry{at("10.8.0.1", "a")}}, {family: discoveryv1.AddressTypeFQDN,
			ports: httpPort, entries: []entry{at("gpu1.example.net", "")}}},
		want: "10.8.0.1:8000",
		left: []string{"gpu1.example.net:8000 EndpointSlice odd-1: it has addresses of type FQDN"},
	},
	"a port without a number, by name": {
		slices: []slice{{ports: ports(discoveryv1.EndpointPort{Name: new("http")}),
			entries: []entry{at("10.9.0.1", "a")}}},
		config: source.ServiceConfig{Port: "http"},
		fault:  "10.9.0.1 (EndpointSlice odd-0, Pod a): it has no TCP port: write a number as the value of port",
	},
	"a port without a number, by number": {
		slices: []slice{{ports: ports(discoveryv1.EndpointPort{Name: new("http")}),
			entries: []entry{at("10.9.0.1", "a")}}},
		config: source.ServiceConfig{Port: "8000"},
		want:   "10.9.0.1:8000",
	},
	"no conditions, and a port without a name": {
		slices: []slice{{ports: ports(tcp("", 8000)), entries: []entry{with(at("10.10.0.1", "a"), nil, nil, nil),
			with(at("10.10.0.2", "b"), nil, nil, nil)}}},
		want: "10.10.0.1:8000 10.10.0.2:8000",
	},
	"one port by two names, and by UDP": {
		slices: []slice{{ports: ports(tcp("http", 8000), tcp("http-alias", 8000), discoveryv1.EndpointPort{
			Name: new("dns"), Port: new(int32(8000)), Protocol: new(core.ProtocolUDP)}),
			entries: []entry{at("10.11.0.1", "a")}}},
		want: "10.11.0.1:8000",
	},
	"servers without a Pod, one in each family": {slices: external, want: "192.0.2.1:8000 [2001:db8::9]:8000"},
	"servers without a Pod, by IPv4": {slices: external, config: source.ServiceConfig{Family: source.IPv4},
		want: "192.0.2.1:8000", left: []string{"[2001:db8::9]:8000 EndpointSlice odd-1: it has no IPv4 address"}},
	"a Pod in one family, a server without a Pod in the other": {
		slices: []slice{{ports: httpPort, entries: []entry{at("10.12.1.1", "a")}},
			{family: discoveryv1.AddressTypeIPv6, ports: httpPort, entries: []entry{at("2001:db8::9", "")}}},
		want: "10.12.1.1:8000 [2001:db8::9]:8000",
	},
	"two addresses in one entry": {
		slices: []slice{{ports: httpPort, entries: []entry{at("10.12.0.1,10.12.0.9", "a")}}},
		want:   "10.12.0.1:8000",
	},
	"a port for the metrics": {
		slices: []slice{{ports: ports(tcp("http", 8000), tcp("metrics", 8002)),
			entries: []entry{at("10.13.0.1", "a")}}},
		config: source.ServiceConfig{Port: "http", MetricsPort: "metrics"},
		want:   "10.13.0.1:8000",
	},
	"a port for the metrics, and no word of the port": {
		slices: []slice{{ports: ports(tcp("http", 8000), tcp("metrics", 8002)),
			entries: []entry{at("10.13.0.1", "a")}}},
		fault: "10.13.0.1 (EndpointSlice odd-0, Pod a): it has the ports http 8000, metrics 8002",
	},
	"two Pods that are ready at one address": {
		slices: []slice{{ports: httpPort, entries: []entry{at("10.14.0.1", "a"), at("10.14.0.1", "b")}}},
		want:   "10.14.0.1:8000",
		left: []string{"10.14.0.1:8000 EndpointSlice odd-0, Pod a: EndpointSlice odd-0, Pod b is ready at the " +
			"same address"},
	},
}

var (
	dual = []slice{
		{ports: httpPort, entries: []entry{at("10.6.0.1", "a"), at("10.6.0.2", "b")}},
		{family: discoveryv1.AddressTypeIPv6, ports: httpPort,
			entries: []entry{at("fd00::1", "a"), at("fd00::2", "b"), at("fd00::3", "c")}},
	}
	external = []slice{
		{ports: httpPort, entries: []entry{at("192.0.2.1", "")}},
		{family: discoveryv1.AddressTypeIPv6, ports: httpPort, entries: []entry{at("2001:db8::9", "")}},
	}
)

// listed describes entries on port 8000, as shown does.
func listed(all []entry) string {
	var out []string
	for _, e := range all {
		out = append(out, e.address+":8000")
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestEndpointsOfOddObjectsAreUsedAndTheOthersAreNamed: each with its address, its object and the reason.
func TestEndpointsOfOddObjectsAreUsedAndTheOthersAreNamed(t *testing.T) {
	r := newRoom(t, client(t, apiServer(t)))
	c := least(t, r)
	rows := 0
	for name, row := range oddServices {
		rows++
		service_ := fmt.Sprintf("odd-%d", rows)
		for i, s := range row.slices {
			r.sliceOf(cmp.Or(s.family, discoveryv1.AddressTypeIPv4), service_, fmt.Sprintf("%s-%d", service_, i),
				s.ports,
				s.entries...)
		}
		row.config.Namespace, row.config.Service = r.name, service_
		v := service(t, c, row.config)
		eventually(t, name, func() error {
			set, err := v.now()
			if row.fault != "" {
				if set != nil || err == nil ||
					!strings.Contains(err.Error(), strings.ReplaceAll(row.fault, "odd-", service_+"-")) {
					return fmt.Errorf("endpoints %s (%w), want none: %s", shown(set), cmp.Or(err, errNone), row.fault)
				}
				return nil
			}
			if shown(set) != row.want {
				return fmt.Errorf("endpoints %s (%w), want %s", shown(set), cmp.Or(err, errNone), row.want)
			}
			return leavesOut(err, service_, row.left)
		})
	}
}

var errNone = errors.New("no fault")

// leavesOut compares what a source reports with ADDRESS OBJECT: REASON of what it should leave out. The names of slices
// begin with odd in it, and with the name of the Service in the API.
func leavesOut(err error, service string, want []string) error {
	var got discovery.Omissions
	if o, ok := err.(*discovery.Omissions); ok { //nolint:errorlint // wrapped in another error, they are a failure
		got = *o
	} else if err != nil {
		return err
	}
	if got.Count != len(want) {
		return fmt.Errorf("%d left out (%w), want %q", got.Count, cmp.Or(err, errNone), want)
	}
	for i, o := range got.First {
		text := strings.TrimSpace(o.Address + " " + o.Object + ": " + o.Reason)
		if !strings.HasPrefix(text, strings.ReplaceAll(want[i], "odd-", service+"-")) {
			return fmt.Errorf("left out %q, want %q", text, want[i])
		}
	}
	return nil
}

// TestOddPodsOfAPoolAreNamedAndTheOthersAreUsed, by the source and by all that operators look at.
func TestOddPodsOfAPoolAreNamedAndTheOthersAreUsed(t *testing.T) {
	s := apiServer(t)
	installPools(t, s)
	r := newRoom(t, client(t, s))
	r.account()
	r.grant(r.name, readPools, readPods)
	app := map[string]string{"app": "odd"}
	labelled := func(name, value string) map[string]string { return map[string]string{"app": "odd", name: value} }
	for _, p := range []pod{
		{name: "leader", ips: []string{"10.20.0.1"}},
		{name: "worker", ips: []string{"10.20.0.2"}, labels: labelled("leaderworkerset.sigs.k8s.io/worker-index", "1")},
		{name: "loading", ips: []string{"10.20.0.3"}, unready: true},
		{name: "gone", ips: []string{"10.20.0.4"}},
		{name: "dual", ips: []string{"10.20.0.5", "fd00::5"}},
		{name: "host-a", ips: []string{"10.20.0.9"}},
		{name: "host-b", ips: []string{"10.20.0.9"}},
		{name: "going", ips: []string{"10.20.0.6"}, node: "node-1"},
		{name: "big", ips: []string{"10.20.0.7"}, annotations: map[string]string{"steelyard.dev/capacity": " 8 "}},
		{name: "small", ips: []string{"10.20.0.8"}, labels: labelled("steelyard.dev/capacity", "eight")},
	} {
		if p.labels == nil {
			p.labels = app
		}
		r.pod(p)
	}
	gone, err := r.client.CoreV1().Pods(r.name).Get(t.Context(), "gone", meta.GetOptions{})
	r.must(err)
	gone.Status.Phase = core.PodSucceeded
	_, err = r.client.CoreV1().Pods(r.name).UpdateStatus(context.Background(), gone, meta.UpdateOptions{})
	r.must(err)
	r.terminate("going")
	r.pool(s, "odd", app, 8000, 8001)
	p := r.serve(fmt.Sprintf("scrape: {disabled: true}\n  warm_up: 1s\n"+
		"  endpoints: {inferencePool: {name: odd, namespace: %s}}",
		r.name))
	want := []string{"10.20.0.8 steelyard.dev/capacity of Pod small: it is \"eight\": write a number of slots",
		"10.20.0.9:8000 Pod host-", "10.20.0.9:8001 Pod host-"}
	eventually(t, "the API names them", func() error {
		v, err := p.view()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(v.Sources, func(s api.SourceStatus) bool { return s.Name == "discovery" })
		if i < 0 || v.Sources[i].State != api.SourcePartly || v.Sources[i].LastSuccess.IsZero() ||
			v.Counts.Total != 12 ||
			v.Counts.Terminating != 2 {
			return fmt.Errorf("%+v, sources %+v", v.Counts, v.Sources)
		}
		o := v.Sources[i].Omitted
		return leavesOut(&discovery.Omissions{First: o.First, Count: o.Count}, "", want)
	})
	eventually(t, "status names them, in a warning", func() error {
		out := p.steelyard("status")
		for _, part := range []string{"discovery partly", "WARNING", "Discovery of llama leaves something out",
			"12 endpoints are in use. Left out: 10.20.0.8 (steelyard.dev/capacity of Pod small)",
			"Left out of llama by discovery:\n  10.20.0.8 (steelyard.dev/capacity of Pod small): it is", "(Pod host-"} {
			if !strings.Contains(out, part) {
				return fmt.Errorf("%q is not in\n%s", part, out)
			}
		}
		if strings.Contains(out, "is lost") || strings.Contains(out, "never worked") {
			return fmt.Errorf("it says what is false:\n%s", out)
		}
		return nil
	})
}

// steelyard is what a command that asks prints.
func (p *product) steelyard(args ...string) string {
	p.t.Helper()
	binary, err := proc.BuildSteelyard()
	if err != nil {
		p.t.Fatal(err)
	}
	// status exits with 1 where there are warnings.
	out, _ := exec.CommandContext(p.t.Context(), binary, append(args, "--admin", "http://"+p.admin)...).CombinedOutput()
	return string(out)
}
