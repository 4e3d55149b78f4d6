package trace

import (
	"bytes"
	_ "embed" // the trace of Azure
	"sync"
)

// AzureSource names the source and the licence of [Azure]: they have to be shown with
// every figure made with it.
const AzureSource = "Azure LLM inference trace 2023, conversation (Microsoft, github.com/Azure/AzurePublicDataset, " +
	"CC-BY 4.0)"

//go:embed testdata/azure-llm-2023-conv.csv.gz
var azure []byte

var readAzure = sync.OnceValues(func() (*Trace, error) { return Read("azure-llm-2023-conv", bytes.NewReader(azure)) })

// Azure is the conversation trace of 2023, which must not be changed.
func Azure() *Trace {
	t, err := readAzure()
	if err != nil {
		panic(err) // the file is part of the program, and a test reads it
	}
	return t
}
