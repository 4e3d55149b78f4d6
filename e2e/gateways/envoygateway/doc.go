// Package envoygateway pins Envoy Gateway, which tools/envoy-gateway.sh builds for the tests. It is a module of its
// own, so that nothing of Envoy Gateway gets into the go.mod of the tests.
package envoygateway
