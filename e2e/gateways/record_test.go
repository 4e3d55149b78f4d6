package gateways

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	pairs "steelyard/e2e/rig/certs"
	"steelyard/e2e/rig/golden"
	"steelyard/e2e/rig/hooks"
	"steelyard/internal/extension"
)

// recordings has what Envoy Gateway asks, for the tests of package gateway.
const recordings = "../../cmd/internal/gateway/testdata/recorded/"

// recorded are routes to the Service "service" and to pools, each as the only one of the Gateway.
var recorded = []struct {
	name      string
	listener  string
	about     string // what its metadata has besides the name
	rule      string // what its rule has besides the match
	questions int    // how often Envoy Gateway asks about a pool
}{
	{"pool", http80, "", backends(ofPool("llama", 1)), 1},
	{"pools", http80, "", backends(ofPool("llama", 9), ofPool("next", 1)), 2},
	{"service-and-pool", http80, "", backends(ofService("service", 3), ofPool("llama", 1)), 1},
	{"filtered-service-and-pool", http80, "", backends(filtered(ofService("service", 3)), ofPool("llama", 1)), 2},
	{"module", http80, ", annotations: {gateway.envoyproxy.io/steelyard-module: 'true'}",
		backends(ofPool("llama", 1)), 1},
	{"picker", http80, "", backends(ofPool("picked", 1)), 1},
	{"timeout-and-retries", http80, "", backends(ofPool("llama", 1)) +
		", timeouts: {request: 7s}, retry: {attempts: 2, codes: [503]}", 1},
	{"https", https443, "", backends(ofPool("llama", 1)), 1},
}

// Listeners of the Gateway.
const (
	http80   = "{name: http, port: 80, protocol: HTTP}"
	https443 = "{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: certificate}]}}"
)

func ofPool(name string, weight int) string { return envoyGateway{}.pool(name, weight) }

func backends(all ...string) string { return "backendRefs: [" + strings.Join(all, ", ") + "]" }

// filtered gives a backend a filter, and thereby a cluster of its own.
func filtered(backend string) string {
	return strings.TrimSuffix(backend, "}") + ", filters: [{type: RequestHeaderModifier, requestHeaderModifier: " +
		"{set: [{name: old, value: 'yes'}]}}]}"
}

// TestTheRecordedHooksAreThoseOfEnvoyGateway records them with -update.
func TestTheRecordedHooksAreThoseOfEnvoyGateway(t *testing.T) {
	r := newRig(t, envoyGateway{})
	r.must(r.control.Kill())
	asked := record(r)
	r.service("service", servers[4])
	r.pool("llama")
	r.pool("next")
	pair := pairs.New("models.example.com", nil)
	r.apply(ofRecordings, base64.StdEncoding.EncodeToString(pair.CertPEM()),
		base64.StdEncoding.EncodeToString(pair.KeyPEM()))
	for _, c := range recorded {
		r.apply(recordedRoute, c.name, c.listener, c.about, c.rule)
		r.eventually("Envoy Gateway asks about the route "+c.name, func() error {
			return asked.about(c.name, c.listener, c.questions)
		})
		text, err := hooks.Write(asked.last())
		r.must(err)
		golden.Check(t, recordings+c.name+".yaml", string(text))
		r.removeRoute(c.name)
	}
}

// ofRecordings are a pool with a picker, a certificate, and what takes Envoy Gateway's access logs out of the files.
const ofRecordings = `
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: picked, namespace: models}
spec:
  selector: {matchLabels: {app: llama}}
  targetPorts: [{number: 8000}]
  endpointPickerRef: {name: epp, port: {number: 9002}}
---
apiVersion: v1
kind: Secret
metadata: {name: certificate, namespace: models}
type: kubernetes.io/tls
data: {tls.crt: %s, tls.key: %s}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyProxy
metadata: {name: quiet, namespace: models}
spec: {telemetry: {accessLog: {disable: true}}}
`

// recordedRoute are a Gateway with one listener and its route.
const recordedRoute = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: eg, namespace: models}
spec:
  gatewayClassName: eg
  infrastructure: {parametersRef: {group: gateway.envoyproxy.io, kind: EnvoyProxy, name: quiet}}
  listeners: [%[2]s]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: "%[1]s", namespace: models%[3]s}
spec: {parentRefs: [{name: eg}], rules: [{matches: [{path: {type: PathPrefix, value: /llama}}], %[4]s}]}
`

// A recorder is an extension server that changes nothing.
type recorder struct {
	extension.UnimplementedEnvoyGatewayExtensionServer

	mu      sync.Mutex
	pending []proto.Message // of the translation that goes on
	whole   []proto.Message // of the one before
}

// record answers Envoy Gateway in the place of Steelyard.
func record(r *rig) *recorder {
	r.t.Helper()
	l, err := net.Listen("tcp", r.fleet.replicas[0].ip+":"+hooksPort)
	r.must(err)
	recorder, server := &recorder{}, grpc.NewServer()
	extension.RegisterEnvoyGatewayExtensionServer(server, recorder)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	r.t.Cleanup(func() { server.Stop(); served.Wait() })
	return recorder
}

func (r *recorder) PostClusterModify(_ context.Context, in *extension.PostClusterModifyRequest) (
	*extension.PostClusterModifyResponse, error) {
	for _, pool := range in.GetPostClusterContext().GetBackendExtensionResources() {
		if err := shorten(pool); err != nil {
			return nil, err
		}
	}
	r.add(in)
	return &extension.PostClusterModifyResponse{Cluster: in.Cluster}, nil
}

func (r *recorder) PostTranslateModify(_ context.Context, in *extension.PostTranslateModifyRequest) (
	*extension.PostTranslateModifyResponse, error) {
	r.add(in)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole, r.pending = r.pending, nil
	return &extension.PostTranslateModifyResponse{Clusters: in.Clusters, Secrets: in.Secrets, Listeners: in.Listeners,
		Routes: in.Routes}, nil
}

func (r *recorder) add(in proto.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending = append(r.pending, in)
}

// shorten takes out of a pool what the API server has added.
func shorten(r *extension.ExtensionResource) (err error) {
	var pool map[string]any
	if err := json.Unmarshal(r.UnstructuredBytes, &pool); err != nil {
		return err
	}
	name, _, _ := unstructured.NestedString(pool, "metadata", "name")
	pool["metadata"] = map[string]any{"name": name, "namespace": "models"}
	delete(pool, "status")
	r.UnstructuredBytes, err = json.Marshal(pool)
	return err
}

// last are the messages of the last translation.
func (r *recorder) last() []proto.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.whole
}

// about reports whether the last translation was of such a route and listener only, with so many pools.
func (r *recorder) about(route, listener string, pools int) error {
	text, err := hooks.Write(r.last())
	if err != nil {
		return err
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(listener, "{name: "), ",")
	for want, times := range map[string]int{`"kind":"InferencePool"`: pools, "FileAccessLog": 0,
		"\n- ignorePortInHostMatching: true\n  name: models/eg/" + name + "\n": 1,
		"\n      name: httproute/models/" + route + "/rule/0/match/0/*\n":      1} {
		if got := bytes.Count(text, []byte(want)); got != times {
			return fmt.Errorf("its questions have %q %d times, want %d", want, got, times)
		}
	}
	return nil
}
