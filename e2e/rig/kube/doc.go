// Package kube runs a real Kubernetes API for tests: an etcd and a
// kube-apiserver, on loopback, without a network, a controller or a node. It is
// ready about three seconds after Start.
//
// What it is for: code that lists, watches and authenticates against the
// Kubernetes API is tested on the API server that its users run, with RBAC and
// with the tokens of service accounts. The API server can be killed, paused and
// started again on the same port and with the same data.
//
// What it is not: a cluster. No kubelet runs Pods and no controller fills
// EndpointSlices or removes what a deleted owner leaves behind: the tests write
// the objects that these would write. A Pod with a nodeName stays terminating
// until a test removes it with a grace period of zero, as a kubelet would.
//
// It is used by e2e/kubernetes and by tests of the manifests. All certificates
// and keys are made at the start, in the folder that the caller gives. Like
// package proc, it does not import package testing.
package kube
