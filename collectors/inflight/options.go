package inflight

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"steelyard/internal/credentials"
	"steelyard/internal/files"
)

// maxPasswordFile bounds the password file, in bytes.
const maxPasswordFile = 64 << 10

// Options define how Redis is reached and how often it is read. They come from a configuration, which is checked.
type Options struct {
	// Addresses are host:port: of the server, of the sentinels, or of some nodes of the Redis Cluster.
	Addresses []string
	// Cluster: the addresses are those of a Redis Cluster, which is reached through any of its nodes.
	Cluster bool
	// MasterName is the name of the master that the sentinels watch; empty without sentinels.
	MasterName string
	// Username is the ACL user; empty means the default user.
	Username string
	// PasswordFile holds the password, with or without a newline at its end. It
	// is read again for every new connection. Empty means no password.
	PasswordFile string
	// SentinelUsername is the ACL user at the sentinels, and SentinelPasswordFile holds its password, or that of
	// requirepass there. The library takes a password of sentinels as a text, so the
	// file is read when a Poller begins to run, and by each call of what Connector returns.
	SentinelUsername     string
	SentinelPasswordFile string
	// DB is the number of the logical database. A Redis Cluster has only 0.
	DB int
	// TLS encrypts the connections, those to the sentinels too; nil means plain. Without ServerName it is the host that
	// is connected to.
	TLS *credentials.Client
	// Credentials have the files of TLS, and keep them up to date.
	Credentials *credentials.Store
	// Interval is the time between two polls, and Timeout how long one may take, at most Interval.
	Interval, Timeout time.Duration
	// Replica identifies this process among those that keep the members of the same sets (SetMembers).
	Replica string
	// Own returns how many requests this process counts at each address of a cluster, without zeros, for SetAdding.
	Own func(cluster string) map[string]int64
	// Progress watches whether the Poller makes progress; nil if nothing does.
	Progress Progress
}

// A Progress is notified when work begins that must end soon whatever Redis does, and when it has ended: the sink, and
// a poll from its timeout on. A poll that waits for Redis within its timeout is not such work.
type Progress interface {
	Begin()
	End()
}

type unwatched struct{}

func (unwatched) Begin() {}
func (unwatched) End()   {}

// checkFiles reads the passwords, for an early error.
func (o Options) checkFiles(ctx context.Context) error {
	_, err := passwordIn(ctx, o.PasswordFile)
	_, ofSentinels := passwordIn(ctx, o.SentinelPasswordFile)
	return errors.Join(err, ofSentinels)
}

// transport returns the TLS configuration of connections, with the files that are current for each; nil for plain text.
// It reads all files once, so that one that cannot be used is an error at the start.
func (o Options) transport() (tlsConfig, error) {
	if err := o.checkFiles(context.Background()); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	if o.TLS == nil {
		return nil, nil
	}
	config := func(ctx context.Context, host string) (*tls.Config, error) {
		own := *o.TLS
		own.ServerName = cmp.Or(own.ServerName, host)
		return o.Credentials.Client(ctx, own)
	}
	if _, err := config(context.Background(), ""); err != nil {
		return nil, fmt.Errorf("redis: tls: %w", err)
	}
	return config, nil
}

// Connector returns a function that makes clients of the same Redis for another use, each with a function that closes
// it and waits for its connections. It reads the files as New does.
func Connector(o Options) (func() (client redis.UniversalClient, stop func()), error) {
	config, err := o.transport()
	if err != nil {
		return nil, err
	}
	return func() (redis.UniversalClient, func()) {
		d := newDialer(config, max(background, o.Timeout))
		client := redis.NewUniversalClient(o.universal(d))
		return client, func() {
			_ = client.Close() // before the dialer, as in Run
			d.close()
		}
	}, nil
}

// passwordIn reads a password file; without one there is no password.
func passwordIn(ctx context.Context, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	return Password(ctx, path)
}

// Password reads the password in a file.
func Password(ctx context.Context, path string) (string, error) {
	b, err := files.Read(ctx, path, maxPasswordFile+1)
	switch password := strings.TrimRight(string(b), "\r\n"); {
	case err != nil:
		return "", fmt.Errorf("reading the password for Redis: %w", err)
	case len(b) > maxPasswordFile:
		return "", fmt.Errorf("password file %s is longer than %d bytes; is it the right file?", path, maxPasswordFile)
	case password == "":
		return "", fmt.Errorf("password file %s is empty", path)
	default:
		return password, nil
	}
}

// Bounds of what the library does besides polls: making a connection, and one exchange to find the master or the slots.
// A node of a cluster that hangs is asked for the slots like any other, and keeps the next one from being asked.
const (
	background = time.Second
	exchange   = 250 * time.Millisecond
)

// universal returns the options in the library's form. There is one poll at a time, so more than one connection per
// server is only needed while an old one is being closed.
func (o Options) universal(d *dialer) *redis.UniversalOptions {
	// A file that can no longer be read shows as NOAUTH of the sentinels.
	ofSentinels, _ := passwordIn(context.Background(), o.SentinelPasswordFile)
	return &redis.UniversalOptions{
		Addrs:         o.Addresses,
		MasterName:    o.MasterName,
		IsClusterMode: o.Cluster,
		DB:            o.DB,
		CredentialsProviderContext: func(ctx context.Context) (string, string, error) {
			password, err := passwordIn(ctx, o.PasswordFile)
			return o.Username, password, err
		},
		SentinelUsername: o.SentinelUsername,
		SentinelPassword: ofSentinels,
		Dialer:           d.dial,

		Protocol:                 2,    // replies only: nothing here subscribes on the polling connection
		DisableIdentity:          true, // no client name either: both take rights beyond reading and a round trip
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},

		MaxRetries:            -1, // the next interval is the retry
		MaxRedirects:          2,  // slots that are being moved: follow, within the poll's timeout
		DialerRetries:         1,
		ContextTimeoutEnabled: true,
		DialTimeout:           max(background, o.Timeout),
		ReadTimeout:           max(exchange, o.Timeout),
		WriteTimeout:          max(exchange, o.Timeout),
		PoolTimeout:           max(background, o.Timeout),

		// PoolSize is also the number of failed connections in a row after which
		// the library falls back to one attempt a second.
		PoolSize:           64,
		MaxConcurrentDials: 2,
		PipelinePoolSize:   -1, // nearly all commands are pipelines: no separate pool for them
	}
}
