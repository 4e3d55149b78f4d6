package gateways

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"steelyard/internal/api"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	if len(o.Object) == 0 {
		return nil
	}
	return o
}

// client returns a client for the kind of an object.
func (r *rig) client(o unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := o.GroupVersionKind()
	mapping, err := r.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return r.dynamic.Resource(mapping.Resource), nil
	}
	return r.dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace()), nil
}

// write is kubectl apply --server-side.
func (r *rig) write(o unstructured.Unstructured) error {
	api, err := r.client(o)
	if err != nil {
		return err
	}
	_, err = api.Apply(r.t.Context(), o.GetName(), &o, metav1.ApplyOptions{FieldManager: "test", Force: true})
	return err
}

// apply writes the objects of a text, with a status where they have one.
func (r *rig) apply(text string, args ...any) {
	r.t.Helper()
	for document := range strings.SplitSeq(fmt.Sprintf(text, args...), "\n---\n") {
		o := parse(r.t, document)
		if o == nil {
			continue
		}
		r.must(r.write(*o))
		if _, has := o.Object["status"]; has {
			api, err := r.client(*o)
			r.must(err)
			_, err = api.ApplyStatus(r.t.Context(), o.GetName(), o,
				metav1.ApplyOptions{FieldManager: "test", Force: true})
			r.must(err)
		}
	}
}

func (r *rig) remove(version, kind, name string) {
	r.t.Helper()
	o := unstructured.Unstructured{}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetNamespace("models")
	api, err := r.client(o)
	r.must(err)
	zero := int64(0)
	r.must(api.Delete(r.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero}))
}

// podOf is a Pod of an app: the app, the end of its name, its address, another label.
const podOf = `
apiVersion: v1
kind: Pod
metadata: {name: "%[1]s-%[2]s", namespace: models, labels: {app: "%[1]s", %[4]s}}
spec: {nodeName: node, serviceAccountName: default, containers: [{name: engine, image: engine}]}
status:
  phase: Running
  podIP: "%[3]s"
  podIPs: [{ip: "%[3]s"}]
  conditions: [{type: Ready, status: "True"}]
`

// dashed is an address in a name.
func dashed(ip string) string { return strings.ReplaceAll(ip, ".", "-") }

// pods adds Pods to an app, at these addresses, and to the Service of its name.
func (r *rig) pods(app string, ips ...string) {
	r.t.Helper()
	for _, ip := range ips {
		r.apply(podOf, app, dashed(ip), ip, "")
	}
	r.apps[app] = slices.Concat(r.apps[app], ips)
	r.service(app, r.apps[app]...)
}

func (r *rig) removePods(app string, ips ...string) {
	r.t.Helper()
	for _, ip := range ips {
		r.remove("v1", "Pod", app+"-"+dashed(ip))
	}
	r.apps[app] = slices.DeleteFunc(r.apps[app], func(ip string) bool { return slices.Contains(ips, ip) })
	r.service(app, r.apps[app]...)
}

// serviceOf is a Service with endpoints: its name, its port, theirs, and they.
const serviceOf = `
apiVersion: v1
kind: Service
metadata: {name: "%[1]s", namespace: models}
spec: {ports: [{name: http, port: %[2]d, targetPort: %[3]s}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: "%[1]s", namespace: models, labels: {kubernetes.io/service-name: "%[1]s"}}
addressType: IPv4
ports: [{name: http, port: %[3]s, protocol: TCP}]
endpoints: [%[4]s]
`

// endpointsOf writes addresses as an EndpointSlice has them.
func endpointsOf(ips []string) string {
	var endpoints []string
	for _, ip := range ips {
		endpoints = append(endpoints, fmt.Sprintf("{addresses: [%q], conditions: {ready: true}}", ip))
	}
	return strings.Join(endpoints, ", ")
}

// service writes a Service with endpoints at these addresses.
func (r *rig) service(name string, ips ...string) {
	r.t.Helper()
	r.apply(serviceOf, name, 8000, "8000", endpointsOf(ips))
}

// have are the servers of a pool at Steelyard.
func (r *rig) have(pool string) (ips []string, err error) {
	resp, err := http.Get("http://" + adminAddress + "/api/v1/clusters/models." + pool)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var c api.Cluster
	if err := json.NewDecoder(resp.Body).Decode(&c); err != nil {
		return nil, err
	}
	for _, e := range c.Endpoints {
		ip, _, _ := strings.Cut(e.Address, ":")
		ips = append(ips, ip)
	}
	return ips, nil
}

// members reports whether a pool has these servers, and no others; member, whether it has one.
func (r *rig) members(pool string, ips ...string) error {
	have, err := r.have(pool)
	if err == nil && !slices.Equal(have, ips) {
		err = fmt.Errorf("it has %v, want %v", have, ips)
	}
	return err
}

func (r *rig) member(pool, ip string) error {
	have, err := r.have(pool)
	if err == nil && !slices.Contains(have, ip) {
		err = fmt.Errorf("it has %v", have)
	}
	return err
}

// pool writes an InferencePool without a picker.
func (r *rig) pool(name string) {
	r.t.Helper()
	r.apply(`
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: "%[1]s", namespace: models}
spec: {selector: {matchLabels: {app: "%[1]s"}}, targetPorts: [{number: 8000}]}
`, name)
}

// route writes a route.
func (r *rig) route(name string, backends ...string) {
	r.t.Helper()
	r.gateway.route(r, name, strings.Join(backends, ", "))
}

func (r *rig) removeRoute(name string) {
	r.t.Helper()
	version, kind := r.gateway.routeKind()
	r.remove(version, kind, name)
}

// An httpRoute is the route of gateways with the Gateway API.
type httpRoute struct{}

func (httpRoute) route(r *rig, name, backends string) {
	r.t.Helper()
	r.apply(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: "%[1]s", namespace: models}
spec:
  parentRefs: [{name: eg}]
  rules:
  - matches: [{path: {type: PathPrefix, value: "/%[1]s"}}]
    backendRefs: [%[2]s]
`, name, backends)
}

func (httpRoute) routeKind() (version, kind string) {
	return "gateway.networking.k8s.io/v1", "HTTPRoute"
}

func (r *rig) get(version, kind, namespace, name string) *unstructured.Unstructured {
	r.t.Helper()
	o, err := r.find(version, kind, namespace, name)
	r.must(err)
	return o
}

func (r *rig) find(version, kind, namespace, name string) (*unstructured.Unstructured, error) {
	o := unstructured.Unstructured{}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	api, err := r.client(o)
	if err != nil {
		return nil, err
	}
	return api.Get(r.t.Context(), name, metav1.GetOptions{})
}

// applyFile is kubectl apply -f, and patch kubectl patch --type merge --patch-file.
func (r *rig) applyFile(file string) {
	r.t.Helper()
	text, err := os.ReadFile(file)
	r.must(err)
	r.apply("%s", text)
}

func (r *rig) patch(kind, name, file string) {
	r.t.Helper()
	text, err := os.ReadFile(file)
	r.must(err)
	text, err = yaml.YAMLToJSON(text)
	r.must(err)
	o := unstructured.Unstructured{}
	o.SetAPIVersion("gateway.networking.k8s.io/v1")
	o.SetKind(kind)
	o.SetNamespace("models")
	api, err := r.client(o)
	r.must(err)
	_, err = api.Patch(r.t.Context(), name, types.MergePatchType, text, metav1.PatchOptions{})
	r.must(err)
}

// ofService is a backend of a rule.
func ofService(name string, weight int) string {
	return fmt.Sprintf("{name: %s, port: 8000, weight: %d}", name, weight)
}
