// Package kubernetes tests Steelyard on a real Kubernetes API: discovery from EndpointSlices and InferencePools, and
// its behaviour when the API server fails.
//
// One kube-apiserver (e2e/rig/kube) serves all tests of the package; each test
// works in namespaces of its own. Tests that kill or pause the API server run
// their own. No kubelet and no controller runs: the tests write the Pods and
// EndpointSlices.
//
// Two modules of their own are in folders below: apiserver pins kube-apiserver,
// which `make tools-apiserver` builds, and inferencepool the Gateway API
// Inference Extension, for its CustomResourceDefinitions.
package kubernetes
