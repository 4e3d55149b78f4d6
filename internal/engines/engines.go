package engines

import "slices"

// The engines.
const (
	VLLM        = "vllm"
	Triton      = "triton"
	TensorRTLLM = "tensorrt-llm" // in Triton, or in trtllm-serve
	SGLang      = "sglang"
	TGI         = "tgi"
	Custom      = "custom" // the user names the series
)

// Names returns the names of all engines in the order in which they are documented.
func Names() []string { return []string{VLLM, Triton, TensorRTLLM, SGLang, TGI, Custom} }

// Batches reports whether an engine may execute more requests at once than it has slots, because it batches
// continuously. An unknown name does not.
func Batches(name string) bool {
	return slices.Contains([]string{VLLM, TensorRTLLM, SGLang, TGI}, name)
}

// HealthPath is where a server of an engine answers whether it is alive; empty if that is not known. A server of
// another engine answers 404 there.
func HealthPath(name string) string {
	switch name {
	case VLLM, SGLang, TGI, TensorRTLLM: // trtllm-serve; in Triton it has Triton's
		return "/health"
	case Triton:
		return "/v2/health/live"
	}
	return ""
}
