// Package engines has the names of the kinds of model servers that Steelyard knows, and what all packages need to know
// of one. Package collectors/modelserver reads their metrics.
package engines
