package demo

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"steelyard/e2e/rig/modelsim"
)

// redisKey is where the requests in flight to the endpoints of the cluster are counted.
const redisKey = "inflight:" + clusterName

// A fleet is the simulated model servers and the Redis in which the requests in
// flight to them are counted.
type fleet struct {
	servers modelsim.Servers
	redis   *miniredis.Miniredis
	client  *redis.Client
	counter *modelsim.Counter
}

// startFleet starts n servers.
func startFleet(n int) (*fleet, error) {
	f := new(fleet)
	var err error
	if f.redis, err = miniredis.Run(); err != nil {
		return nil, fmt.Errorf("starting the embedded Redis: %w", err)
	}
	f.client = redis.NewClient(&redis.Options{Addr: f.redis.Addr()})
	f.counter = modelsim.NewCounter(f.client, redisKey, slog.New(slog.DiscardHandler))
	f.servers, err = modelsim.StartServers(n, func(i int) modelsim.Options { return serverOptions(i, f.counter) })
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	for _, s := range f.servers {
		f.counter.Track(s.Address())
	}
	return f, nil
}

// serverOptions makes a mixed fleet: vLLM and Triton take turns, and so that
// both have slow ones, every third server is slow.
func serverOptions(i int, observer modelsim.Observer) modelsim.Options {
	o := modelsim.Options{Engine: modelsim.VLLM, Slots: slots, Speed: 1, RealSize: true, Observer: observer}
	if i%2 == 1 {
		o.Engine, o.MetricsAddress = modelsim.Triton, "127.0.0.1:0"
	}
	if i%3 == 2 {
		o.Speed = slowSpeed
	}
	return o
}

// close stops the servers and then the Redis that they count in.
func (f *fleet) close() error {
	defer f.redis.Close()
	return errors.Join(f.servers.Close(), f.client.Close())
}

// capacity is how many requests of mean length all servers together complete in
// a second.
func (f *fleet) capacity() float64 {
	sum := 0.0
	for _, s := range f.servers {
		sum += f.capacityOf(s)
	}
	return sum
}

func (f *fleet) capacityOf(s *modelsim.Server) float64 {
	o := s.Options()
	return float64(o.Slots) * o.Speed / meanService.Seconds()
}

// equalSplit is the load of the slowest server, as a share of its capacity, when
// all get the same number of requests.
func (f *fleet) equalSplit(rate float64) float64 {
	worst := 0.0
	for _, s := range f.servers {
		worst = max(worst, rate/float64(len(f.servers))/f.capacityOf(s))
	}
	return worst
}

// endpoints describes the servers, in their order.
func (f *fleet) endpoints() []endpoint {
	all := make([]endpoint, len(f.servers))
	for i, s := range f.servers {
		all[i] = endpointOf(s)
	}
	return all
}

// served is the number of requests that each server has executed.
func (f *fleet) served() []uint64 {
	all := make([]uint64, len(f.servers))
	for i, s := range f.servers {
		all[i] = s.Served()
	}
	return all
}

// config is the text of Steelyard's configuration for this fleet. tokens is the file of its admin tokens.
func (f *fleet) config(tokens string) []byte {
	return configOf(f.servers, settings{
		admin: fmt.Sprintf(", tokens_file: %q, anonymous_view: true", tokens), redis: f.redis.Addr(),
		cluster: fmt.Sprintf("    capacity: %d\n    inflight: {redis_key: \"inflight:{cluster}\"}\n", slots)})
}
