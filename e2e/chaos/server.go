package chaos

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"steelyard/e2e/rig/modelsim"
)

// asServer in the environment makes the program a model server: its address and
// Redis', with a comma between them.
const asServer = "STEELYARD_CHAOS_SERVER"

const (
	slots        = 4                      // of each server
	places       = 2                      // of each server, where requests wait in a queue
	drainServer  = 8 * time.Second        // how long a server may take to finish its requests after SIGTERM
	countEvery   = 50 * time.Millisecond  // between two writes of the count of requests in flight
	countTimeout = 500 * time.Millisecond // of one
)

// BeServer makes the program a model server, until it is ended by SIGTERM, if that
// is what a run has started it as. Programs that call Run call it first: model servers
// are processes of their own, so that they can be killed and stopped.
func BeServer() {
	address, redisAddress, ok := strings.Cut(os.Getenv(asServer), ",")
	if !ok {
		return
	}
	if err := serveModel(address, redisAddress); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serveModel(address, redisAddress string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := modelsim.Start(modelsim.Options{Address: address, Slots: slots})
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{
		Addr: redisAddress, MaxRetries: -1,
		DialTimeout: countTimeout, ReadTimeout: countTimeout, WriteTimeout: countTimeout,
	})
	defer client.Close()
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		count(client, s)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	drain, cancel := context.WithTimeout(context.Background(), drainServer)
	defer cancel()
	err = s.Shutdown(drain)
	count(client, s)
	return err
}

// count writes the number of requests in flight, as a picker in front of the server would. It writes the number and not
// a change, so that it is right again after Redis or a server was down. While Redis is down the write fails.
func count(client *redis.Client, s *modelsim.Server) {
	member := redis.Z{Score: float64(s.InFlight()), Member: s.Address()}
	_ = client.ZAdd(context.Background(), redisKey, member).Err()
}
