package admin

import (
	"steelyard/controlplane/view"
)

// Tracing is what became of the traces of decisions, since tracing was configured. The zero value is that of a process
// that makes none.
type Tracing struct {
	Enabled  bool      `json:"enabled"`
	Skipped  uint64    `json:"skipped"`  // pushes that were drawn, and are beyond the bounds
	Exported uint64    `json:"exported"` // spans
	Failed   uint64    `json:"failed"`   // spans that are lost
	Error    string    `json:"error"`    // of the latest export; empty when it succeeded
	ErrorAt  view.Time `json:"error_at"`
}
