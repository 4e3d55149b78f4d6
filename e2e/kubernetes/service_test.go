package kubernetes

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"steelyard/controlplane/discovery"
	source "steelyard/controlplane/discovery/kubernetes"
)

// least connects with no more rights than discovery of Services needs.
func least(t testing.TB, r room) *connection {
	t.Helper()
	r.account()
	r.grant(r.name, readSlices, readPods)
	return connect(t, apiServer(t), "", r.tokenFile(apiServer(t)))
}

func TestEndpointsFollowTheSlicesOfAService(t *testing.T) {
	r := newRoom(t, client(t, apiServer(t)))
	a := r.pod(pod{name: "llama-a", annotations: map[string]string{
		"steelyard.dev/capacity": "16", "steelyard.dev/engine": "sglang"}})
	b := r.pod(pod{name: "llama-b", labels: map[string]string{"steelyard.dev/capacity": "8",
		"llm-d.ai/engine-type": "vllm", "llm-d.ai/role": "prefill", "model.aibrix.ai/name": "llama-70b"}})
	entryA := entry{address: "10.0.0.1", pod: "llama-a", uid: a, zone: "zone-a", node: "node-1"}
	entryB := entry{address: "10.0.0.2", pod: "llama-b", uid: b, ready: yes()}
	r.slice("llama", "llama-1", httpPort, entryA)
	r.slice("other", "other-1", httpPort, entry{address: "10.0.0.99"})
	v := service(t, least(t, r), source.ServiceConfig{Namespace: r.name, Service: "llama"})
	v.becomes("10.0.0.1:8000")
	want := discovery.Endpoint{Address: "10.0.0.1:8000", ID: string(a), Namespace: r.name, Pod: "llama-a",
		Node: "node-1", Zone: "zone-a", Capacity: 16, Engine: "sglang"}
	eventually(t, "the Pod's annotations are known", func() error {
		if got := v.one("10.0.0.1:8000"); got != want {
			return fmt.Errorf("it is %+v, want %+v", got, want)
		}
		return nil
	})

	// Scaled up, with an endpoint in two slices; and one that is not ready.
	r.slice("llama", "llama-2", httpPort, entryA, entryB, entry{address: "10.0.0.3", ready: no()})
	v.becomes("10.0.0.1:8000", "10.0.0.2:8000")
	eventually(t, "the endpoint is as the Pod's labels say", func() error {
		want := discovery.Endpoint{Address: "10.0.0.2:8000", ID: string(b), Namespace: r.name, Pod: "llama-b",
			Capacity: 8, Engine: "vllm", Role: "prefill", Model: "llama-70b"}
		if got := v.one("10.0.0.2:8000"); got != want {
			return fmt.Errorf("it is %+v, want %+v", got, want)
		}
		return nil
	})
	// Scaled down: the slice says so. Then to nothing, which the slices say too.
	r.slice("llama", "llama-2", httpPort, entryB)
	r.slice("llama", "llama-1", httpPort)
	v.becomes("10.0.0.2:8000")
	r.slice("llama", "llama-2", httpPort)
	v.becomes()
	r.removeSlice("llama-1")
	r.removeSlice("llama-2")
	v.faulty("it has no EndpointSlice", "Service "+r.name+"/llama")
}

// TestARollingUpdateNeverLosesTheService: each Pod is replaced by one that is ready before the old one goes.
func TestARollingUpdateNeverLosesTheService(t *testing.T) {
	r := newRoom(t, client(t, apiServer(t)))
	pods := make([]entry, 3)
	for i := range pods {
		name := fmt.Sprintf("old-%d", i)
		pods[i] = entry{address: fmt.Sprintf("10.0.1.%d", i+1), pod: name, uid: r.pod(pod{name: name})}
	}
	r.slice("llama", "llama", httpPort, pods...)
	v := service(t, least(t, r), source.ServiceConfig{Namespace: r.name, Service: "llama"})
	v.becomes("10.0.1.1:8000", "10.0.1.2:8000", "10.0.1.3:8000")
	for i := range pods {
		name := fmt.Sprintf("new-%d", i)
		fresh := entry{address: fmt.Sprintf("10.0.2.%d", i+1), pod: name, uid: r.pod(pod{name: name})}
		starting := fresh
		starting.ready, starting.serving = no(), no()
		r.slice("llama", "llama", httpPort, append(pods[:len(pods):len(pods)], starting)...)
		r.slice("llama", "llama", httpPort, append(pods[:len(pods):len(pods)], fresh)...)
		old := pods[i]
		pods[i] = fresh
		r.slice("llama", "llama", httpPort, append(pods[:len(pods):len(pods)], going(old))...)
		var want []string
		for _, e := range pods {
			want = append(want, e.address+":8000")
		}
		v.becomes(append(want, "-"+old.address+":8000")...)
		r.slice("llama", "llama", httpPort, pods...)
		v.becomes(want...)
	}
	if v.fewer < 3 {
		t.Errorf("at some time there were %d endpoints, want 3 or more", v.fewer)
	}
}

