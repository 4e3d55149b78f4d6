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

// Options define how Redis is reached and how often it is read.
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
	// SentinelUsername is the ACL user at the sentinels, and SentinelPasswordFile holds its password, or that of
	// requirepass there; both only with ModeSentinel. The library takes a password of sentinels as a text, so the
	// file is read when a Poller begins to run, and by each call of what Connector returns.
	SentinelUsername     string
	SentinelPasswordFile string
	// DB is the number of the logical database. A Redis Cluster has only 0.
	DB int
	// TLS encrypts the connections, those to the sentinels too; nil means plain. Without ServerName it is the host that
	// is connected to.
	TLS *credentials.Client
	// Credentials have the files of TLS, and keep them up to date; nil means that they are read once.
	Credentials *credentials.Store
	// Interval is the time between two polls, default 50 ms.
	Interval time.Duration
	// Timeout is how long a poll may take, at most Interval; default 40 ms, or
	// Interval if that is less.
	Timeout time.Duration
	// Replica identifies this process among those that keep the members of the same sets (SetMembers).
	Replica string
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
	case o.Mode != ModeSentinel && o.SentinelPasswordFile != "":
		return fmt.Errorf("sentinel_password_file has no meaning in mode %q; leave it out or use mode %q", o.Mode,
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
	if o.SentinelUsername != "" && o.SentinelPasswordFile == "" {
		return fmt.Errorf("sentinel_password_file is missing; user %q needs one", o.SentinelUsername)
	}
	_, err := passwordIn(context.Background(), o.PasswordFile)
	_, ofSentinels := passwordIn(context.Background(), o.SentinelPasswordFile)
	return errors.Join(err, ofSentinels)
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

// background bounds the library's exchanges that belong to no poll: finding the master or the slots, and finishing a
// slow connection.
const background = time.Second

// universal returns the options in the library's form. There is one poll at a time, so more than one connection per
// server is only needed while an old one is being closed.
func (o Options) universal(d *dialer) *redis.UniversalOptions {
	// A file that can no longer be read shows as NOAUTH of the sentinels.
	ofSentinels, _ := passwordIn(context.Background(), o.SentinelPasswordFile)
	return &redis.UniversalOptions{
		Addrs:         o.Addresses,
		MasterName:    o.MasterName,
		IsClusterMode: o.Mode == ModeCluster,
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
		ReadTimeout:           max(background, o.Timeout),
		WriteTimeout:          max(background, o.Timeout),
		PoolTimeout:           max(background, o.Timeout),

		// PoolSize is also the number of failed connections in a row after which
		// the library falls back to one attempt a second.
		PoolSize:           64,
		MaxConcurrentDials: 2,
		PipelinePoolSize:   -1, // nearly all commands are pipelines: no separate pool for them
	}
}
