package kubernetes

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestWhatIsKnownOfAPool(t *testing.T) {
	for want, spec := range map[FoundPool]map[string]any{
		{"models", "llama", false, ""}:                  {},
		{"models", "llama", true, "http"}:               {"appProtocol": "http", "endpointPickerRef": map[string]any{}},
		{"models", "llama", false, "kubernetes.io/h2c"}: {"appProtocol": "kubernetes.io/h2c"},
	} {
		got := foundPool(&unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"namespace": "models", "name": "llama"}, "spec": spec}})
		if got != want {
			t.Errorf("of %v it is %+v, want %+v", spec, got, want)
		}
	}
}
