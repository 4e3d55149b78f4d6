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

	"steelyard/internal/api"
	"steelyard/internal/envoyid"
	"steelyard/internal/tally"
)

// Why a TLS handshake failed.
const (
	failedExpired        = "expired"           // the client's certificate has expired, or is not valid yet
	failedUnknown        = "unknown_authority" // no CA that may sign for clients signed it
	failedBadCertificate = "bad_certificate"   // any other defect of it
	failedNoCertificate  = "no_certificate"    // the client sent none
	failedByClient       = "refused_by_client" // the client refused the server's
	failedNotTLS         = "not_tls"           // the data is not TLS
	failedProtocol       = "protocol"          // no version, cipher or protocol in common
	failedClosed         = "closed"            // the client disconnected, as a check of the port does
	failedTimeout        = "timeout"
	failedOther          = "other"
)

var handshakeReasons = []string{
	failedExpired, failedUnknown, failedBadCertificate, failedNoCertificate, failedByClient,
	failedNotTLS, failedProtocol, failedClosed, failedTimeout, failedOther,
}

// handshakesLogged is the least time between two log lines of one reason: a client that is refused retries at once.
const handshakesLogged = time.Minute

// maxHandshakeError limits the length of a kept error in bytes: it can quote the certificate.
const maxHandshakeError = 256

// Handshakes counts the TLS handshakes that fail. It logs the first of each reason at once, and the others once a
// minute.
type Handshakes struct {
	mu      sync.Mutex
	refused map[string]*refusedHandshakes
}

type refusedHandshakes struct {
	api.RefusedHandshake
	lines *tally.Tally
}

// NewHandshakes returns counters that are all zero.
func NewHandshakes(log *slog.Logger) *Handshakes {
	h := &Handshakes{refused: make(map[string]*refusedHandshakes, len(handshakeReasons))}
	for _, reason := range handshakeReasons {
		level, message := slog.LevelWarn, "TLS handshakes with clients refused"
		if reason == failedClosed {
			level, message = slog.LevelDebug, "TLS handshakes with clients not finished"
		}
		h.refused[reason] = &refusedHandshakes{api.RefusedHandshake{Reason: reason},
			tally.New(log, level, message, handshakesLogged)}
	}
	return h
}

// Refused returns the count of each possible reason, always in the same order.
func (h *Handshakes) Refused() []api.RefusedHandshake {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]api.RefusedHandshake, len(handshakeReasons))
	for i, reason := range handshakeReasons {
		out[i] = h.refused[reason].RefusedHandshake
	}
	return out
}

// Credentials returns server credentials whose failed handshakes are counted.
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
	r.LastAt, r.LastPeer = api.At(time.Now()), peer
	r.LastError = envoyid.Clip(strings.ToValidUTF8(err.Error(), "\uFFFD"), maxHandshakeError)
	last := r.RefusedHandshake
	h.mu.Unlock()
	r.lines.Add("reason", last.Reason, "last_peer", last.LastPeer, "last_error", last.LastError)
}

// handshakeReason classifies the error of a handshake. Some errors of crypto/tls have no type of their own.
func handshakeReason(err error) string {
	var invalid x509.CertificateInvalidError
	var operation *net.OpError
	contains := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(err.Error(), text) })
	}
	switch {
	case errors.As(err, new(tls.RecordHeaderError)):
		return failedNotTLS
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return failedExpired
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return failedUnknown
	case errors.As(err, new(*tls.CertificateVerificationError)),
		contains("failed to parse client certificate", "invalid signature by the client certificate"):
		return failedBadCertificate
	case contains("client didn't provide a certificate"):
		return failedNoCertificate
	case errors.As(err, &operation) && operation.Op == "remote error":
		return failedByClient
	case contains("offered only unsupported versions", "no cipher suite supported",
		"unsupported application protocols", "missing selected ALPN"):
		return failedProtocol
	case errors.Is(err, os.ErrDeadlineExceeded):
		return failedTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return failedClosed
	}
	return failedOther
}
