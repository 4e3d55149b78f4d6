// Package modelserver reads the load out of a model server's metrics body.
package modelserver
