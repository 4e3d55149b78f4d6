// Package watch notices changes of files that a configuration names: the configuration itself, and lists of endpoints.
// It reads none of them; package files does, and has the deadlines for file systems that hang.
package watch
