package scrape

import (
	"bytes"
	"strconv"
)

// Nearly every answer is a 200 with a body of a known length, or in chunks.
// Such a one is read in place: into the memory that the page is then read from, in one or
// two reads, without the objects that net/http makes of a request and a response. Any
// other answer, and whatever goes wrong, is net/http's, which goes on from what was read
// by then; so one place decides what is allowed, what is wrong, and in which words.

// spare is by how many bytes an answer may be longer than the one before until it takes one
// more read.
const spare = 512

// ask sends the request, as it goes over the wire, over the connection that is kept, and waits
// until an answer begins. It reports whether direct is to read that. If not, or if direct
// does not, the RoundTrip that follows goes on with the same exchange.
func (c *connection) ask(wire []byte) bool {
	s := c.conn
	if s == nil || s.unasked() || c.use(s) != nil {
		return false
	}
	s.wake()
	s.asked, s.left = true, maxHeader
	if _, err := s.Conn.Write(wire); err != nil {
		return false
	}
	_, err := s.reader.Peek(1) // while nothing comes, memory for a page is not needed
	return err == nil
}

// direct reads the answer, and reports whether its page is in body.
func (c *connection) direct(body *bytes.Buffer, limit int64) bool {
	s, r := c.conn, reply{limit: limit}
	body.Grow(max(s.direct, 2*s.reader.Buffered()))
	begun, _ := s.reader.Peek(s.reader.Buffered())
	body.Write(begun)
	_, _ = s.reader.Discard(len(begun))
	for r.take(body.Bytes()) {
		if r.whole {
			s.asked, s.direct = false, body.Len()+spare
			if body.Len() > r.end {
				c.close() // it sent something without a request
			}
			r.cut(body)
			return true
		}
		if s.more(body) != nil {
			break
		}
	}
	s.ahead = bytes.Clone(body.Bytes())
	body.Reset()
	return false
}

// more reads what has come.
func (s *stream) more(body *bytes.Buffer) error {
	if body.Available() == 0 {
		body.Grow(body.Len())
	}
	n, err := s.Conn.Read(body.AvailableBuffer()[:body.Available()])
	body.Write(body.AvailableBuffer()[:n])
	if n > 0 {
		return nil // an error comes again
	}
	return err
}

// A reply is an answer as far as it was read.
type reply struct {
	limit   int64 // of the body, in bytes
	begin   int   // of the body; 0 until the header has ended
	end     int   // of what is known to be of the answer
	chunked bool
	whole   bool
}

// take looks at all that was read so far. It reports false where the answer is not one to
// be read in place.
func (r *reply) take(read []byte) bool {
	if r.begin == 0 {
		end := bytes.Index(read, []byte("\r\n\r\n"))
		if end < 0 {
			return len(read) < maxHeader && !endsOtherwise(read)
		}
		size, chunked, ok := parseHeader(read[:end])
		if !ok {
			return false
		}
		r.begin = end + len("\r\n\r\n")
		r.end, r.chunked = r.begin+size, chunked
	}
	for r.chunked && !r.whole {
		size, data, ok := parseChunk(read[r.end:])
		if !ok {
			return false
		}
		if size == 0 { // has not come in whole
			return int64(len(read)-r.begin) <= r.limit
		}
		r.end += size
		r.whole = len(data) == 0
	}
	if !r.chunked {
		r.whole = r.end <= len(read)
	}
	return int64(r.end-r.begin) <= r.limit
}

// endsOtherwise reports whether a header has ended with bare line feeds, which net/http
// allows: the reader would wait for more of it without success.
func endsOtherwise(read []byte) bool {
	return bytes.Contains(read, []byte("\n\n")) || bytes.Contains(read, []byte("\n\r\n"))
}

// cut leaves the body of a whole answer.
func (r *reply) cut(b *bytes.Buffer) {
	b.Truncate(r.end)
	b.Next(r.begin)
	if !r.chunked {
		return
	}
	joined, rest := 0, b.Bytes()
	for all := rest; len(rest) > 0; {
		size, data, _ := parseChunk(rest)
		joined += copy(all[joined:], data)
		rest = rest[size:]
	}
	b.Truncate(joined)
}

// parseHeader reads the header of a 200, without the empty line at its end: the size of the body,
// or that it is chunked. It is not ok if the header has anything else about the
// body or the connection, or is not as every server writes it.
func parseHeader(header []byte) (size int, chunked, ok bool) {
	line, rest, more := bytes.Cut(header, []byte("\r\n"))
	if string(line) != "HTTP/1.1 200 OK" {
		return 0, false, false
	}
	sized := false
	for more {
		line, rest, more = bytes.Cut(rest, []byte("\r\n"))
		name, value, found := bytes.Cut(line, []byte(":"))
		value = bytes.Trim(value, " \t")
		if !found || !isName(name) || !isText(value) {
			return 0, false, false
		}
		switch {
		case is(name, "Content-Length") && !sized:
			size, sized = parseSize(value, 10)
			if !sized {
				return 0, false, false
			}
		case is(name, "Transfer-Encoding") && !chunked && is(value, "chunked"):
			chunked = true
		case is(name, "Connection") && is(value, "keep-alive"):
		case is(name, "Content-Length"), is(name, "Transfer-Encoding"), is(name, "Connection"),
			is(name, "Content-Encoding"), is(name, "Trailer"), is(name, "Upgrade"):
			return 0, false, false
		}
	}
	return size, chunked, sized != chunked
}

// parseChunk reads the chunk that b begins with; the one without data is the last. size is
// that of all of it, 0 where b does not hold it to its end.
func parseChunk(b []byte) (size int, data []byte, ok bool) {
	const longest = 10 // bytes of a size, with its line's end
	end := bytes.IndexByte(b[:min(len(b), longest)], '\n')
	if end < 0 {
		return 0, nil, len(b) < longest
	}
	digits, ended := bytes.CutSuffix(b[:end], []byte("\r"))
	n, number := parseSize(digits, 16)
	if !ended || !number {
		return 0, nil, false
	}
	begin := end + 1
	size = begin + n + len("\r\n")
	if len(b) < size {
		return 0, nil, true
	}
	return size, b[begin : begin+n], string(b[begin+n:size]) == "\r\n"
}

// parseSize reads a number of bytes, without sign or anything else besides digits.
func parseSize(digits []byte, base int) (int, bool) {
	const bits = 32
	n, err := strconv.ParseUint(string(digits), base, bits-1)
	return int(n), err == nil
}

func is(b []byte, word string) bool {
	return len(b) == len(word) && bytes.EqualFold(b, []byte(word))
}

// isName reports whether b can be the name of a header.
func isName(b []byte) bool {
	for _, c := range b {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return len(b) > 0
}

// isText reports whether b can be the value of one.
func isText(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
