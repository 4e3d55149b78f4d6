package scrape

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"syscall"
)

// The kinds of outcome of a fetch: few enough for a metric label.
const (
	KindOK         = "ok"
	KindTimeout    = "timeout"    // no complete body within the timeout
	KindRefused    = "refused"    // nothing listens at the address
	KindConnection = "connection" // no route, unknown host, connection reset or ended early
	KindTLS        = "tls"        // no agreement on certificates, or no TLS at all
	KindStatus     = "status"     // answered with a status other than 200
	KindRedirect   = "redirect"   // redirected to another host
	KindTooLarge   = "too_large"  // body above the limit
	KindParse      = "parse"      // body that gives no load report
	KindConfig     = "config"     // token file, certificates or target that cannot be used
)

// Kind returns the kind of a Result's error.
func Kind(err error) string {
	if err == nil {
		return KindOK
	}
	if k, ok := errors.AsType[*kindError](err); ok {
		return k.kind
	}
	return kindOfExchange(err)
}

// A kindError is an error whose kind is known where it arises.
type kindError struct {
	kind string
	err  error
}

func (e *kindError) Error() string { return e.err.Error() }
func (e *kindError) Unwrap() error { return e.err }

// failure makes an error of a kind; format and args are those of fmt.Errorf.
func failure(kind, format string, args ...any) error {
	return &kindError{kind: kind, err: fmt.Errorf(format, args...)}
}

// kindOfExchange returns the kind of an error of net/http.
func kindOfExchange(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return KindTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return KindRefused
	case isTLS(err):
		return KindTLS
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return KindTimeout
	}
	return KindConnection
}

// isTLS recognizes the errors with which the handshake of either side can fail.
func isTLS(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		record       tls.RecordHeaderError
		authority    x509.UnknownAuthorityError
		hostname     x509.HostnameError
		invalid      x509.CertificateInvalidError
		op           *net.OpError
	)
	if errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error") { // an alert
		return true
	}
	return errors.Is(err, http.ErrSchemeMismatch) ||
		errors.As(err, &verification) || errors.As(err, &record) ||
		errors.As(err, &authority) || errors.As(err, &hostname) || errors.As(err, &invalid)
}

// inWords turns an error of net/http into one that reports what happened, without the name of the Go method that
// failed. The caller adds the URL once.
func inWords(err error, t *Target) error {
	if k, ok := errors.AsType[*kindError](err); ok {
		return k
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	kind := kindOfExchange(err)
	if kind == KindTimeout {
		return failure(kind, "no complete answer within %v: %w", t.Timeout, err)
	}
	return failure(kind, "%w", err)
}
