package chaos

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// A logReader reads the log of a process from a pipe and writes it to a file.
type logReader struct {
	path    string
	reading sync.WaitGroup
	stalled sync.Mutex // held while it reads no more than one buffer, like a log shipper that hangs

	mu   sync.Mutex
	pipe *os.File // the end that is read, of the latest process
}

// run calls start with the writing end of a new pipe, for the standard error of a process, and reads the other end
// until the process and its children have ended.
func (l *logReader) run(start func(stderr *os.File) error) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer write.Close()
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return errors.Join(err, read.Close())
	}
	l.mu.Lock()
	l.pipe = read
	l.mu.Unlock()
	l.reading.Go(func() {
		defer read.Close()
		defer file.Close()
		l.copy(file, read)
	})
	if err := shrink(write); err != nil {
		return fmt.Errorf("making the log's pipe small: %w", err)
	}
	return start(write)
}

// leave closes the pipe, like a log shipper that ends: the process can no longer write its log.
func (l *logReader) leave() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pipe.Close()
}

func (l *logReader) copy(file io.Writer, pipe io.Reader) {
	buffer := make([]byte, 4<<10)
	for {
		n, err := pipe.Read(buffer)
		l.stalled.Lock()
		_, werr := file.Write(buffer[:n])
		l.stalled.Unlock()
		if err != nil || werr != nil {
			return
		}
	}
}
