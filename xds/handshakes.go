package xds

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
)

// Why a TLS handshake failed.
const (
	failedExpired        = "expired"           // the client's certificate has expired, or is not valid yet
	failedUnknown        = "unknown_authority" // nobody who may sign for clients signed it
	failedBadCertificate = "bad_certificate"   // anything else about it
	failedNoCertificate  = "no_certificate"    // the client showed none
	failedByClient       = "refused_by_client" // the client refused ours
	failedNotTLS         = "not_tls"           // what came is no TLS
	failedProtocol       = "protocol"          // no version, cipher or protocol in common
	failedClosed         = "closed"            // the client went, as one does that only looks if the port is open
	failedTimeout        = "timeout"
	failedOther          = "other"
)

var handshakeReasons = []string{
	failedExpired, failedUnknown, failedBadCertificate, failedNoCertificate, failedByClient,
	failedNotTLS, failedProtocol, failedClosed, failedTimeout, failedOther,
}

// handshakesLogged is the least time between two log lines of one reason: a client that is
// refused tries again at once.
const handshakesLogged = time.Minute

// maxHandshakeError bounds what is kept of an error, which can quote the certificate; in bytes.
const maxHandshakeError = 256

// A RefusedHandshake sums up the handshakes that failed for one reason.
type RefusedHandshake struct {
	Reason string
	Count  uint64    // since the start
	At     time.Time // of the last; zero when there was none
	Peer   string    // of the last
	Error  string    // of the last
}

// Handshakes counts the TLS handshakes that fail, and logs the first of each reason at once and
// the others a minute at a time.
type Handshakes struct {
	log *slog.Logger

	mu      sync.Mutex
	refused map[string]*refusedHandshakes
}

type refusedHandshakes struct {
	RefusedHandshake
	unlogged uint64
	waiting  bool // for the next line
}

// NewHandshakes has counted none.
func NewHandshakes(log *slog.Logger) *Handshakes {
	h := &Handshakes{log: log, refused: make(map[string]*refusedHandshakes, len(handshakeReasons))}
	for _, reason := range handshakeReasons {
		h.refused[reason] = &refusedHandshakes{RefusedHandshake: RefusedHandshake{Reason: reason}}
	}
	return h
}

// Refused returns one sum for each reason there can be, always in the same order.
func (h *Handshakes) Refused() []RefusedHandshake {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]RefusedHandshake, len(handshakeReasons))
	for i, reason := range handshakeReasons {
		out[i] = h.refused[reason].RefusedHandshake
	}
	return out
}

// Credentials are those of a server whose handshakes are counted.
func (h *Handshakes) Credentials(c *tls.Config) credentials.TransportCredentials {
	return countedCredentials{credentials.NewTLS(c), h}
}

type countedCredentials struct {
	credentials.TransportCredentials
	handshakes *Handshakes
}

func (c countedCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := c.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		c.handshakes.failed(conn.RemoteAddr().String(), err)
	}
	return secure, info, err
}

func (c countedCredentials) Clone() credentials.TransportCredentials {
	return countedCredentials{c.TransportCredentials.Clone(), c.handshakes}
}

func (h *Handshakes) failed(peer string, err error) {
	h.mu.Lock()
	r := h.refused[handshakeReason(err)]
	r.Count++
	r.At, r.Peer, r.Error = time.Now(), peer, clip(strings.ToValidUTF8(err.Error(), "\uFFFD"), maxHandshakeError)
	r.unlogged++
	speak := !r.waiting
	if speak {
		r.waiting = true
		time.AfterFunc(handshakesLogged, func() { h.summarise(r) })
	}
	line := r.line(speak)
	h.mu.Unlock()
	line.write(h.log)
}

// summarise logs what has come since the last line, and waits on if there was anything.
func (h *Handshakes) summarise(r *refusedHandshakes) {
	h.mu.Lock()
	speak := r.unlogged > 0
	r.waiting = speak
	if speak {
		time.AfterFunc(handshakesLogged, func() { h.summarise(r) })
	}
	line := r.line(speak)
	h.mu.Unlock()
	line.write(h.log)
}

// A handshakeLine is written without the lock.
type handshakeLine struct {
	RefusedHandshake
	count uint64 // that it is about; 0: it is not written
}

func (r *refusedHandshakes) line(speak bool) handshakeLine {
	if !speak {
		return handshakeLine{}
	}
	l := handshakeLine{r.RefusedHandshake, r.unlogged}
	r.unlogged = 0
	return l
}

func (l handshakeLine) write(log *slog.Logger) {
	switch {
	case l.count == 0:
	case l.Reason == failedClosed:
		log.Debug("TLS handshakes with clients not finished", "reason", l.Reason, "count", l.count, "last_peer", l.Peer, "last_error", l.Error)
	default:
		log.Warn("TLS handshakes with clients refused", "reason", l.Reason, "count", l.count, "last_peer", l.Peer, "last_error", l.Error)
	}
}

// handshakeReason sorts an error of a handshake. Some of crypto/tls have no type.
func handshakeReason(err error) string {
	var invalid x509.CertificateInvalidError
	var operation *net.OpError
	said := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(err.Error(), text) })
	}
	switch {
	case errors.As(err, new(tls.RecordHeaderError)):
		return failedNotTLS
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return failedExpired
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return failedUnknown
	case errors.As(err, new(*tls.CertificateVerificationError)), said("failed to parse client certificate", "invalid signature by the client certificate"):
		return failedBadCertificate
	case said("client didn't provide a certificate"):
		return failedNoCertificate
	case errors.As(err, &operation) && operation.Op == "remote error":
		return failedByClient
	case said("offered only unsupported versions", "no cipher suite supported", "unsupported application protocols", "missing selected ALPN"):
		return failedProtocol
	case errors.Is(err, os.ErrDeadlineExceeded):
		return failedTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return failedClosed
	}
	return failedOther
}
