package inflight

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"steelyard/internal/credentials"
	"steelyard/internal/files"
)

// The modes of Options.Mode.
const (
	ModeSingle   = "single"   // one server
	ModeSentinel = "sentinel" // the master that the sentinels name
	ModeCluster  = "cluster"  // a Redis Cluster, reached through any of its nodes
)

// The defaults of Options.
const (
	DefaultInterval = 50 * time.Millisecond
	DefaultTimeout  = 40 * time.Millisecond
)

// maxPasswordFile bounds the password file, in bytes.
const maxPasswordFile = 64 << 10

// Options say how Redis is reached and how often it is read.
type Options struct {
	// Addresses are host:port: of the server (exactly one), of the sentinels, or
	// of some nodes of the Redis Cluster.
	Addresses []string
	// Mode is one of ModeSingle, ModeSentinel, ModeCluster; empty means single.
	Mode string
	// MasterName is the name of the master that the sentinels watch; only and
	// always with ModeSentinel.
	MasterName string
	// Username is the ACL user; empty means the default user.
	Username string
	// PasswordFile holds the password, with or without a newline at its end. It
	// is read again for every new connection. Empty means no password.
	PasswordFile string
	// DB is the number of the logical database. A Redis Cluster has only 0.
	DB int
	// TLS encrypts the connections, those to the sentinels too; nil means plain.
	TLS *TLS
	// Credentials have the files of TLS, and keep them up to date; nil means that they are read once.
	Credentials *credentials.Store
	// Interval is the time between two polls, default 50 ms.
	Interval time.Duration
	// Timeout is how long a poll may take, at most Interval; default 40 ms, or
	// Interval if that is less.
	Timeout time.Duration
	// Replica identifies this process among those that keep the members of the same sets (SetMembers).
	Replica string
	// Progress watches that the Poller goes on; nil: nobody does.
	Progress Progress
}

// A Progress is told when work begins that ends soon whatever Redis does, and when it has ended: the sink, and a poll
// from its timeout on. A poll that waits for Redis within its timeout is no such work.
type Progress interface {
	Begin()
	End()
}

type unwatched struct{}

func (unwatched) Begin() {}
func (unwatched) End()   {}

// TLS makes the connections to Redis encrypted and checks the server.
type TLS struct {
	// CAFile holds the PEM certificates that may sign the server's; empty means
	// the system's.
	CAFile string
	// CertFile and KeyFile are the client's certificate and key in PEM; both or
	// none. All files are those of Options.Credentials.
	CertFile, KeyFile string
	// ServerName is the name expected in the server's certificate; empty means
	// the host that is connected to.
	ServerName string
}

func (o Options) withDefaults() Options {
	if o.Mode == "" {
		o.Mode = ModeSingle
	}
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	if o.Timeout == 0 {
		o.Timeout = min(DefaultTimeout, o.Interval)
	}
	if o.Progress == nil {
		o.Progress = unwatched{}
	}
	return o
}

// validate returns all errors of options that have their defaults.
func (o Options) validate() error {
	return errors.Join(o.validateAddresses(), o.validateMode(), o.validateAuth(), o.validateTimes())
}

func (o Options) validateAddresses() error {
	if len(o.Addresses) == 0 {
		return errors.New("addresses: none given; write at least one host:port")
	}
	if o.Mode == ModeSingle && len(o.Addresses) > 1 {
		return fmt.Errorf("addresses: mode %q takes exactly one, got %d; use mode %q or %q for several",
			ModeSingle, len(o.Addresses), ModeSentinel, ModeCluster)
	}
	for _, a := range o.Addresses {
		if host, port, err := net.SplitHostPort(a); err != nil || host == "" || port == "" {
			return fmt.Errorf("addresses: %q is not host:port, such as 127.0.0.1:6379", a)
		}
	}
	return nil
}

func (o Options) validateMode() error {
	switch o.Mode {
	case ModeSingle, ModeSentinel, ModeCluster:
	default:
		return fmt.Errorf("mode %q is not known; write %s, %s or %s", o.Mode, ModeSingle, ModeSentinel, ModeCluster)
	}
	switch {
	case o.Mode == ModeSentinel && o.MasterName == "":
		return fmt.Errorf("master_name is missing; mode %q needs the name the sentinels know the master by",
			ModeSentinel)
	case o.Mode != ModeSentinel && o.MasterName != "":
		return fmt.Errorf("master_name %q has no meaning in mode %q; leave it out or use mode %q", o.MasterName, o.Mode,
			ModeSentinel)
	case o.DB < 0:
		return fmt.Errorf("db %d is negative; write 0 or the database's number", o.DB)
	case o.Mode == ModeCluster && o.DB != 0:
		return fmt.Errorf("db %d: a Redis Cluster has only database 0; leave db out", o.DB)
	}
	return nil
}

func (o Options) validateAuth() error {
	if o.Username != "" && o.PasswordFile == "" {
		return fmt.Errorf("password_file is missing; user %q needs one", o.Username)
	}
	_, err := o.password(context.Background())
	return err
}

func (o Options) validateTimes() error {
	switch {
	case o.Interval < time.Millisecond:
		return fmt.Errorf("interval %v is below 1ms", o.Interval)
	case o.Timeout < time.Millisecond:
		return fmt.Errorf("timeout %v is below 1ms", o.Timeout)
	case o.Timeout > o.Interval:
		return fmt.Errorf("timeout %v is above the interval %v; a poll must end before the next begins", o.Timeout,
			o.Interval)
	}
	return nil
}

// password reads the password file again.
func (o Options) password(ctx context.Context) (string, error) {
	if o.PasswordFile == "" {
		return "", nil
	}
	return Password(ctx, o.PasswordFile)
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

// background bounds the conversations of the library that belong to no poll:
// looking up the master, the slots, and finishing a slow connection.
const background = time.Second

// universal makes the library's form. There is one poll at a time, so more than
// one connection per server is only ever needed while an old one is being given
// up.
func (o Options) universal(d *dialer) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs:         o.Addresses,
		MasterName:    o.MasterName,
		IsClusterMode: o.Mode == ModeCluster,
		DB:            o.DB,
		CredentialsProviderContext: func(ctx context.Context) (string, string, error) {
			password, err := o.password(ctx)
			return o.Username, password, err
		},
		Dialer: d.dial,

		Protocol:                 2,    // replies only: nothing here subscribes on the polling connection
		DisableIdentity:          true, // no client name either: both take rights beyond reading and a round trip
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},

		MaxRetries:            -1, // the next interval is the retry
		MaxRedirects:          2,  // slots on the move: follow, within the poll's timeout
		DialerRetries:         1,
		ContextTimeoutEnabled: true,
		DialTimeout:           max(background, o.Timeout),
		ReadTimeout:           max(background, o.Timeout),
		WriteTimeout:          max(background, o.Timeout),
		PoolTimeout:           max(background, o.Timeout),

		// PoolSize is also the number of failed connections in a row after which
		// the library falls back to one attempt a second.
		PoolSize:           64,
		MaxConcurrentDials: 2,
		PipelinePoolSize:   -1, // pipelines are nearly all there is: no pool of their own
	}
}
