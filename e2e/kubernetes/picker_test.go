package kubernetes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/template"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"steelyard/e2e/rig/certs"
	"steelyard/e2e/rig/kube"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
)

// gatewayConfig is an Envoy that asks an endpoint picker, with the body mode that the protocol asks for, over TLS
// without a look at the certificate, as pickers sign their own. What the picker does not name goes by turns; or, as
// Envoy AI Gateway 1.1 configures it, to the one address in the header and nowhere else.
var gatewayConfig = template.Must(template.New("gateway").Parse(`
node: {id: gateway, cluster: gateway}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
static_resources:
  listeners:
  - name: ingress
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: gateway
          http_filters:
          - name: picker
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
              grpc_service: {envoy_grpc: {cluster_name: picker}}
              processing_mode:
                request_header_mode: SEND
                request_body_mode: FULL_DUPLEX_STREAMED
                request_trailer_mode: SEND
                response_header_mode: SEND
                response_body_mode: FULL_DUPLEX_STREAMED
                response_trailer_mode: SEND
              failure_mode_allow: {{.FailOpen}}
              message_timeout: 10s
              metadata_options: {receiving_namespaces: {untyped: [envoy.lb]}}
          - name: router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: pool, timeout: 0s}}]}
  clusters:
  - name: pool
{{- if .Single}}
    type: ORIGINAL_DST
    lb_policy: CLUSTER_PROVIDED
    original_dst_lb_config: {use_http_header: true, http_header_name: x-gateway-destination-endpoint}
{{- else}}
    type: STATIC
    load_assignment:
      cluster_name: pool
      endpoints:
      - lb_endpoints:
{{- range .Endpoints}}
        - endpoint: {address: {socket_address: {address: {{.Host}}, port_value: {{.Port}}}}}
{{- end}}
    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: override_host
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost
            override_host_sources: [{metadata: {key: envoy.lb, path: [{key: x-gateway-destination-endpoint}]}}]
            fallback_policy:
              policies:
              - typed_extension_config:
                  name: round_robin
                  typed_config:
                    "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin
{{- end}}
  - name: picker
    type: STATIC
    load_assignment:
      cluster_name: picker
      endpoints:
      - lb_endpoints:
{{- range .Pickers}}
        - endpoint: {address: {socket_address: {address: {{.Host}}, port_value: {{.Port}}}}}
{{- end}}
    transport_socket:
      name: tls
      typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
`))

type hostPort struct {
	Host string
	Port int64
}

// gateway returns the configuration that a gateway makes of an InferencePool in the API: its endpoints are the Pods
// that it selects, its pickers those of the Service that it names. A single one reads one address of a picker.
func (r room) gateway(s *kube.Server, name string, single bool) []byte {
	r.t.Helper()
	d, err := s.Dynamic()
	r.must(err)
	p, err := d.Resource(inferencePools).Namespace(r.name).Get(r.t.Context(), name, meta.GetOptions{})
	r.must(err)
	var g struct {
		Single, FailOpen   bool
		Endpoints, Pickers []hostPort
	}
	g.Single = single
	selected, _, err := unstructured.NestedStringMap(p.Object, "spec", "selector", "matchLabels")
	r.must(err)
	targets, _, err := unstructured.NestedSlice(p.Object, "spec", "targetPorts")
	r.must(err)
	for _, t := range targets {
		g.Endpoints = append(g.Endpoints, r.podsAt(selected, t.(map[string]any)["number"].(int64))...)
	}
	reference, _, err := unstructured.NestedMap(p.Object, "spec", "endpointPickerRef")
	r.must(err)
	g.FailOpen = reference["failureMode"] == "FailOpen"
	service, err := r.client.CoreV1().Services(r.name).Get(r.t.Context(), reference["name"].(string), meta.GetOptions{})
	r.must(err)
	for _, port := range service.Spec.Ports {
		if int64(port.Port) == reference["port"].(map[string]any)["number"].(int64) {
			g.Pickers = append(g.Pickers, r.podsAt(service.Spec.Selector, int64(port.TargetPort.IntVal))...)
		}
	}
	var text bytes.Buffer
	r.must(gatewayConfig.Execute(&text, g))
	return text.Bytes()
}

// podsAt are the addresses of the Pods with these labels, at a port.
func (r room) podsAt(selected map[string]string, port int64) (all []hostPort) {
	r.t.Helper()
	pods, err := r.client.CoreV1().Pods(r.name).List(r.t.Context(),
		meta.ListOptions{LabelSelector: labels.SelectorFromSet(selected).String()})
	r.must(err)
	for _, p := range pods.Items {
		all = append(all, hostPort{p.Status.PodIP, port})
	}
	return all
}

// pickerService writes a Service of the Pods "picker", as the one that pools name.
func (r room) pickerService(target int) {
	r.t.Helper()
	_, err := r.client.CoreV1().Services(r.name).Create(r.t.Context(), &core.Service{
		ObjectMeta: meta.ObjectMeta{Name: "picker"},
		Spec: core.ServiceSpec{Selector: map[string]string{"app": "picker"},
			Ports: []core.ServicePort{{Port: pickerPort, TargetPort: intstr.FromInt(target)}}},
	}, meta.CreateOptions{})
	r.must(err)
}

