package credentials

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
)

// A Client has the files and settings with which a client connects.
type Client struct {
	CAFile             string // empty: the authorities of the system
	CertFile, KeyFile  string // both empty: no client certificate
	ServerName         string
	InsecureSkipVerify bool
}

// Client returns the configuration for one connection, with the current authorities; the certificate is the one that
// is current when the server asks for it.
func (s *Store) Client(ctx context.Context, c Client) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName,
		InsecureSkipVerify: c.InsecureSkipVerify}
	if c.CAFile != "" {
		m, err := s.Get(ctx, File{Cert: c.CAFile})
		if err != nil {
			return nil, fmt.Errorf("reading CA file: %w", err)
		}
		config.RootCAs = m.Pool
	}
	if c.CertFile == "" && c.KeyFile == "" {
		return config, nil
	}
	if c.CertFile == "" || c.KeyFile == "" {
		return nil, errors.New("loading client certificate: a certificate needs its key, and a key its certificate")
	}
	pair := File{Cert: c.CertFile, Key: c.KeyFile}
	if _, err := s.Get(ctx, pair); err != nil {
		return nil, fmt.Errorf("loading client certificate: %w", err)
	}
	config.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		m, err := s.Get(r.Context(), pair)
		if err != nil {
			return nil, fmt.Errorf("loading client certificate: %w", err)
		}
		return m.Pair, nil
	}
	return config, nil
}

// A Server has the files of a listener.
type Server struct {
	CertFile, KeyFile string
	ClientCAFile      string // empty: clients need no certificate
}

// Server returns the configuration of a listener, which uses the current files for each handshake. All of them must be
// usable when it is called.
func (s *Store) Server(ctx context.Context, c Server) (*tls.Config, error) {
	handshake := func(ctx context.Context) (*tls.Config, error) {
		pair, err := s.Get(ctx, File{Cert: c.CertFile, Key: c.KeyFile})
		if err != nil {
			return nil, err
		}
		// A ticket would let a client reconnect whose certificate is no longer accepted.
		config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*pair.Pair},
			SessionTicketsDisabled: true}
		if c.ClientCAFile == "" {
			return config, nil
		}
		authorities, err := s.Get(ctx, File{Cert: c.ClientCAFile})
		if err != nil {
			return nil, fmt.Errorf("client_ca_file: %w", err)
		}
		config.ClientCAs, config.ClientAuth = authorities.Pool, tls.RequireAndVerifyClientCert
		return config, nil
	}
	config, err := handshake(ctx)
	if err != nil {
		return nil, err
	}
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		return handshake(hello.Context())
	}
	return config, nil
}
