// Package istio pins Istio, which tools/istio.sh builds for the tests of gateways. Its own tests are their short form:
// what `steelyard bootstrap --form istio` writes goes through Istio's validation and its translation to xDS, and Envoy
// takes the outcome. It is a module of its own, so that nothing of Istio gets into another go.mod.
package istio
