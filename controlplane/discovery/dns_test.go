package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	mdns "github.com/miekg/dns"
)

// A zone is a Resolver out of a table that can be written to while it is used.
type zone struct {
	mu        sync.Mutex
	addresses map[string][]string // "network name" -> IPs
	services  map[string][]*net.SRV
	failures  map[string]error // name -> what its look-ups end in; nil: never
	asked     []time.Time
}

var errHang = errors.New("hangs until the context ends")

func (z *zone) set(write func(z *zone)) {
	z.mu.Lock()
	defer z.mu.Unlock()
	write(z)
}

func (z *zone) failure(ctx context.Context, name string) error {
	z.mu.Lock()
	z.asked = append(z.asked, time.Now())
	err := z.failures[name]
	z.mu.Unlock()
	if errors.Is(err, errHang) {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (z *zone) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if err := z.failure(ctx, host); err != nil {
		return nil, err
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	var addrs []netip.Addr
	for _, s := range z.addresses[network+" "+host] {
		addrs = append(addrs, netip.MustParseAddr(s))
	}
	return addrs, nil
}

func (z *zone) LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error) {
	if service != "" || proto != "" {
		return "", nil, fmt.Errorf("asked for service %q and proto %q", service, proto)
	}
	if err := z.failure(ctx, name); err != nil {
		return "", nil, err
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	return name, z.services[name], nil
}

func TestDNSAnswers(t *testing.T) {
	srv := func(target string, port, priority uint16) *net.SRV {
		return &net.SRV{Target: target, Port: port, Priority: priority}
	}
	tests := []struct {
		name string
		typ  string
		zone zone
		want []string
		err  []string

		partly bool // the set is used without what the error names
	}{
		{name: "A, sorted", typ: TypeA, zone: zone{addresses: map[string][]string{"ip4 x.": {"10.0.0.2",
			"::ffff:10.0.0.1"}}}, want: []string{"10.0.0.1:80", "10.0.0.2:80"}},
		{name: "A, an address twice", typ: TypeA,
			zone: zone{addresses: map[string][]string{"ip4 x.": {"10.0.0.1", "10.0.0.1"}}},
			want: []string{"10.0.0.1:80"}},
		{name: "AAAA", typ: TypeAAAA, zone: zone{addresses: map[string][]string{"ip6 x.": {"2001:db8::1"}}},
			want: []string{"[2001:db8::1]:80"}},
		{name: "A, no address", typ: TypeA, err: []string{`looking up A "x."`, "no address"}},
		{name: "A, failing", typ: TypeA, zone: zone{failures: map[string]error{"x.": errors.New("SERVFAIL")}},
			err: []string{`looking up A "x."`, "SERVFAIL"}},
		{name: "A, hanging", typ: TypeA, zone: zone{failures: map[string]error{"x.": errHang}},
			err: []string{`looking up A "x."`, "deadline exceeded"}},
		{name: "A, an address of no server", typ: TypeA,
			zone: zone{addresses: map[string][]string{"ip4 x.": {"0.0.0.0"}}},
			err:  []string{`looking up A "x."`, "no single server"}},
		{
			name: "SRV with two targets, of which one has both kinds of addresses", typ: TypeSRV,
			zone: zone{
				services:  map[string][]*net.SRV{"x.": {srv("b.", 81, 0), srv("a.", 80, 0), srv("b.", 82, 0)}},
				addresses: map[string][]string{"ip a.": {"2001:db8::1", "10.0.0.1"}, "ip b.": {"2001:db8::2"}},
			},
			want: []string{"10.0.0.1:80", "[2001:db8::2]:81", "[2001:db8::2]:82"},
		},
		{
			name: "SRV of several priorities", typ: TypeSRV,
			zone: zone{
				services: map[string][]*net.SRV{"x.": {srv("b.", 80, 10), srv("a.", 80, 1), srv("c.", 80, 1),
					srv("b.", 80, 2)}},
				addresses: map[string][]string{"ip a.": {"10.0.0.1"}, "ip b.": {"10.0.0.2"}, "ip c.": {"10.0.0.3"}},
			},
			want: []string{"10.0.0.1:80", "10.0.0.3:80"},
		},
		{
			name: "SRV with a target that does not resolve and never did", typ: TypeSRV,
			zone: zone{
				services:  map[string][]*net.SRV{"x.": {srv("a.", 80, 0), srv("b.", 80, 0)}},
				addresses: map[string][]string{"ip a.": {"10.0.0.1"}},
			},
			want: []string{"10.0.0.1:80"},
			err:  []string{"target of SRV record of x.: ", `target "b."`, "no address"}, partly: true,
		},
		{
			name: "A, one address of no server", typ: TypeA,
			zone: zone{addresses: map[string][]string{"ip4 x.": {"0.0.0.0", "10.0.0.1"}}},
			want: []string{"10.0.0.1:80"},
			err:  []string{"0.0.0.0:80 (A record of x.): ", "no single server"}, partly: true,
		},
		{
			name: "SRV, one record without a port", typ: TypeSRV,
			zone: zone{
				services:  map[string][]*net.SRV{"x.": {srv("a.", 80, 0), srv("b.", 0, 0)}},
				addresses: map[string][]string{"ip a.": {"10.0.0.1"}, "ip b.": {"10.0.0.2"}},
			},
			want: []string{"10.0.0.1:80"},
			err:  []string{"10.0.0.2:0 (SRV record of x.): ", "port 0"}, partly: true,
		},
		{
			name: "SRV with targets of which none resolves", typ: TypeSRV,
			zone: zone{services: map[string][]*net.SRV{"x.": {srv("a.", 80, 0), srv("b.", 80, 0)}}},
			err:  []string{`looking up SRV "x."`, "nothing in the answer", `"a."`, `"b."`},
		},
		{name: "SRV of a service that is not there", typ: TypeSRV,
			zone: zone{services: map[string][]*net.SRV{"x.": {srv(".", 0, 0)}}},
			err:  []string{`SRV "x."`, "no target"}},
		{name: "SRV, no answer", typ: TypeSRV, err: []string{`SRV "x."`, "no target"}},
		{name: "SRV, failing", typ: TypeSRV, zone: zone{failures: map[string]error{"x.": errors.New("REFUSED")}},
			err: []string{`looking up SRV "x."`, "REFUSED"}},
		{name: "SRV, too many targets", typ: TypeSRV,
			zone: zone{services: map[string][]*net.SRV{"x.": slices.Repeat([]*net.SRV{srv("a.", 80, 0)},
				MaxEndpoints+1)}}, err: []string{"more than 10000 targets"}},
	}
	for i := range tests {
		tt := &tests[i] // a zone has a lock
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := DNSConfig{Name: "x.", Type: tt.typ, Interval: 5 * time.Second, Resolver: &tt.zone}
				if tt.typ != TypeSRV {
					c.Port = 80
				}
				set, err := NewDNS(c, ignore, quiet).(*dnsSource).lookUp(t.Context())
				if d := cmp.Diff(tt.want, addressesOf(set)); d != "" {
					t.Errorf("addresses (-want +got):\n%s", d)
				}
				wantError(t, err, tt.err...)
				if _, partly := err.(*Omissions); partly != tt.partly { //nolint:errorlint // see Omissions
					t.Errorf("used in part: %v, want %v", partly, tt.partly)
				}
			})
		})
	}
}

