package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	grpccredentials "google.golang.org/grpc/credentials"

	"steelyard/internal/credentials"
	"steelyard/picking"
	"steelyard/picking/prefix"
	"steelyard/xds/loads/follow"
)

// A settings is the filter's configuration, JSON.
type settings struct {
	Steelyard string `json:"steelyard"` // its xDS listener, host:port
	Cluster   string `json:"cluster"`   // of Steelyard's configuration
	Name      string `json:"name"`      // under which Steelyard shows this Envoy's picker
	CAFile    string `json:"ca_file"`   // authorities of Steelyard's certificate; empty: plain text
	CertFile  string `json:"cert_file"` // client certificate and its key
	KeyFile   string `json:"key_file"`
	// ServerName is expected in Steelyard's certificate; empty: the host of Steelyard.
	ServerName string `json:"server_name"`
	// PrefixBytes is how much of a body is read for its prompt, before the request goes on; 0: nothing.
	PrefixBytes int `json:"prefix_bytes"`
}

func parse(text string) (s settings, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("filter_config: want JSON such as {\"steelyard\": \"10.0.0.5:18000\", \"cluster\": "+
			"\"llama\"}: %w", err)
	}
	if s.Steelyard == "" || s.Cluster == "" {
		return s, errors.New("filter_config: steelyard (HOST:PORT) and cluster are required")
	}
	if s.PrefixBytes < 0 || s.PrefixBytes > prefix.MaxKeyBody {
		return s, fmt.Errorf("filter_config: prefix_bytes is %d, want 0 to %d", s.PrefixBytes, prefix.MaxKeyBody)
	}
	return s, nil
}

// A filter is one configuration of the filter in Envoy. Envoy makes a new one with each update of its listener.
type filter struct {
	pool        *follow.Pool
	waiter      *follow.Waiter
	cluster     string
	prefixBytes int
	counters    map[string]uint64 // Envoy's numbers of them, by reason
	routes      uint64            // Envoy's number of their gauge
	ends        []func()          // to be called once, the last one first
}

func (f *filter) stop() {
	for _, end := range slices.Backward(f.ends) {
		end()
	}
}

// followers are shared by all configurations with the same settings, so that an update of the listener keeps the loads.
var followers = struct {
	sync.Mutex
	by map[settings]*shared
}{by: make(map[settings]*shared)}

type shared struct {
	follower *follow.Follower
	waiter   *follow.Waiter
	users    int
	end      func()
}

// newFilter follows the loads for one more configuration.
func newFilter(s settings, log *slog.Logger) (*filter, error) {
	followers.Lock()
	defer followers.Unlock()
	f := followers.by[s]
	if f == nil {
		var err error
		if f, err = start(s, log); err != nil {
			return nil, err
		}
		followers.by[s] = f
	}
	f.users++
	return &filter{pool: f.follower.Pool(s.Cluster), waiter: f.waiter, cluster: s.Cluster, prefixBytes: s.PrefixBytes,
		ends: []func(){func() { release(s) }}}, nil
}

func start(s settings, log *slog.Logger) (*shared, error) {
	var tls grpccredentials.TransportCredentials
	store := credentials.New(log)
	store.Guard = guard
	if s.CAFile != "" {
		var err error
		if tls, err = follow.TLS(context.Background(), store, credentials.Client{CAFile: s.CAFile, CertFile: s.CertFile,
			KeyFile: s.KeyFile, ServerName: s.ServerName}); err != nil {
			return nil, err
		}
	}
	conn, err := follow.Dial(s.Steelyard, tls)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &shared{follower: follow.New(conn, s.Name, []string{s.Cluster}, log)}
	f.follower.Guard = guard
	if s.PrefixBytes > 0 {
		f.follower.LearnRoutes()
	}
	f.waiter = f.follower.NewWaiter(s.Cluster)
	var loops sync.WaitGroup
	for _, run := range []func(context.Context) error{f.follower.Run, f.waiter.Run, store.Run} {
		loops.Go(func() {
			follow.Again(ctx, guard, func(ctx context.Context) { _ = run(ctx) }) // nil once ctx is done
		})
	}
	f.end = func() {
		cancel()
		loops.Wait()
		conn.Close()
	}
	return f, nil
}

// release ends the stream with the last configuration that uses it.
func release(s settings) {
	followers.Lock()
	defer followers.Unlock()
	f := followers.by[s]
	if f.users--; f.users == 0 {
		delete(followers.by, s)
		f.end()
	}
}

// sizeOf is the size of a request by its content-length, -1 where that says nothing.
func sizeOf(contentLength string) int64 {
	size, err := strconv.ParseInt(contentLength, 10, 64)
	if err != nil || size < 0 {
		return -1
	}
	return size
}

// choose names the endpoints for a request, comma separated, or none, with the reason. The prompt may be nil.
func (f *filter) choose(r picking.Request, prompt *prefix.Prompt) (endpoints, reason string) {
	c := f.pool.Choose(time.Now(), r, prompt)
	if c.Address == "" {
		return "", string(c.Reason)
	}
	return strings.Join(append([]string{c.Address}, c.Others...), ","), string(c.Reason)
}
