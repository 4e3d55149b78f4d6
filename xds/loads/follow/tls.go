package follow

import (
	"context"
	"errors"
	"net"

	grpccredentials "google.golang.org/grpc/credentials"

	"steelyard/internal/credentials"
)

// errDefect is the error of a handshake in which the guard recovered from a panic.
var errDefect = errors.New("the TLS handshake with Steelyard ended in a panic, which is a defect: see the log before")

// TLS returns the credentials towards Steelyard, with the files that are current at each handshake. They must be usable
// when it is called; the caller runs the store. Each handshake, which is in a goroutine of gRPC, defers the store's
// guard.
func TLS(ctx context.Context, store *credentials.Store, files credentials.Client) (grpccredentials.TransportCredentials,
	error) {
	config, err := store.Client(ctx, files)
	if err != nil {
		return nil, err
	}
	return &current{TransportCredentials: grpccredentials.NewTLS(config), store: store, files: files}, nil
}

// current uses the current files for each handshake.
type current struct {
	grpccredentials.TransportCredentials
	store *credentials.Store
	files credentials.Client
}

// ClientHandshake calls gRPC's own credentials, with the current files.
func (c *current) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (secured net.Conn,
	info grpccredentials.AuthInfo, err error) {
	err = errDefect // what a panic leaves
	defer c.store.Guard()
	config, err := c.store.Client(ctx, c.files)
	if err != nil {
		return nil, nil, err
	}
	return grpccredentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

// Clone is for gRPC, which makes one for each connection.
func (c *current) Clone() grpccredentials.TransportCredentials {
	clone := *c
	clone.TransportCredentials = c.TransportCredentials.Clone()
	return &clone
}
