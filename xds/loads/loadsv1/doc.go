// Package loadsv1 is the protocol by which pickers follow the loads of clusters: loads.proto, and what protoc makes of
// it (protoc-gen-go and protoc-gen-go-grpc, with paths=source_relative).
package loadsv1
