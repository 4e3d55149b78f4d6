// Package gateways has the end-to-end tests with the control planes of gateways: the real Envoy Gateway, Istio
// and Contour against a real API server, with a real Envoy and steelyard serve. There is no kubelet: the tests run what
// a Deployment says, and write the Pods of the model servers, whose addresses are those of simulated ones.
//
// The control planes and the Envoys that they configure have fixed ports and paths (/certs, names of Services). So the
// tests run in namespaces of their own, with a root of their own, which needs the rights of root.
package gateways