func TestAddressesBeyondTheBoundAreLeftOutAndCounted(t *testing.T) {
	var ips []string
	for i := range MaxEndpoints + 1 {
		ips = append(ips, fmt.Sprintf("10.0.%d.%d", i/256, i%256))
	}
	z := &zone{addresses: map[string][]string{"ip4 x.": ips}}
	set, err := NewDNS(DNSConfig{Name: "x.", Type: TypeA, Port: 80, Interval: 5 * time.Second, Resolver: z}, ignore,
		quiet).(*dnsSource).lookUp(t.Context())
	if len(set) != MaxEndpoints {
		t.Errorf("a set of %d", len(set))
	}
	wantError(t, err, "10.0.39.16:80 (A record of x.): more than 10000 endpoints", "split the cluster")
}

// inBubble runs a source against z in a synctest bubble. step lets the given
// time pass and returns the sets sent meanwhile.
func inBubble(t *testing.T, c DNSConfig, test func(r *run, step func(time.Duration) [][]string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &run{t: t}
		up := make(chan []Endpoint)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- NewDNS(c, r.report, quiet).Run(ctx, up) }()
		test(r, func(d time.Duration) [][]string {
			var sets [][]string
			for end := time.After(d); ; {
				select {
				case set := <-up:
					sets = append(sets, addressesOf(set))
				case <-end:
					synctest.Wait()
					return sets
				}
			}
		})
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestDNSLoopSendsChangesAndKeepsTheSetThroughFailures(t *testing.T) {
	z := &zone{addresses: map[string][]string{"ip4 x.": {"10.0.0.1"}}, failures: map[string]error{}}
	c := DNSConfig{Name: "x.", Type: TypeA, Port: 80, Interval: 5 * time.Second, Resolver: z}
	inBubble(t, c, func(r *run, step func(time.Duration) [][]string) {
		want := func(what string, got [][]string, sets ...[]string) {
			t.Helper()
			if d := cmp.Diff(sets, got); d != "" {
				t.Errorf("%s: sets (-want +got):\n%s", what, d)
			}
		}
		want("at once", step(time.Millisecond), []string{"10.0.0.1:80"})
		want("unchanged", step(30*time.Second))

		z.set(func(z *zone) { z.addresses["ip4 x."] = []string{"10.0.0.2", "10.0.0.1"} })
		want("one more", step(6*time.Second), []string{"10.0.0.1:80", "10.0.0.2:80"})

		for _, failure := range []error{&net.DNSError{Err: "no such host", Name: "x.", IsNotFound: true}, errHang} {
			z.set(func(z *zone) { z.failures["x."] = failure })
			want("failing", step(20*time.Second))
			if _, err := r.lastReport(); err == nil {
				t.Errorf("%v was not reported", failure)
			}
		}
		z.set(func(z *zone) { z.failures["x."] = nil; z.addresses["ip4 x."] = nil })
		want("empty", step(20*time.Second))
		_, err := r.lastReport()
		wantError(t, err, "no address")

		z.set(func(z *zone) { z.addresses["ip4 x."] = []string{"10.0.0.2"} })
		want("back", step(6*time.Second), []string{"10.0.0.2:80"})
		_, err = r.lastReport()
		wantError(t, err)
	})
}

func TestDNSLoopAsksWithJitter(t *testing.T) {
	z := &zone{addresses: map[string][]string{"ip4 x.": {"10.0.0.1"}}}
	c := DNSConfig{Name: "x.", Type: TypeA, Port: 80, Interval: 10 * time.Second, Resolver: z}
	inBubble(t, c, func(_ *run, step func(time.Duration) [][]string) {
		step(10 * time.Minute)
		differ := false
		for i := 1; i < len(z.asked); i++ {
			gap := z.asked[i].Sub(z.asked[i-1])
			if gap < 9*time.Second || gap > 11*time.Second {
				t.Errorf("asked again after %v, want 9 s to 11 s", gap)
			}
			differ = differ || i > 1 && gap != z.asked[i-1].Sub(z.asked[i-2])
		}
		if len(z.asked) < 50 || !differ {
			t.Errorf("asked %d times in ten minutes, at different gaps: %v", len(z.asked), differ)
		}
	})
}

func TestDNSLoopIsQuickerUntilTheFirstAnswer(t *testing.T) {
	z := &zone{failures: map[string]error{"x.": errors.New("SERVFAIL")},
		addresses: map[string][]string{"ip4 x.": {"10.0.0.1"}}}
	c := DNSConfig{Name: "x.", Type: TypeA, Port: 80, Interval: time.Hour, Resolver: z}
	inBubble(t, c, func(_ *run, step func(time.Duration) [][]string) {
		step(10 * time.Second)
		z.set(func(z *zone) { delete(z.failures, "x.") })
		if d := cmp.Diff([][]string{{"10.0.0.1:80"}}, step(2*time.Second)); d != "" {
			t.Errorf("sets (-want +got):\n%s", d)
		}
		if len(z.asked) > 14 {
			t.Errorf("asked %d times in 12 s", len(z.asked))
		}
	})
}

func TestFailingSRVTargetKeepsItsAddressesAndTheOthersGoOn(t *testing.T) {
	z := &zone{
		services:  map[string][]*net.SRV{"x.": {{Target: "a.", Port: 80}, {Target: "b.", Port: 80}}},
		addresses: map[string][]string{"ip a.": {"10.0.0.1"}, "ip b.": {"10.0.0.2"}},
		failures:  map[string]error{},
	}
	c := DNSConfig{Name: "x.", Type: TypeSRV, Interval: 5 * time.Second, Resolver: z}
	inBubble(t, c, func(r *run, step func(time.Duration) [][]string) {
		if d := cmp.Diff([][]string{{"10.0.0.1:80", "10.0.0.2:80"}}, step(time.Second)); d != "" {
			t.Errorf("first (-want +got):\n%s", d)
		}
		z.set(func(z *zone) {
			z.failures["a."] = errors.New("SERVFAIL")
			z.addresses["ip b."] = []string{"10.0.0.3"}
		})
		if d := cmp.Diff([][]string{{"10.0.0.1:80", "10.0.0.3:80"}}, step(6*time.Second)); d != "" {
			t.Errorf("with a target failing (-want +got):\n%s", d)
		}
		_, err := r.lastReport()
		wantError(t, err, "1 of its targets", `"a."`, "SERVFAIL")
		z.set(func(z *zone) { z.services["x."] = z.services["x."][1:] })
		if d := cmp.Diff([][]string{{"10.0.0.3:80"}}, step(6*time.Second)); d != "" {
			t.Errorf("with the target gone from the records (-want +got):\n%s", d)
		}
		_, err = r.lastReport()
		wantError(t, err)
	})
}

// nameServer answers out of records on loopback, over UDP, and returns a
// resolver that asks it. A name without records does not exist.
func nameServer(t *testing.T, records func() []string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	s := &mdns.Server{PacketConn: conn, NotifyStartedFunc: func() { close(started) }}
	s.Handler = mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
		_ = w.WriteMsg(answer(q, records()))
	})
	done := make(chan error, 1)
	go func() { done <- s.ActivateAndServe() }()
	<-started
	t.Cleanup(func() {
		_ = s.Shutdown()
		<-done
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func answer(q *mdns.Msg, records []string) *mdns.Msg {
	m := new(mdns.Msg).SetReply(q)
	m.Authoritative = true
	exists := false
	for _, text := range records {
		rr, err := mdns.NewRR(text)
		if err != nil {
			panic(err)
		}
		if !strings.EqualFold(rr.Header().Name, q.Question[0].Name) {
			continue
		}
		exists = true
		if rr.Header().Rrtype == q.Question[0].Qtype {
			m.Answer = append(m.Answer, rr)
		}
	}
	if !exists {
		m.Rcode = mdns.RcodeNameError
	}
	return m
}

func TestRealNameServer(t *testing.T) {
	var mu sync.Mutex
	var records []string
	set := func(r ...string) {
		mu.Lock()
		defer mu.Unlock()
		records = r
	}
	resolver := nameServer(t, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(records)
	})
	source := func(typ string, port int) *run {
		return start(t, func(report func(error)) Discoverer {
			return NewDNS(DNSConfig{Name: "llama.test.", Type: typ, Port: port, Interval: 100 * time.Millisecond,
				Resolver: resolver}, report, quiet)
		})
	}
	set("llama.test. 1 IN A 10.0.0.2", "llama.test. 1 IN A 10.0.0.1", "llama.test. 1 IN AAAA 2001:db8::1",
		"llama.test. 1 IN SRV 0 0 8000 pod-0.test.", "llama.test. 1 IN SRV 0 0 8001 pod-1.test.",
		"pod-0.test. 1 IN A 10.0.0.1", "pod-1.test. 1 IN A 10.0.0.2", "pod-1.test. 1 IN AAAA 2001:db8::2")
	a, aaaa, srv := source(TypeA, 8000), source(TypeAAAA, 8000), source(TypeSRV, 0)
	a.next("10.0.0.1:8000", "10.0.0.2:8000")
	aaaa.next("[2001:db8::1]:8000")
	srv.next("10.0.0.1:8000", "10.0.0.2:8001")

	set() // NXDOMAIN for all
	a.failure(`A "llama.test."`, "no such host")
	aaaa.failure(`AAAA "llama.test."`, "no such host")
	srv.failure(`SRV "llama.test."`, "no such host")
	for _, r := range []*run{a, aaaa, srv} {
		r.silent()
	}
	set("llama.test. 1 IN A 10.0.0.3", "llama.test. 1 IN SRV 0 0 8000 pod-2.test.", "pod-2.test. 1 IN A 10.0.0.3")
	a.next("10.0.0.3:8000")
	srv.next("10.0.0.3:8000")
	aaaa.failure(`AAAA "llama.test."`, "no such host") // the name is there, without such a record
}
