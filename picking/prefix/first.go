package prefix

// A First holds the first part of a body that comes in pieces. Its memory can be reused.
type First struct {
	text []byte
	came int64 // bytes, including those that are not kept
}

// Reset begins a body.
func (f *First) Reset() { f.text, f.came = f.text[:0], 0 }

// Add adds the next piece. The first most bytes of the body are kept.
func (f *First) Add(piece []byte, most int) {
	f.came += int64(len(piece))
	f.text = append(f.text, piece[:min(len(piece), max(0, most-len(f.text)))]...)
}

// Read returns the prompt of the request to a path, and the size of its body in bytes. Of one that has not come as a
// whole, that is what the client announced (negative where it did not), and never less than what has come.
func (f *First) Read(r *Reader, path string, announced int64, whole bool) (p Prompt, size int64) {
	if size = f.came; !whole {
		size = max(announced, f.came)
	}
	return r.Read(path, f.text, size), size
}
