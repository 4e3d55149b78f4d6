// Package envoyid identifies an Envoy, in the same way for all services that it connects to: the streams of
// assignments, the access log and the load reports. What one of them learns of an Envoy belongs to the same Envoy at
// the others. It is pure.
package envoyid
