package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sync/singleflight"
)

// Patience is the time after which a read is given up.
const Patience = 2 * time.Second

// Read returns the content of the regular file at path, at most limit bytes of it. To find out whether a file is longer
// than it may be, ask for one more byte. Read gives up when ctx is done.
func Read(ctx context.Context, path string, limit int64) ([]byte, error) {
	return Within(ctx, path, "read "+strconv.FormatInt(limit, 10), func() ([]byte, error) {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() { // opening a pipe would wait for its writer
			return nil, fmt.Errorf("%s is %s, not a regular file", path, kind(info.Mode()))
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // only read
		return io.ReadAll(io.LimitReader(f, limit))
	})
}

// Stat is os.Stat.
func Stat(ctx context.Context, path string) (os.FileInfo, error) {
	return Within(ctx, path, "stat", func() (os.FileInfo, error) { return os.Stat(path) })
}

var underWay singleflight.Group

// Within calls do, which works with the file or folder at path and may hang. It gives up after Patience or when ctx is
// done, and then leaves the goroutine of do behind. Calls with the same name and path at the same time share one do.
func Within[T any](ctx context.Context, path, name string, do func() (T, error)) (T, error) {
	silence := fmt.Errorf("%s has not answered within %v: is it on a file system that hangs?", path, Patience)
	patience, cancel := context.WithTimeoutCause(ctx, Patience, silence)
	defer cancel()
	done := underWay.DoChan(name+" "+path, func() (any, error) { return do() })
	select {
	case r := <-done:
		v, _ := r.Val.(T) // the zero value with an error, or of an interface
		if b, ok := any(v).([]byte); ok && r.Shared {
			v = any(bytes.Clone(b)).(T) // each caller's own
		}
		return v, r.Err
	case <-patience.Done():
		var none T
		if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) { // the caller has less patience
			return none, fmt.Errorf("%s has not answered in time: is it on a file system that hangs? (%w)", path, err)
		}
		return none, context.Cause(patience)
	}
}

// kind names a file that is no regular file.
func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}