func TestTerminatingEndpointsAreTheLastOnesToBeUsed(t *testing.T) {
	r := newRoom(t, client(t, apiServer(t)))
	first := entry{address: "10.0.0.1", pod: "a", uid: r.pod(pod{name: "a"})}
	second := entry{address: "10.0.0.2", pod: "b", uid: r.pod(pod{name: "b"})}
	gone := going(first)
	gone.serving = no()
	r.slice("llama", "llama", httpPort, first, second)
	v := service(t, least(t, r), source.ServiceConfig{Namespace: r.name, Service: "llama"})
	v.becomes("10.0.0.1:8000", "10.0.0.2:8000")
	r.slice("llama", "llama", httpPort, going(first), second)
	v.becomes("-10.0.0.1:8000", "10.0.0.2:8000")
	// One slice is older than another: a Pod that terminates does not return.
	r.slice("llama", "old", httpPort, first)
	r.slice("llama", "llama", httpPort, going(first), going(second))
	r.slice("llama", "old", httpPort, second)
	r.removeSlice("old")
	v.becomes("10.0.0.1:8000", "10.0.0.2:8000") // there are no others
	r.slice("llama", "llama", httpPort, gone, going(second))
	v.becomes("-10.0.0.1:8000", "10.0.0.2:8000")
	r.slice("llama", "llama", httpPort)
	v.becomes()
}

// TestAPodThatGetsAnOldIPIsANewEndpoint: also while the old one's entry is still there.
func TestAPodThatGetsAnOldIPIsANewEndpoint(t *testing.T) {
	r := newRoom(t, client(t, apiServer(t)))
	old := entry{address: "10.0.0.1", pod: "old", uid: r.pod(pod{name: "old"})}
	r.slice("llama", "llama", httpPort, old)
	v := service(t, least(t, r), source.ServiceConfig{Namespace: r.name, Service: "llama"})
	v.becomes("10.0.0.1:8000")
	fresh := entry{address: "10.0.0.1", pod: "new", uid: r.pod(pod{name: "new"})}
	r.slice("llama", "llama", httpPort, going(old), fresh)
	eventually(t, "the new Pod has the address", func() error {
		set, err := v.now()
		if err != nil || len(set) != 1 || set[0].ID != string(fresh.uid) || set[0].Terminating {
			return fmt.Errorf("endpoints %+v (%w)", set, err)
		}
		return nil
	})
}

func TestAThousandEndpointsInTenSlicesAreOneSet(t *testing.T) {
	r := newRoom(t, client(t, apiServer(t)))
	for i := range 10 {
		r.slice("llama", fmt.Sprintf("llama-%d", i), httpPort, entries(100*i, 100)...)
	}
	v := service(t, least(t, r), source.ServiceConfig{Namespace: r.name, Service: "llama"})
	eventually(t, "all are there", func() error {
		set, err := v.now()
		if err == nil && len(set) != 1000 {
			err = fmt.Errorf("%d endpoints", len(set))
		}
		return err
	})
	set, _ := v.now()
	byAddress := func(a, b discovery.Endpoint) int { return cmp.Compare(a.Address, b.Address) }
	if !slices.IsSortedFunc(set, byAddress) || len(slices.CompactFunc(set, func(a, b discovery.Endpoint) bool {
		return a.Address == b.Address
	})) != 1000 {
		t.Error("they are not sorted by address, or not different ones")
	}
	if v.sets != 1 {
		t.Errorf("they came in %d sets, want one: an incomplete set takes requests from those that lack", v.sets)
	}
}

