package files

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"time"
)

// Patience is the time after which a read is given up.
const Patience = 2 * time.Second

// Read returns the content of the regular file at path, at most limit bytes of it. To find out whether a file is longer
// than the limit, ask for one more byte. Read gives up when ctx is done.
func Read(ctx context.Context, path string, limit int64) ([]byte, error) {
	return Within(ctx, path, "read "+strconv.FormatInt(limit, 10), func() ([]byte, error) {
		f, err := open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // only read
		return io.ReadAll(io.LimitReader(f, limit))
	})
}

// ReadAll returns the content of the regular file at path. One of more than limit bytes is an error.
func ReadAll(ctx context.Context, path string, limit int64) ([]byte, error) {
	content, err := Read(ctx, path, limit+1)
	if err == nil && int64(len(content)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes, the most that is read of such a file", path, limit)
	}
	return content, err
}

// Stat is os.Stat, but gives up after Patience.
func Stat(ctx context.Context, path string) (os.FileInfo, error) {
	return Within(ctx, path, "stat", func() (os.FileInfo, error) { return os.Stat(path) })
}

// open opens a regular file.
func open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for its writer
		return nil, fmt.Errorf("%s is %s, not a regular file", path, kind(info.Mode()))
	}
	return os.Open(path)
}

// pieceSize is how many bytes of an opened file are read at a time.
const pieceSize = 1 << 20

// Open opens the regular file at path, which may be too large for Read: each MiB of it has Patience. Reads give up when
// ctx is done.
func Open(ctx context.Context, path string) (io.ReadCloser, error) {
	p := &pieces{ctx: ctx, path: path}
	_, err := Within(ctx, path, fmt.Sprintf("open %p", p), func() (_ struct{}, err error) {
		p.file, err = open(path)
		return struct{}{}, err
	})
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{bufio.NewReaderSize(p, pieceSize), p.file}, nil
}

// pieces reads an open file.
type pieces struct {
	ctx  context.Context
	path string
	file *os.File
	err  error // the first one, and then of all reads
}

func (p *pieces) Read(into []byte) (int, error) {
	if p.err == nil {
		p.err = p.ctx.Err()
	}
	if p.err != nil {
		return 0, p.err
	}
	var piece []byte
	piece, p.err = Within(p.ctx, p.path, fmt.Sprintf("read %p", p), func() ([]byte, error) {
		own := make([]byte, len(into)) // a read that hangs may end when its caller uses into for something else
		n, err := p.file.Read(own)
		return own[:n], err
	})
	return copy(into, piece), p.err
}

// kind returns the name of a kind of file that is not regular.
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
