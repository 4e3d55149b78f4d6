// Package manifests tests what manifests/ and its Helm chart install: that every overlay builds, that every object is
// valid for the Kubernetes API and is what the others expect of it, that the chart renders the same objects, and that a
// real API server accepts them all without a warning.
//
// It is a module of its own, so that kustomize and Helm stay out of the product's go.mod. The definitions of other
// projects' resources (ServiceMonitor, Certificate, ScaledObject, EnvoyPatchPolicy, EnvoyFilter, HTTPProxy) come out of
// their Go modules, pinned by version and checksum in crds_test.go; none is copied.
//
// Files that are derived from others are written by
//
//	go test . -update
package manifests
