package inflight

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// pollOnce reads keys once from a server on address, with time enough.
func pollOnce(t *testing.T, address string, keys ...Key) []Result {
	t.Helper()
	p, err := New(Options{Addresses: []string{address}, Interval: 10 * time.Second, Timeout: 10 * time.Second}, nil,
		quiet)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewUniversalClient(p.o.universal(p.dialer))
	defer p.dialer.close()
	defer client.Close()
	return p.read(context.Background(), client, keys)
}

type resultCase struct {
	name     string
	fill     func(m *miniredis.Miniredis)
	requests map[string]float64
	err      []string // parts of the error, in this order; none: no error
}

// fillWith adds n members with a count of one, and returns what is read of them.
func fillWith(n int) (func(m *miniredis.Miniredis), map[string]float64) {
	want := map[string]float64{}
	for i := range n {
		want[fmt.Sprint(i)] = 1
	}
	return func(m *miniredis.Miniredis) {
		for member := range want {
			_, _ = m.ZAdd("k", 1, member)
		}
	}, want
}

func resultCases() []resultCase {
	fillToLimit, all := fillWith(MaxMembers)
	fillAboveLimit, _ := fillWith(MaxMembers + 1)
	return []resultCase{
		{
			name: "a sorted set is read whole",
			fill: func(m *miniredis.Miniredis) {
				_, _ = m.ZAdd("k", 3, "10.0.0.1:8000")
				_, _ = m.ZAdd("k", 0, "[2001:db8::1]:8000")
				_, _ = m.ZAdd("k", 1.5, "10.0.0.2:8000")
			},
			requests: map[string]float64{"10.0.0.1:8000": 3, "[2001:db8::1]:8000": 0, "10.0.0.2:8000": 1.5},
		},
		{
			name: "a missing key is unknown and no error",
			fill: func(*miniredis.Miniredis) {},
		},
		{
			name: "a string is an error with the key's name",
			fill: func(m *miniredis.Miniredis) { _ = m.Set("k", "7") },
			err:  []string{`"k"`, "not a sorted set", "WRONGTYPE"},
		},
		{
			name: "scores that are no counts are named and left out, the others stay",
			fill: func(m *miniredis.Miniredis) {
				_, _ = m.ZAdd("k", -2, "10.0.0.1:8000")
				_, _ = m.ZAdd("k", math.Inf(1), "10.0.0.2:8000")
				_, _ = m.ZAdd("k", math.Inf(-1), "10.0.0.3:8000")
				_, _ = m.ZAdd("k", 4, "10.0.0.4:8000")
			},
			requests: map[string]float64{"10.0.0.4:8000": 4},
			err:      []string{`"k"`, `"10.0.0.3:8000" = -Inf`, `"10.0.0.1:8000" = -2`, `"10.0.0.2:8000" = +Inf`},
		},
		{
			name: "an error stays short whatever the set holds",
			fill: func(m *miniredis.Miniredis) {
				for i := range 9 {
					_, _ = m.ZAdd("k", -1, fmt.Sprintf("%d%s", i, strings.Repeat("x", 1000)))
				}
			},
			requests: map[string]float64{},
			err:      []string{`"k"`, `"0xxx`, `"4xxx`, "and 4 more"},
		},
		{
			name:     "a set at the limit is read",
			fill:     fillToLimit,
			requests: all,
		},
		{
			name: "a set above the limit is not used at all",
			fill: fillAboveLimit,
			err:  []string{`"k"`, "more than 10000 members"},
		},
	}
}

func TestResultOfOneKey(t *testing.T) {
	for _, tt := range resultCases() {
		t.Run(tt.name, func(t *testing.T) {
			m := miniredis.RunT(t)
			tt.fill(m)
			before := time.Now()
			got := pollOnce(t, m.Addr(), Key{Cluster: "llama", Key: "k"})[0]
			if got.Cluster != "llama" || got.Key != "k" {
				t.Errorf("result is of %q %q", got.Cluster, got.Key)
			}
			if got.At.Before(before) || got.At.After(time.Now()) {
				t.Errorf("At %v is outside of the exchange", got.At)
			}
			if d := cmp.Diff(tt.requests, got.Requests); d != "" {
				t.Errorf("Requests (-want +got):\n%s", d)
			}
			wantError(t, got.Err, tt.err...)
			if got.Err != nil && len(got.Err.Error()) > 1000 {
				t.Errorf("error of %d bytes", len(got.Err.Error()))
			}
		})
	}
}

