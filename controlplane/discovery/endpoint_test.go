package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseAddress(t *testing.T) {
	tests := []struct {
		in, want string
		err      []string
	}{
		{in: "10.0.0.1:8000", want: "10.0.0.1:8000"},
		{in: "[2001:DB8:0::1]:8000", want: "[2001:db8::1]:8000"},
		{in: "[::ffff:10.0.0.1]:8000", want: "10.0.0.1:8000"},
		{in: "10.0.0.1", err: []string{`"10.0.0.1" has no port`, `"10.0.0.1:8000"`}},
		{in: "2001:db8::1", err: []string{"has no port", `"[2001:db8::1]:8000"`}},
		{in: "[2001:db8::1]", err: []string{"has no port", `"[2001:db8::1]:8000"`}},
		{in: "10.0.0.1:0", err: []string{"port 0"}},
		{in: "10.0.0.1:65536", err: []string{`port "65536" is not a number from 1 to 65535`}},
		{in: "10.0.0.1:http", err: []string{`port "http"`}},
		{in: "llama-0.llama:8000", err: []string{`"llama-0.llama" is not an IP`,
			"use dns: {name: llama-0.llama, type: A, port: 8000}"}},
		{in: "010.0.0.1:8000", err: []string{`"010.0.0.1" is not an IP: each of its four numbers`}},
		{in: "10.0.0.999:8000", err: []string{"is 0 to 255, without leading zeros"}},
		{in: "http://10.0.0.1:8000/", err: []string{"is a URL"}},
		{in: ":8000", err: []string{"has no IP"}},
		{in: "", err: []string{`"" is not IP:port`}},
		{in: "0.0.0.0:8000", err: []string{"no single server"}},
		{in: "224.0.0.1:8000", err: []string{"no single server"}},
		{in: "[fe80::1%eth0]:8000", err: []string{"IPv6 zone", "without %eth0"}},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := ParseAddress(tt.in)
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			wantError(t, err, tt.err...)
		})
	}
}

func TestNormalize(t *testing.T) {
	const ok = "10.0.0.1:80"
	tests := []struct {
		name string
		in   []Endpoint
		want []Endpoint
		err  []string
	}{
		{name: "nothing", want: []Endpoint{}},
		{
			name: "sorted and canonical, fields kept",
			in: []Endpoint{{Address: "[2001:DB8::2]:80", Zone: "b"},
				{Address: ok, Zone: "a", Capacity: 8, Engine: "triton", MetricsPort: 8002, MetricsPath: "/m?x=1"}},
			want: []Endpoint{{Address: ok, Zone: "a", Capacity: 8, Engine: "triton", MetricsPort: 8002,
				MetricsPath: "/m?x=1"}, {Address: "[2001:db8::2]:80", Zone: "b"}},
		},
		{name: "one address twice, spelt differently",
			in:  []Endpoint{{Address: "[::ffff:10.0.0.1]:80"}, {Address: "10.0.0.2:80"}, {Address: ok}},
			err: []string{"endpoint 2", ok, "already given at endpoint 0"}},
		{name: "a name", in: []Endpoint{{Address: "host:80"}}, err: []string{"endpoint 0", "use dns"}},
		{name: "negative capacity", in: []Endpoint{{Address: ok, Capacity: -1}},
			err: []string{"endpoint 0", "capacity -1"}},
		{name: "capacity that is no number", in: []Endpoint{{Address: ok, Capacity: math.NaN()}},
			err: []string{"capacity NaN"}},
		{name: "endless capacity", in: []Endpoint{{Address: ok, Capacity: math.Inf(1)}},
			err: []string{"capacity +Inf"}},
		{name: "unknown engine", in: []Endpoint{{Address: ok, Engine: "vlmm"}},
			err: []string{`engine "vlmm"`, "vllm, triton"}},
		{name: "metrics port too high", in: []Endpoint{{Address: ok, MetricsPort: 70000}},
			err: []string{"metrics_port 70000"}},
		{name: "negative metrics port", in: []Endpoint{{Address: ok, MetricsPort: -1}},
			err: []string{"metrics_port -1"}},
		{name: "metrics path without slash", in: []Endpoint{{Address: ok, MetricsPath: "metrics"}},
			err: []string{`write "/metrics"`}},
		{name: "metrics path with a space", in: []Endpoint{{Address: ok, MetricsPath: "/a b"}},
			err: []string{"percent-encoded"}},
		{name: "long metrics path", in: []Endpoint{{Address: ok, MetricsPath: "/" + strings.Repeat("x", maxPath)}},
			err: []string{"metrics_path is 1025 bytes"}},
		{name: "long zone", in: []Endpoint{{Address: ok, Zone: strings.Repeat("x", maxZone+1)}},
			err: []string{"zone is 254 bytes"}},
		{name: "zone that protobuf would refuse", in: []Endpoint{{Address: ok, Zone: "\xff"}},
			err: []string{"not valid UTF-8"}},
		{name: "all faults of one endpoint", in: []Endpoint{{Address: "x", Capacity: -1}},
			err: []string{`address "x"`, "capacity -1"}},
		{name: "the first ten faults", in: make([]Endpoint, 12),
			err: []string{"endpoint 0:", "endpoint 9:", "and 2 more"}},
		{name: "too many", in: many(MaxEndpoints + 1), err: []string{"endpoint 10000", "more than 10000 endpoints"}},
		{name: "just enough", in: many(MaxEndpoints), want: many(MaxEndpoints)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Normalize(tt.in)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("set (-want +got):\n%s", d)
			}
			wantError(t, err, tt.err...)
		})
	}
}

// many are n endpoints in the order of their addresses.
func many(n int) []Endpoint {
	set := make([]Endpoint, n)
	for i := range set {
		set[i].Address = fmt.Sprintf("10.0.0.1:%d", 10000+i)
	}
	return set
}

// quiet and ignore are for sources whose log and reports no test reads.
var quiet = slog.New(slog.DiscardHandler)

func ignore(error) {}

func TestStaticSendsItsSetOnce(t *testing.T) {
	r := start(t, func(func(error)) Discoverer {
		return NewStatic([]Endpoint{{Address: "10.0.0.2:80"}, {Address: "10.0.0.1:80"}})
	})
	r.next("10.0.0.1:80", "10.0.0.2:80")
	r.silent()
}

func TestSourcesThatCanNeverWorkFailAtOnce(t *testing.T) {
	tests := []struct {
		name string
		d    Discoverer
		err  []string
	}{
		{"static with a name", NewStatic([]Endpoint{{Address: "host:80"}}),
			[]string{"static endpoints", "endpoint 0", "use dns"}},
		{"file of another form", NewFile("/etc/llama.toml", ignore, quiet),
			[]string{"/etc/llama.toml", `".toml"`, ".json, .yml or .yaml"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { wantError(t, tt.d.Run(context.Background(), nil), tt.err...) })
	}
}