// TestAnInferencePoolNamesThePickerOfItsGateway, from the objects in the API to requests. Steelyard follows the pool,
// and the picker Steelyard. The test reads the pool as the controller of a gateway does, and writes the Envoy's
// configuration: what a gateway's own controller writes, and the HTTPRoute that leads to a pool, would need that
// gateway in a cluster.
func TestAnInferencePoolNamesThePickerOfItsGateway(t *testing.T) {
	t.Run("which reads a list", func(t *testing.T) { followsThePicker(t, false) })
	t.Run("which reads one address", func(t *testing.T) { followsThePicker(t, true, "--single") })
}

func followsThePicker(t *testing.T, single bool, args ...string) {
	t.Helper()
	s := apiServer(t)
	installPools(t, s)
	r := newRoom(t, client(t, s))
	r.account()
	r.grant(r.name, readPools, readPods)
	servers, port := sameport(t, modelsim.Options{Slots: 64}, "127.0.0.2", "127.0.0.3", "127.0.0.4")
	llama := map[string]string{"app": "llama"}
	for i, name := range []string{"a", "b", "c"} {
		host, _, _ := net.SplitHostPort(servers[i].Address())
		r.pod(pod{name: name, ips: []string{host}, labels: llama,
			annotations: map[string]string{"steelyard.dev/capacity": "64"}})
	}
	r.pool(s, "llama", llama, int64(port))
	p := r.serve(fmt.Sprintf("endpoints: {inferencePool: {name: llama, namespace: %s}}", r.name))
	ready := p.startPicker(r, "127.0.0.5", args...)
	eventually(t, "the picker has loads", ready)
	p.envoy = proctest.Envoy(t, proc.EnvoyConfig{Bootstrap: r.gateway(s, "llama", single), Dir: p.dir, Name: "gateway"})
	listener, err := p.envoy.Listener(t.Context(), "ingress")
	r.must(err)
	p.url = "http://" + listener + "/"

	const each = 10
	flood(t, servers[0], 200)
	flood(t, servers[1], 200)
	eventually(t, "all requests go to the one server that is idle", func() error {
		before := servers[2].Served()
		for range each {
			if code, text := p.ask(t); code != http.StatusOK { // one that went to a busy server has no answer
				return fmt.Errorf("status %d: %s", code, text)
			}
		}
		if got := servers[2].Served() - before; got != each {
			return fmt.Errorf("%d of %d went there", got, each)
		}
		return nil
	})
	for _, name := range []string{"a", "b", "c"} {
		r.remove(name)
	}
	eventually(t, "the picker refuses requests, as the pool has no endpoint", func() error {
		code, text := p.ask(t)
		if code != http.StatusServiceUnavailable || !strings.Contains(text, "steelyard picker") {
			return fmt.Errorf("status %d: %s", code, text)
		}
		return nil
	})
}

// startPicker runs steelyard picker as the Pod of the picker's Service, as docs/picker.md says for gateways. What the
// function that it returns returns is nil when the picker has loads.
func (p *product) startPicker(r room, host string, args ...string) (ready func() error) {
	p.t.Helper()
	free, err := proc.FreeAddresses(2)
	r.must(err)
	_, port, _ := net.SplitHostPort(free[0])
	cert, key := filepath.Join(p.dir, "picker.crt"), filepath.Join(p.dir, "picker.key")
	r.must(certs.New("picker", nil).Save(cert, key))
	binary, err := proc.BuildSteelyard()
	r.must(err)
	proctest.Start(p.t, proc.Spec{Name: "picker", Path: binary, Dir: p.dir, Args: append([]string{"picker",
		"--cluster", "llama", "--steelyard", p.xds, "--listen", net.JoinHostPort(host, port), "--admin", free[1],
		"--strict", "--tls-cert-file", cert, "--tls-key-file", key}, args...)})
	r.pod(pod{name: "picker", ips: []string{host}, labels: map[string]string{"app": "picker"}})
	number, err := strconv.Atoi(port)
	r.must(err)
	r.pickerService(number)
	return func() error { return proc.AnswersHTTP("http://" + free[1] + "/readyz")(context.Background()) }
}

// ask sends a prompt to the Envoy, and returns the answer; its code is 0 if there is none within a second.
func (p *product) ask(t *testing.T) (code int, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(modelsim.HeaderService, "0.001")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// flood keeps so many requests in progress at a server, until the test ends.
func flood(t *testing.T, s *modelsim.Server, n int) {
	t.Helper()
	var open sync.WaitGroup
	for range n {
		open.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Address()+"/", nil)
			if err != nil {
				return
			}
			req.Header.Set(modelsim.HeaderService, "600")
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
		})
	}
	t.Cleanup(open.Wait) // the test's context has ended by then
	eventually(t, "the server has them", func() error {
		if got := s.InFlight(); got < n {
			return fmt.Errorf("%d", got)
		}
		return nil
	})
}
