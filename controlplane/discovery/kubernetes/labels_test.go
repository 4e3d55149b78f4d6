package kubernetes

import (
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"steelyard/controlplane/discovery"
)

func TestLabelsOfLLMDAndAIBrixDescribeAnEndpoint(t *testing.T) {
	for name, c := range map[string]struct {
		labels, annotations map[string]string
		want                discovery.Endpoint
	}{
		"none": {},
		"llm-d's": {labels: map[string]string{"llm-d.ai/role": "prefill", "llm-d.ai/engine-type": "sglang",
			"llm-d.ai/model": "qwen"}, want: discovery.Endpoint{Role: "prefill", Engine: "sglang", Model: "qwen"}},
		"llm-d's name of TensorRT-LLM": {labels: map[string]string{"llm-d.ai/engine-type": "trtllm-serve"},
			want: discovery.Endpoint{Engine: "tensorrt-llm"}},
		"and in Triton": {labels: map[string]string{"llm-d.ai/engine-type": "triton-tensorrt-llm"},
			want: discovery.Endpoint{Engine: "tensorrt-llm"}},
		"AIBrix's": {labels: map[string]string{"model.aibrix.ai/name": "deepseek", "model.aibrix.ai/engine": "vllm"},
			want: discovery.Endpoint{Engine: "vllm", Model: "deepseek"}},
		"an engine that is not known here": {labels: map[string]string{"llm-d.ai/engine-type": "turing"}},
		"an annotation of Steelyard's wins": {labels: map[string]string{"llm-d.ai/engine-type": "sglang"},
			annotations: map[string]string{"steelyard.dev/engine": "custom"},
			want:        discovery.Endpoint{Engine: "custom"}},
		"one that is wrong does not": {labels: map[string]string{"llm-d.ai/engine-type": "sglang"},
			annotations: map[string]string{"steelyard.dev/engine": "vlm"},
			want:        discovery.Endpoint{Engine: "sglang"}},
	} {
		pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Labels: c.labels, Annotations: c.annotations}}
		slimPod(pod)
		var m merger
		var got candidate
		m.hint(&got, pod.ObjectMeta)
		if got.Endpoint != c.want {
			t.Errorf("%s: %+v, want %+v", name, got.Endpoint, c.want)
		}
		if wrong := c.annotations["steelyard.dev/engine"] == "vlm"; wrong != (len(m.omitted) > 0) {
			t.Errorf("%s: what is wrong is %v", name, m.omitted)
		}
	}
}
