package proc

import (
	"cmp"
	"context"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"
)

// RedisConfig is how to run a redis-server.
type RedisConfig struct {
	Dir     string   // an existing directory for the log
	Name    string   // "redis" when empty
	Address string   // 127.0.0.1:port; a free port when empty. Give the old one to come back after Kill
	Args    []string // more of redis-server's arguments, such as "--requirepass", "secret"
}

// A Redis is a running redis-server that answers. It keeps nothing on disk.
type Redis struct {
	*Process
	address string
}

// StartRedis runs a redis-server and returns when it answers a PING. ctx bounds
// the start only.
func StartRedis(ctx context.Context, c RedisConfig) (*Redis, error) {
	c.Name = cmp.Or(c.Name, "redis")
	if c.Address == "" {
		addr, err := FreeAddress()
		if err != nil {
			return nil, err
		}
		c.Address = addr
	}
	host, port, err := net.SplitHostPort(c.Address)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Name, err)
	}
	args := append([]string{"--bind", host, "--port", port, "--save", "", "--appendonly", "no", "--dir", c.Dir},
		c.Args...)
	p, err := StartReady(ctx, Spec{Program: ProgramRedis, Name: c.Name, Args: args, Dir: c.Dir}, answersPing(c.Address))
	if err != nil {
		return nil, err
	}
	return &Redis{Process: p, address: c.Address}, nil
}

// Address returns where the server listens, host:port.
func (r *Redis) Address() string { return r.address }

// answersPing checks that something at addr speaks Redis. A server that wants a
// password refuses the PING and is ready all the same.
func answersPing(addr string) func(context.Context) error {
	return func(ctx context.Context) error {
		client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, PoolSize: 1})
		defer client.Close()
		err := client.Ping(ctx).Err()
		if err != nil && redis.HasErrorPrefix(err, "NOAUTH") {
			return nil
		}
		return err
	}
}
