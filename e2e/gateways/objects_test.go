package gateways

import (
	"encoding/json"
	"fmt"
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

// place returns the namespace and the name of an object, where that is written as in "team/llama" or, in the namespace
// models, "llama".
func place(name string) (namespace, object string) {
	if namespace, object, ok := strings.Cut(name, "/"); ok {
		return namespace, object
	}
	return "models", name
}

// clusterOf is the name of a pool's cluster.
func clusterOf(pool string) string {
	namespace, name := place(pool)
	return namespace + "." + name
}

// serviceName is the DNS name of the Service of a pool's Pods.
func serviceName(pool string) string {
	namespace, name := place(pool)
	return name + "." + namespace + ".svc.cluster.local"
}

func (r *rig) remove(version, kind, name string) {
	r.t.Helper()
	namespace, name := place(name)
	o := unstructured.Unstructured{}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	api, err := r.client(o)
	r.must(err)
	zero := int64(0)
	r.must(api.Delete(r.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero}))
}

// podOf is a Pod of an app: the app, the end of its name, its address, another label, its namespace.
const podOf = `
apiVersion: v1
kind: Pod
metadata: {name: "%[1]s-%[2]s", namespace: "%[5]s", labels: {app: "%[1]s", %[4]s}}
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
	namespace, name := place(app)
	for _, ip := range ips {
		r.apply(podOf, name, dashed(ip), ip, "", namespace)
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

// serviceOf is a Service with endpoints: its name, its port, theirs, they, and its namespace.
const serviceOf = `
apiVersion: v1
kind: Service
metadata: {name: "%[1]s", namespace: "%[5]s"}
spec: {ports: [{name: http, port: %[2]d, targetPort: %[3]s}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: "%[1]s", namespace: "%[5]s", labels: {kubernetes.io/service-name: "%[1]s"}}
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
	namespace, name := place(name)
	r.apply(serviceOf, name, 8000, "8000", endpointsOf(ips), namespace)
}

// have are the servers of a pool at Steelyard.
func (r *rig) have(pool string) (ips []string, err error) {
	resp, err := asker.Get("http://" + adminAddress + "/api/v1/clusters/" + clusterOf(pool))
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
	namespace, name := place(name)
	r.apply(`
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: "%[1]s", namespace: "%[2]s"}
spec: {selector: {matchLabels: {app: "%[1]s"}}, targetPorts: [{number: 8000}]}
`, name, namespace)
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

func (h httpRoute) route(r *rig, name, backends string) {
	r.t.Helper()
	h.rules(r, name, fmt.Sprintf("{matches: [{path: {type: PathPrefix, value: /%s}}], backendRefs: [%s]}", name,
		backends))
}

// rules writes a route with these rules.
func (httpRoute) rules(r *rig, name string, rules ...string) {
	r.t.Helper()
	namespace, name := place(name)
	r.apply(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: "%s", namespace: "%s"}
spec: {parentRefs: [{name: eg, namespace: models}], rules: [%s]}
`, name, namespace, strings.Join(rules, ", "))
}

// listeners writes the Gateway of a class, with these listeners besides that at gatewayAddress.
func (r *rig) listeners(class string, more ...string) {
	r.t.Helper()
	all := slices.Concat([]string{"{name: http, port: 8888, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}"},
		more)
	r.apply(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: eg, namespace: models}
spec: {gatewayClassName: "%s", listeners: [%s]}
`, class, strings.Join(all, ", "))
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
	namespace, name := place(name)
	return fmt.Sprintf("{name: %s, namespace: %s, port: 8000, weight: %d}", name, namespace, weight)
}
