package kubernetes

import (
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAPodServesThePortsOfItsPoolThatItLists(t *testing.T) {
	const older, newer = "inference.networking.k8s.io/active-ports", "llm-d.ai/active-ports"
	for _, c := range []struct {
		name        string
		annotations map[string]string
		want        bool // it serves 8007
	}{
		{"no list", nil, true},
		{"listed", map[string]string{older: "8007,8009"}, true},
		{"listed with spaces", map[string]string{newer: " 8009 , 8007 "}, true},
		{"others are listed", map[string]string{newer: "8008"}, false},
		{"the newer list counts", map[string]string{newer: "8008", older: "8007"}, false},
		{"an empty list", map[string]string{newer: ""}, false},
		{"no number", map[string]string{newer: "http"}, false},
	} {
		pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Annotations: c.annotations}}
		slimPod(pod)
		if got := active(pod, 8007); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
