// Package extension is the protocol by which Envoy Gateway asks an extension server: the generated code of
// proto/extension in github.com/envoyproxy/gateway at v1.9.1, unchanged, under the Apache License 2.0 (its authors are
// named in each file). It is a copy because the module of Envoy Gateway would bring two hundred others into this one,
// and raise the versions of those that are here already; the protocol itself needs none.
//
// It is not to be edited. To renew it, copy the three files of a later version.
package extension
