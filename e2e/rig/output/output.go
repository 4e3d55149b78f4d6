// Package output holds what a part writes, its log or its progress, for a test or an error that reads it meanwhile.
package output

import (
	"bytes"
	"sync"
)

// A Buffer is a bytes.Buffer that goroutines can write to and read at the same time. The zero value is empty.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns everything that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
