package kubernetes

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"steelyard/controlplane/discovery"
)

// TestEndpointsOfWhichNoneCanBeUsedReplaceNothing: nil keeps those known, an empty set takes them
// from all Envoys.
func TestEndpointsOfWhichNoneCanBeUsedReplaceNothing(t *testing.T) {
	port := func(name string, number int32) discoveryv1.EndpointPort {
		return discoveryv1.EndpointPort{Name: &name, Port: &number}
	}
	ports := func(all ...discoveryv1.EndpointPort) []discoveryv1.EndpointPort { return all }
	at := func(address string) []discoveryv1.Endpoint {
		return []discoveryv1.Endpoint{{Addresses: []string{address}}}
	}
	ready := at("10.0.0.1")
	starting := []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"},
		Conditions: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false)}}}
	for name, c := range map[string]struct {
		config    ServiceConfig
		ports     []discoveryv1.EndpointPort
		endpoints []discoveryv1.Endpoint
		family    discoveryv1.AddressType
		fault     string
		replaces  bool
	}{
		"a port was added": {ports: ports(port("http", 8000), port("metrics", 9000)), endpoints: ready,
			fault: "it has the ports http 8000, metrics 9000"},
		"the port was renamed": {config: ServiceConfig{Port: "http"}, ports: ports(port("api", 8000)),
			endpoints: ready, fault: "it has no port http"},
		"the metrics port is missing": {config: ServiceConfig{Port: "http", MetricsPort: "prom"},
			ports: ports(port("http", 8000)), endpoints: ready, fault: "it has no metrics_port prom"},
		"no ports": {endpoints: ready, fault: "it has no TCP port"},
		"none of the family": {config: ServiceConfig{Family: IPv6}, ports: ports(port("http", 8000)),
			endpoints: ready, fault: "it has no IPv6 address, which ip_family asks for"},
		"names instead of addresses": {ports: ports(port("http", 8000)), endpoints: at("a.example.com"),
			family: discoveryv1.AddressTypeFQDN, fault: "addresses of type FQDN"},
		"an address that Envoy refuses": {ports: ports(port("http", 8000)), endpoints: at("0.0.0.0"),
			fault: "0.0.0.0"},

		"no endpoints":    {fault: "", replaces: true},
		"none that is up": {endpoints: starting, fault: "it has no TCP port", replaces: true},
		"none of the family that is up": {config: ServiceConfig{Family: IPv6}, ports: ports(port("http", 8000)),
			endpoints: starting, replaces: true},
	} {
		if c.family == "" {
			c.family = discoveryv1.AddressTypeIPv4
		}
		found := cache.NewStore(cache.MetaNamespaceKeyFunc)
		if err := found.Add(&discoveryv1.EndpointSlice{ObjectMeta: meta.ObjectMeta{Name: "llama"},
			AddressType: c.family, Ports: c.ports, Endpoints: c.endpoints}); err != nil {
			t.Fatal(err)
		}
		c.config.Service = "llama"
		s := &serviceSource{c.config, source{}}
		set, err := s.endpoints(found, cache.NewStore(cache.MetaNamespaceKeyFunc), nil)
		if len(set) != 0 || (set != nil) != c.replaces {
			t.Errorf("%s: the set is %#v, want an empty one: %v, or else nil", name, set, c.replaces)
		}
		if (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: it says %v, want %q", name, err, c.fault)
		}
	}
}

// TestAServiceWithoutPortsIsOneByItself: what another Service has that the selector takes in says nothing of it.
func TestAServiceWithoutPortsIsOneByItself(t *testing.T) {
	found := cache.NewStore(cache.MetaNamespaceKeyFunc)
	for name, c := range map[string]struct {
		service, address string
		ports            []discoveryv1.EndpointPort
	}{
		"a-1": {"a", "10.0.0.1", nil}, "a-2": {"a", "10.0.0.2", nil},
		"b-1": {"b", "10.0.0.3", []discoveryv1.EndpointPort{{Port: new(int32(8000))}}}, "b-2": {"b", "10.0.0.4", nil},
		"c": {"", "10.0.0.5", nil},
	} {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: meta.ObjectMeta{Name: name}, Ports: c.ports,
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{c.address}}}}
		if c.service != "" {
			slice.Labels = map[string]string{discoveryv1.LabelServiceName: c.service}
		}
		if err := found.Add(slice); err != nil {
			t.Fatal(err)
		}
	}
	s := &serviceSource{ServiceConfig{Selector: "app in (a, b)", Port: "8000"}, source{}}
	set, err := s.endpoints(found, cache.NewStore(cache.MetaNamespaceKeyFunc), nil)
	var got []string
	for _, e := range set {
		got = append(got, e.Address)
	}
	if want := []string{"10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.5:8000"}; !slices.Equal(got, want) {
		t.Errorf("endpoints %v, want %v", got, want)
	}
	omitted, _ := err.(*discovery.Omissions) //nolint:errorlint // it is this one, which is no failure
	if omitted == nil || omitted.Count != 1 || omitted.First[0].Address != "10.0.0.4" {
		t.Errorf("left out: %v, want 10.0.0.4", err)
	}
}

// TestARefusalOfTheRequestItselfIsReported: as a proxy in between sends it, or an API server that speaks TLS.
func TestARefusalOfTheRequestItselfIsReported(t *testing.T) {
	var refusing atomic.Bool
	refusing.Store(true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case refusing.Load():
			http.Error(w, "Client sent an HTTP request to an HTTPS server.", http.StatusBadRequest)
		case r.URL.Query().Get("watch") != "":
			<-r.Context().Done()
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"metadata": {"resourceVersion": "1"}, "items": []}`)
		}
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Appendf(nil, "current-context: a\ncontexts: [{name: a, context: {cluster: a}}]\n"+
		"clusters: [{name: a, cluster: {server: %q}}]\n", server.URL)
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{Kubeconfig: kubeconfig, Requested: func(string, string, string) {},
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	faults, sets := make(chan error, 100), make(chan []discovery.Endpoint, 100)
	s := c.Service(ServiceConfig{Service: "llama", Namespace: "models"}, func(err error) { faults <- err },
		slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, sets) }()
	defer func() {
		stop()
		<-done
		c.dialer.CloseAll()
	}()
	if err := <-faults; err == nil || !strings.Contains(err.Error(), "cannot list endpointslices") {
		t.Errorf("it says %v", err)
	}
	refusing.Store(false)
	if set := <-sets; len(set) != 0 {
		t.Errorf("endpoints %v of an API that has none", set)
	}
}
