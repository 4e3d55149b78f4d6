//go:build !linux

package main

import "os"

// logFile returns standard error for the log. Here a crash waits for the reader of a pipe.
func logFile() *os.File { return os.Stderr }
