package manifests

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"steelyard/e2e/rig/kube"
	"steelyard/e2e/rig/proc/proctest"
)

// limit bounds the wait for a condition.
const limit = 60 * time.Second

// A cluster is a real API server, and a client that may do everything and keeps the server's warnings.
type cluster struct {
	server  *kube.Server
	dynamic dynamic.Interface
	mapper  meta.ResettableRESTMapper

	mu       sync.Mutex
	warnings []string
}

// HandleWarningHeaderWithContext is called with each warning of the API server.
func (c *cluster) HandleWarningHeaderWithContext(_ context.Context, code int, _, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warnings = append(c.warnings, fmt.Sprintf("%d %s", code, text))
}

// startCluster runs an API server that serves the definitions of others as well.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	server, err := kube.Start(t.Context(), kube.Options{Dir: proctest.Dir(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{server: server}
	options := rest.CopyConfig(server.Admin())
	options.WarningHandlerWithContext = c
	if c.dynamic, err = dynamic.NewForConfig(options); err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(options)
	if err != nil {
		t.Fatal(err)
	}
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))

	defined := definitions(t)
	for _, d := range defined {
		c.mustApply(t, d)
	}
	resource := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	for _, d := range defined {
		eventually(t, d.GetName()+" is served", func() error {
			got, err := c.dynamic.Resource(resource).Get(t.Context(), d.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			return established(got)
		})
	}
	c.mapper.Reset()
	c.warnings = nil // definitions of others may have some
	return c
}

// apply is kubectl apply --server-side. An unknown key is an error.
func (c *cluster) apply(ctx context.Context, o object, dryRun bool) error {
	kind := o.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	var to dynamic.ResourceInterface = c.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		to = c.dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace())
	}
	text, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	force := true
	options := metav1.PatchOptions{FieldManager: "test", FieldValidation: metav1.FieldValidationStrict, Force: &force}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err = to.Patch(ctx, o.GetName(), "application/apply-patch+yaml", text, options)
	return err
}

func (c *cluster) mustApply(t *testing.T, o object) {
	t.Helper()
	if err := c.apply(t.Context(), o, false); err != nil {
		t.Fatalf("applying %s: %v", name(o), err)
	}
}

// eventually waits for a condition: check returns why it does not hold yet.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("not within %v: %s: %v", limit, what, err)
}

// inNamespace puts the objects of a component, which have no namespace, into one.
func inNamespace(objects []object, namespace string) []object {
	for _, o := range objects {
		if o.GetNamespace() == "" {
			o.SetNamespace(namespace)
		}
	}
	return objects
}

// TestARealAPIServerTakesEveryObject: each object of each overlay, of the chart and of the examples, by server-side
// apply and without a warning. The namespace "steelyard" is that of the base, which refuses Pods that are not
// restricted, and warns about what makes such Pods.
func TestARealAPIServerTakesEveryObject(t *testing.T) {
	c := startCluster(t)
	c.mustApply(t, find(t, build(t, "base"), "Namespace", namespace))
	models := &unstructured.Unstructured{}
	models.SetAPIVersion("v1")
	models.SetKind("Namespace")
	models.SetName("models")
	c.mustApply(t, models)

	applied := 0
	try := func(where string, objects []object) {
		for _, o := range objects {
			c.warnings = nil
			if err := c.apply(t.Context(), o, true); err != nil {
				t.Errorf("%s, %s: %v", where, name(o), err)
			}
			if len(c.warnings) > 0 {
				t.Errorf("%s, %s: the API server warns: %s", where, name(o), strings.Join(c.warnings, "; "))
			}
			applied++
		}
	}
	for _, overlay := range overlays(t) {
		try(overlay, inNamespace(build(t, overlay), "models"))
	}
	try("chart", render(t, "", monitored))
	try("chart for production", render(t, "values-production.yaml", monitored))
	try("chart for Envoy Gateway", inNamespace(render(t, "values-envoy-gateway.yaml", nil), "models"))
	try("chart for Istio", inNamespace(render(t, "values-istio.yaml", nil), "models"))
	for _, file := range examples(t) {
		try(filepath.Base(file), read(t, file))
	}
	if applied < 80 {
		t.Errorf("only %d objects were applied", applied)
	}

	// A mistake is one that this test finds.
	mistaken := find(t, build(t, "overlays/monitoring"), "ServiceMonitor", "steelyard")
	mistaken.Object["spec"].(map[string]any)["endpoint"] = "metrics"
	if err := c.apply(t.Context(), mistaken, true); err == nil {
		t.Error("a ServiceMonitor with an unknown key was accepted")
	}
	pod := find(t, build(t, "overlays/dev"), "Deployment", "steelyard-redis")
	delete(pod.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any), "securityContext")
	c.warnings = nil
	if err := errors.Join(c.apply(t.Context(), pod, true)); err != nil || len(c.warnings) == 0 {
		t.Errorf("a pod that may run as root: error %v and warnings %v, want a warning only", err, c.warnings)
	}
}
