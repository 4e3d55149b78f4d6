// Package accesslog serves Envoy's gRPC access log service.
package accesslog
