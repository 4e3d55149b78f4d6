package daemon

import (
	"testing"

	"steelyard/controlplane/discovery/kubernetes"
)

func TestAPlainPoolHasNoPickerAndAProtocolThatIsServed(t *testing.T) {
	d := &Daemon{pools: pools{found: map[string][]kubernetes.FoundPool{"models": {
		{Namespace: "models", Name: "llama"},
		{Namespace: "models", Name: "http", AppProtocol: "http"},
		{Namespace: "models", Name: "h2c", AppProtocol: "kubernetes.io/h2c"},
		{Namespace: "models", Name: "picked", Picker: true},
	}}}}
	for pool, want := range map[string]bool{"llama": true, "http": true, "h2c": false, "picked": false, "gone": false} {
		if got := d.plainPool("models", pool); got != want {
			t.Errorf("%s: %v, want %v", pool, got, want)
		}
	}
}
