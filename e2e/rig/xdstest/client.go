package xdstest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

// maxResponse is far above any assignment that a test sends.
const maxResponse = 64 << 20

// A Config describes the Envoy that the client imitates.
type Config struct {
	Address  string // of the server, host:port
	ADS      bool   // over ADS instead of a stream of its own
	Delta    bool
	NodeID   string
	Clusters []string // subscribed to in the first request

	// Extensions is the number of extensions in the node; a real Envoy lists
	// several hundred, about 61 KB.
	Extensions int
	// Version is the version of the first request, as after a reconnect; InitialVersions are those of delta, by name.
	Version         string
	InitialVersions map[string]string
	// Refuse is called with every assignment; the client sends its error as a NACK. It must be quick. Nil accepts
	// everything.
	Refuse func(*endpointv3.ClusterLoadAssignment) error
	// HoldAnswers keeps the client from answering until Answer is called.
	HoldAnswers bool
	// Accepted is called with every assignment right after its ACK was sent, and with the version of the resource
	// (delta) or of the response. It must be quick and must not call the client. It may be nil.
	Accepted func(cluster, version string, message []byte)
}

// A Client is a connected Envoy. Its methods can be called from any goroutine.
type Client struct {
	config Config
	conn   *grpc.ClientConn
	cancel context.CancelFunc
	done   chan struct{}

	mu        sync.Mutex
	wire      wire
	names     []string
	state     State
	held      []response
	accepting bool // answer at once
	changed   chan struct{}
}

// State is what the client has received and sent. The caller may change the maps and slices.
type State struct {
	Responses int // of any type
	Empty     int // responses without a resource
	Received  map[string]int
	Messages  map[string][]byte // accepted last, by cluster
	Versions  map[string]string // of the resource (delta), by cluster
	Removed   []string          // by the server (delta)
	Version   string            // of the last response
	OtherType int               // responses of another type than endpoints
	Refused   int               // NACKs sent
	Err       error             // why the stream ended
}

// Dial connects, subscribes, and answers until Close.
func Dial(c Config) (*Client, error) {
	conn, err := grpc.NewClient("passthrough:///"+c.Address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", c.Address, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	client := &Client{
		config:    c,
		conn:      conn,
		cancel:    cancel,
		done:      make(chan struct{}),
		names:     slices.Clone(c.Clusters),
		accepting: !c.HoldAnswers,
		changed:   make(chan struct{}),
		state:     State{Received: map[string]int{}, Messages: map[string][]byte{}, Versions: map[string]string{}},
	}
	if client.wire, err = open(ctx, conn, c, node(c)); err == nil {
		err = client.wire.subscribe(client.names, client.names, nil)
	}
	if err != nil {
		cancel()
		conn.Close()
		return nil, fmt.Errorf("subscribing to %q at %s: %w", c.Clusters, c.Address, err)
	}
	go client.run()
	return client, nil
}

func node(c Config) *corev3.Node {
	n := &corev3.Node{
		Id:            c.NodeID,
		Cluster:       "test",
		Locality:      &corev3.Locality{Region: "here", Zone: "a"},
		UserAgentName: "envoy",
		UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
			Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40},
		}},
	}
	for i := range c.Extensions {
		n.Extensions = append(n.Extensions, &corev3.Extension{
			Name:     fmt.Sprintf("envoy.filters.some.extension.%d", i),
			Category: "envoy.filters.http",
			TypeUrls: []string{fmt.Sprintf("envoy.extensions.filters.http.some.v3.Extension%d", i)},
		})
	}
	return n
}

func (c *Client) run() {
	defer close(c.done)
	for {
		r, err := c.wire.receive()
		c.mu.Lock()
		if err == nil {
			err = c.take(r)
		}
		c.state.Err = err
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// take counts a response and answers it, at once or when Answer is called.
func (c *Client) take(r response) error {
	c.state.Responses++
	if r.typeURL != EndpointType {
		c.state.OtherType++
		return nil
	}
	if len(r.parts) == 0 {
		c.state.Empty++
	}
	c.state.Version = r.version
	c.state.Removed = append(c.state.Removed, r.removed...)
	for _, p := range r.parts {
		c.state.Received[p.name]++
	}
	if !c.accepting {
		c.held = append(c.held, r)
		return nil
	}
	return c.answer(r)
}

func (c *Client) answer(r response) error {
	reason := c.judge(r)
	if reason != nil {
		c.state.Refused++
		return c.wire.answer(r, c.names, reason)
	}
	for _, p := range r.parts {
		c.state.Messages[p.name] = p.message
		c.state.Versions[p.name] = p.version
	}
	if err := c.wire.answer(r, c.names, nil); err != nil {
		return err
	}
	if c.config.Accepted != nil {
		for _, p := range r.parts {
			c.config.Accepted(p.name, cmp.Or(p.version, r.version), p.message)
		}
	}
	return nil
}

func (c *Client) judge(r response) error {
	if c.config.Refuse == nil {
		return nil
	}
	for _, p := range r.parts {
		m, err := parse(p.message)
		if err == nil {
			err = c.config.Refuse(m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Answer answers the oldest unanswered response, or, if all is set, all of them, and from then on each at once.
func (c *Client) Answer(all bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accepting = all
	for len(c.held) > 0 {
		r := c.held[0]
		c.held = c.held[1:]
		if err := c.answer(r); err != nil {
			return err
		}
		if !all {
			break
		}
	}
	return nil
}

// Subscribe adds and removes names.
func (c *Client) Subscribe(add, remove []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = slices.DeleteFunc(c.names, func(n string) bool { return slices.Contains(remove, n) })
	c.names = append(c.names, add...)
	return c.wire.subscribe(c.names, add, remove)
}

// Ask asks for all resources of another type, over ADS.
func (c *Client) Ask(typeURL string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wire.ask(typeURL)
}

// State returns a copy of the current state.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.copyState()
}

func (c *Client) copyState() State {
	s := c.state
	s.Received = maps.Clone(s.Received)
	s.Messages = maps.Clone(s.Messages)
	s.Versions = maps.Clone(s.Versions)
	s.Removed = slices.Clone(s.Removed)
	return s
}

// Wait blocks until the state is as wanted, and returns it. It fails when ctx or the stream ends before.
func (c *Client) Wait(ctx context.Context, wanted func(State) bool) (State, error) {
	for {
		c.mu.Lock()
		s, changed := c.copyState(), c.changed
		c.mu.Unlock()
		if wanted(s) {
			return s, nil
		}
		if s.Err != nil {
			return s, fmt.Errorf("the stream ended: %w", s.Err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s, fmt.Errorf("waiting for the stream: %w", ctx.Err())
		}
	}
}

// Assignment returns the one accepted last, nil if there is none.
func (s State) Assignment(cluster string) *endpointv3.ClusterLoadAssignment {
	b, ok := s.Messages[cluster]
	if !ok {
		return nil
	}
	m, err := parse(b)
	if err != nil {
		return nil
	}
	return m
}

func parse(b []byte) (*endpointv3.ClusterLoadAssignment, error) {
	m := &endpointv3.ClusterLoadAssignment{}
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("parsing an assignment: %w", err)
	}
	return m, nil
}

// Close closes the stream and the connection, and waits until they are closed.
func (c *Client) Close() {
	c.cancel()
	<-c.done
	c.conn.Close()
}
