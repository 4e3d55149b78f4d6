package modelserver

import "errors"

type Engine string

const (
	EngineVLLM        Engine = "vllm"
	EngineTriton      Engine = "triton"
	EngineTensorRTLLM Engine = "tensorrt-llm"
	EngineSGLang      Engine = "sglang"
	EngineTGI         Engine = "tgi"
	EngineCustom      Engine = "custom"
)

func Engines() []Engine {
	return []Engine{EngineVLLM, EngineTriton, EngineTensorRTLLM, EngineSGLang, EngineTGI, EngineCustom}
}

type Custom struct{ Queue, Running, Utilization, Completions string }

type Reader struct{ engine Engine }

func NewReader(e Engine, c Custom) (*Reader, error) { return &Reader{engine: e}, nil }

func (r *Reader) Read(body []byte) (Report, error) {
	return Report{}, errors.New("not implemented")
}

// A FieldSource says where one field of a Report came from.
type FieldSource struct {
	Field   Field    `json:"field"`
	Value   Number   `json:"value"`
	Series  []string `json:"series"`  // selectors that gave the value, or that were looked for
	Combine string   `json:"combine"` // "sum" or "max" of the samples
	Samples int      `json:"samples"` // samples found
	Problem string   `json:"problem,omitempty"`
}

func (r *Reader) Explain(body []byte) ([]FieldSource, error) { return nil, errors.New("not implemented") }