func TestPortsAreFoundByNameAndNumber(t *testing.T) {
	r := newRoom(t, client(t, apiServer(t)))
	several := []discoveryv1.EndpointPort{
		{Name: new("grpc"), Port: new(int32(8001))}, {Name: new("http"), Port: new(int32(8000))},
		{Name: new("metrics"), Port: new(int32(8002))},
		{Name: new("dns"), Port: new(int32(8000)), Protocol: new(core.ProtocolUDP)},
	}
	r.slice("llama", "llama", several, entry{address: "10.0.0.1"})
	// The Pods of a newer version serve on another port.
	several[1].Port = new(int32(9000))
	r.slice("llama", "newer", several, entry{address: "10.0.0.2"})
	c := least(t, r)
	by := func(port, metrics string) *watching {
		return service(t, c,
			source.ServiceConfig{Namespace: r.name, Service: "llama", Port: port, MetricsPort: metrics})
	}
	v := by("http", "metrics")
	v.becomes("10.0.0.1:8000", "10.0.0.2:9000")
	if e := v.one("10.0.0.2:9000"); e.MetricsPort != 8002 {
		t.Errorf("the metrics port is %d, want 8002", e.MetricsPort)
	}
	v = by("8001", "7777")
	v.becomes("10.0.0.1:8001", "10.0.0.2:8001")
	if e := v.one("10.0.0.2:8001"); e.MetricsPort != 7777 {
		t.Errorf("the metrics port is %d, want 7777", e.MetricsPort)
	}
	by("", "").faulty("it has the ports grpc 8001, http 8000, metrics 8002",
		"write the one to use as the value of port")
	by("80", "").faulty("it has no port 80", "http 8000")
	by("http", "prom").faulty("it has no metrics_port prom")
	// A slice that fits is used, and the other one is reported.
	v = by("9000", "")
	v.faulty("EndpointSlice llama", "it has no port 9000")
	v.has("10.0.0.2:9000")
}

// TestOnePodIsOneEndpointInDualStack: of the family that is chosen.
func TestOnePodIsOneEndpointInDualStack(t *testing.T) {
	r := newRoom(t, client(t, apiServer(t)))
	both := entry{pod: "both", uid: r.pod(pod{name: "both"})}
	six := entry{address: "2001:db8::2", pod: "six", uid: r.pod(pod{name: "six"})}
	four, alsoSix := both, both
	four.address, alsoSix.address = "10.0.0.1", "2001:db8::1"
	r.slice("llama", "four", httpPort, four)
	r.sliceOf(discoveryv1.AddressTypeIPv6, "llama", "six", httpPort, alsoSix, six)
	c := least(t, r)
	by := func(family string) *watching {
		return service(t, c, source.ServiceConfig{Namespace: r.name, Service: "llama", Family: family})
	}
	by("").becomes("10.0.0.1:8000", "[2001:db8::2]:8000")
	by("IPv6").becomes("[2001:db8::1]:8000", "[2001:db8::2]:8000")
	v := by("IPv4")
	v.faulty("[2001:db8::2]:8000 (EndpointSlice six, Pod six): it has no IPv4 address")
	v.has("10.0.0.1:8000")
}

// TestServicesOfTwoNamespacesBySelectorAndByName: the account is of a third namespace.
func TestServicesOfTwoNamespacesBySelectorAndByName(t *testing.T) {
	admin := client(t, apiServer(t))
	home, left, right := newRoom(t, admin), newRoom(t, admin), newRoom(t, admin)
	home.account()
	left.grant(home.name, readSlices, readPods)
	right.grant(home.name, readSlices, readPods)
	left.slice("llama", "llama", httpPort, entry{address: "10.0.0.1"})
	right.slice("llama", "llama", httpPort, entry{address: "10.0.0.2"})
	right.slice("mixtral", "mixtral", httpPort, entry{address: "10.0.0.3"})
	c := connect(t, apiServer(t), "", home.tokenFile(apiServer(t)))
	service(t, c, source.ServiceConfig{Namespace: left.name, Service: "llama"}).becomes("10.0.0.1:8000")
	service(t, c, source.ServiceConfig{Namespace: right.name, Selector: "app in (llama, mixtral)"}).
		becomes("10.0.0.2:8000", "10.0.0.3:8000")
}

func TestBadHintsOfPodsAreNamedAndTheEndpointStays(t *testing.T) {
	r := newRoom(t, client(t, apiServer(t)))
	uid := r.pod(pod{name: "a", annotations: map[string]string{
		"steelyard.dev/capacity": "many", "steelyard.dev/engine": "vlm"}})
	r.slice("llama", "llama", httpPort, entry{address: "10.0.0.1", pod: "a", uid: uid})
	v := service(t, least(t, r), source.ServiceConfig{Namespace: r.name, Service: "llama"})
	v.faulty(`10.0.0.1 (steelyard.dev/capacity of Pod a): it is "many": write a number of slots`,
		`10.0.0.1 (steelyard.dev/engine of Pod a): it is "vlm": write one of vllm`)
	v.has("10.0.0.1:8000")
}
