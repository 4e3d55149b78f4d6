package main

import (
	"fmt"
	"io"
	"time"
)

// sayLast writes the last line of a process, and gives up on a reader that has stalled.
func sayLast(w io.Writer, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fmt.Fprintln(w, text(err))
	}()
	select {
	case <-done:
	case <-time.After(logFlush):
	}
}
