// Package epp pins the endpoint picker of the Gateway API Inference Extension, which tools/epp.sh builds for the
// benches. 1.5 is the last version with the whole picker (cmd/epp). It is a module of its own, so that nothing of the
// extension gets into the go.mod of the benches.
package epp
