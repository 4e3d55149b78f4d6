package prefix

import "strings"

// computes reports whether a request to a path computes its prompt, as far as that is known: counting tokens, or
// rendering a template, leaves nothing in a cache. What it is, is in the last segment, whatever is in front.
func computes(path string) bool {
	switch path[strings.LastIndexByte(path, '/')+1:] {
	case "count_tokens", "input_tokens", // of Anthropic's messages, of OpenAI's responses
		"tokenize", "detokenize", "chat_tokenize", // vLLM, SGLang; TGI
		"render", "derender", "apply-template", // vLLM; llama.cpp
		"parse_function_call", "separate_reasoning": // SGLang: of outputs
		return false
	}
	return true
}

// modelOf returns the model that a path names, with its version if it names one: models/X/versions/N of
// /v2/models/X/versions/N/infer, as Triton and KServe have it.
func modelOf(path string) string {
	const models, versions = "/models/", "versions/"
	_, named, ok := strings.Cut(path, models)
	if !ok {
		return ""
	}
	model, verb, _ := strings.Cut(named, "/")
	if version, found := strings.CutPrefix(verb, versions); found {
		version, _, _ = strings.Cut(version, "/")
		return named[:len(model)+1+len(versions)+len(version)]
	}
	return model
}

// trimmed is a path without its query, and without a slash at its end.
func trimmed(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return strings.TrimRight(path, "/")
}