// wantError asserts that err has all the parts in their order, or is nil when
// there are none.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if len(parts) == 0 {
		if err != nil {
			t.Errorf("unexpected error: %v", err)
		}
		return
	}
	if err == nil {
		t.Errorf("no error, want one with %q", parts)
		return
	}
	rest := err.Error()
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("error %q does not have %q in its place", err, part)
			return
		}
		rest = after
	}
}

func TestScoreThatIsNotANumberIsLeftOut(t *testing.T) {
	got, err := counts("k", []redis.Z{{Member: "a:1", Score: math.NaN()}, {Member: "b:1", Score: 2}})
	if d := cmp.Diff(map[string]float64{"b:1": 2}, got); d != "" {
		t.Errorf("Requests (-want +got):\n%s", d)
	}
	wantError(t, err, `"k"`, `"a:1" = NaN`)
}

func TestFaultOfOneKeyChangesNoOther(t *testing.T) {
	m := miniredis.RunT(t)
	_, _ = m.ZAdd("inflight:a", 1, "10.0.0.1:80")
	_ = m.Set("inflight:b", "x")
	_, _ = m.ZAdd("inflight:c", 2, "10.0.0.2:80")
	got := pollOnce(t, m.Addr(), Key{"a", "inflight:a"}, Key{"b", "inflight:b"}, Key{"c", "inflight:c"})
	wantError(t, got[0].Err)
	wantError(t, got[1].Err, `"inflight:b"`)
	wantError(t, got[2].Err)
	if d := cmp.Diff(map[string]float64{"10.0.0.1:80": 1}, got[0].Requests); d != "" {
		t.Errorf("first key (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]float64{"10.0.0.2:80": 2}, got[2].Requests); d != "" {
		t.Errorf("last key (-want +got):\n%s", d)
	}
}

func TestAllKeysTakeOneRoundTrip(t *testing.T) {
	m := miniredis.RunT(t)
	var keys []Key
	for i := range 10 {
		k := Key{fmt.Sprint(i), fmt.Sprint("inflight:", i)}
		_, _ = m.ZAdd(k.Key, float64(i), "10.0.0.1:80")
		keys = append(keys, k)
	}
	writes := 0
	p, err := New(Options{Addresses: []string{m.Addr()}, Interval: 10 * time.Second, Timeout: 10 * time.Second}, nil,
		quiet)
	if err != nil {
		t.Fatal(err)
	}
	o := p.o.universal(p.dialer)
	o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := p.dialer.dial(ctx, network, address)
		return &countingConn{Conn: c, writes: &writes}, err
	}
	client := redis.NewUniversalClient(o)
	defer p.dialer.close()
	defer client.Close()
	p.read(context.Background(), client, keys) // connects
	writes = 0
	for i, r := range p.read(context.Background(), client, keys) {
		if r.Err != nil || r.Requests["10.0.0.1:80"] != float64(i) {
			t.Errorf("key %d: %s", i, describe(r))
		}
	}
	if writes != 1 {
		t.Errorf("ten keys took %d writes to the connection, want 1", writes)
	}
}

type countingConn struct {
	net.Conn
	writes *int
}

func (c *countingConn) Write(p []byte) (int, error) { *c.writes++; return c.Conn.Write(p) }

func TestEndlessAnswerIsCutOff(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		defer far.Close()
		junk := make([]byte, 1<<20)
		for {
			if _, err := far.Write(junk); err != nil {
				return
			}
		}
	}()
	n, err := io.Copy(io.Discard, bounded(near))
	if n > maxReply {
		t.Errorf("%d bytes came through, the bound is %d", n, maxReply)
	}
	wantError(t, err, "above 33554432 bytes")
}

func TestBoundStartsAgainWithEveryWrite(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		defer far.Close()
		_, _ = io.Copy(far, far) // an echo
	}()
	c := bounded(near)
	piece := make([]byte, 1<<20)
	for range 2 * maxReply / len(piece) {
		go func() { _, _ = c.Write(piece) }()
		if _, err := io.ReadFull(c, make([]byte, len(piece))); err != nil {
			t.Fatal(err)
		}
	}
}
