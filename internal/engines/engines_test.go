package engines

import "testing"

func TestEnginesThatBatchAreAmongThoseKnown(t *testing.T) {
	want := map[string]bool{VLLM: true, Triton: false, TensorRTLLM: true, SGLang: true, TGI: true, Custom: false}
	for _, name := range Names() {
		if batches, known := want[name]; !known || batches != Batches(name) {
			t.Errorf("%s batches: %t, want %t (known here: %t)", name, Batches(name), batches, known)
		}
	}
	if len(Names()) != len(want) || Batches("vlm") {
		t.Errorf("%d engines, want %d; one that does not exist batches: %t", len(Names()), len(want), Batches("vlm"))
	}
}
