package port

import (
	"encoding/binary"
	"net"

	"golang.org/x/net/http2"
)

// A frameScanner finds the header of each HTTP/2 frame in a sequence of bytes.
type frameScanner struct {
	skip   int // bytes up to the next header
	header [9]byte
	have   int // bytes of header
}

// scan passes the header of each frame in p to see. A header may begin in one p and end in another.
func (s *frameScanner) scan(p []byte, see func(http2.FrameHeader)) {
	for len(p) > 0 {
		if s.skip > 0 {
			n := min(s.skip, len(p))
			s.skip -= n
			p = p[n:]
			continue
		}
		n := copy(s.header[s.have:], p)
		s.have += n
		p = p[n:]
		if s.have < len(s.header) {
			return
		}
		h := http2.FrameHeader{
			Length: uint32(s.header[0])<<16 | uint32(s.header[1])<<8 | uint32(s.header[2]),
			Type:   http2.FrameType(s.header[3]), Flags: http2.Flags(s.header[4]),
			StreamID: binary.BigEndian.Uint32(s.header[5:]) & (1<<31 - 1),
		}
		s.have, s.skip = 0, int(h.Length)
		see(h)
	}
}

// A frameConn is the unencrypted side of a connection. It counts what the streams of the peer receive, and sees their
// ends: the peer resets a stream, or the server ends it. gRPC reads it in one goroutine and writes it in one other.
type frameConn struct {
	net.Conn
	conn          *conn
	read, written frameScanner
}

func newFrameConn(plain net.Conn, c *conn) *frameConn {
	return &frameConn{Conn: plain, conn: c, read: frameScanner{skip: len(http2.ClientPreface)}}
}

func (f *frameConn) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	f.read.scan(p[:n], func(h http2.FrameHeader) {
		l := f.conn.listener
		switch h.Type {
		case http2.FrameHeaders:
			l.unread.begin(f.conn, h.StreamID)
		case http2.FrameData:
			l.closeHolder(l.unread.receive(f.conn, h.StreamID, int(h.Length)))
		case http2.FrameRSTStream:
			l.unread.end(f.conn, h.StreamID)
		}
	})
	return n, err
}

func (f *frameConn) Write(p []byte) (int, error) {
	f.written.scan(p, func(h http2.FrameHeader) {
		if h.Type == http2.FrameRSTStream ||
			h.Type == http2.FrameHeaders && h.Flags.Has(http2.FlagHeadersEndStream) {
			f.conn.listener.unread.end(f.conn, h.StreamID)
		}
	})
	return f.Conn.Write(p)
}
