package kubernetes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"steelyard/internal/loops"
)

func TestWhatIsKnownOfAPool(t *testing.T) {
	for _, c := range []struct {
		spec   map[string]any
		picker bool
		speaks string
	}{
		{map[string]any{}, false, ""},
		{map[string]any{"endpointPickerRef": nil}, false, ""},
		{map[string]any{"appProtocol": "http", "endpointPickerRef": map[string]any{}}, true, "http"},
		{map[string]any{"appProtocol": "kubernetes.io/h2c"}, false, "kubernetes.io/h2c"},
	} {
		p := foundPool(&unstructured.Unstructured{Object: map[string]any{"spec": c.spec, "metadata": map[string]any{
			"namespace": "models", "name": "llama", "creationTimestamp": "2026-11-30T08:00:00Z"}}})
		if p.Namespace != "models" || p.Name != "llama" || p.Picker != c.picker || p.AppProtocol != c.speaks ||
			p.Created.Hour() != 8 {
			t.Errorf("of %v it is %+v", c.spec, p)
		}
	}
}

func TestChangesThatNeverEndAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		changed, looks := loops.NewSignal(), 0
		go loops.Every(ctx, settle/2, func(time.Time) { changed.Set() })
		whenSettled(ctx, changed, func() { looks++ })
		if looks < 40 || looks > 100 {
			t.Errorf("in a second of changes there were %d looks", looks)
		}
	})
}
