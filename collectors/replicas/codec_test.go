package replicas

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"steelyard/collectors/replicas/merge"
	"steelyard/internal/api"
	"steelyard/weighting/flight"
)

func sample() *merge.Message {
	return &merge.Message{From: "run", Name: "steelyard-0", Seq: 7, Leaving: true, Clusters: []merge.Cluster{
		{Name: "llama", Head: flight.Watchers{Watching: 5}, Parts: []flight.Part{{Address: "10.0.0.1:8000"}}},
		{Name: "other", Parts: []flight.Part{}},
	}, Wants: "b", Gave: "c", Routes: []merge.Route{
		{Cluster: "llama", Endpoint: "10.0.0.1:8000", Hashes: []uint64{1, math.MaxUint64}, Kept: true, Age: time.Hour},
		{Cluster: "llama", Endpoint: "10.0.0.1:8000"},
	}, Envoys: &merge.Envoys{LeftOut: 5, List: []merge.Envoy{{Kind: api.FollowerEnvoy, Name: "edge-1",
		Address: "10.1.0.1:4000", State: api.EnvoyFollows, Clusters: []string{"llama"}, Connected: time.Hour,
		Acked: time.Second}, {Kind: api.FollowerPicker, Name: "gateway"}}}}
}

func TestAMessageComesAsItWasSent(t *testing.T) {
	sent := sample()
	setNumbers(t, reflect.ValueOf(&sent.Clusters[0].Head).Elem())
	setNumbers(t, reflect.ValueOf(&sent.Clusters[0].Parts[0]).Elem())
	got, err := decode(encode(sent), maxMessage)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sent, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// setNumbers sets every number in v, also those that come later.
func setNumbers(t *testing.T, v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Float64:
			f.SetFloat(float64(i) + 0.5)
		case reflect.Int, reflect.Int64:
			f.SetInt(int64(i + 1))
		case reflect.Uint64:
			f.SetUint(uint64(i + 1))
		case reflect.Struct:
			setNumbers(t, f)
		case reflect.String:
		default:
			t.Fatalf("%s is of a kind that no test knows: %s", v.Type().Field(i).Name, f.Kind())
		}
	}
}

func TestALongNameIsCutAndEveryPartOfAMessageIsRefused(t *testing.T) {
	m := sample()
	m.Name = strings.Repeat("ü", 2000)
	whole := encode(m)
	got, err := decode(whole, maxMessage)
	if err != nil || len(got.Name) != maxText {
		t.Fatalf("%v", err)
	}
	for n := range whole {
		if _, err := decode(whole[:n], maxMessage); err == nil {
			t.Fatalf("%d of %d bytes are read", n, len(whole))
		}
	}
	if _, err := decode(append(whole, 0), maxMessage); err == nil {
		t.Error("a byte too much is read")
	}
	if _, err := decode(whole, len(whole)-1); err == nil {
		t.Error("more is read than the bound")
	}
}

func TestRoutesAndEnvoysOutOfBoundsAreRefused(t *testing.T) {
	for name, change := range map[string]func(*merge.Message){
		"too many hashes":           func(m *merge.Message) { m.Routes[0].Hashes = make([]uint64, maxHashes+1) },
		"a negative age":            func(m *merge.Message) { m.Routes[0].Age = -1 },
		"a long endpoint":           func(m *merge.Message) { m.Routes[0].Endpoint = strings.Repeat("1", 2048) },
		"a long cluster":            func(m *merge.Message) { m.Routes[0].Cluster = strings.Repeat("1", 2048) },
		"a long question":           func(m *merge.Message) { m.Wants = merge.ID(strings.Repeat("1", 2048)) },
		"too many Envoys":           func(m *merge.Message) { m.Envoys.List = make([]merge.Envoy, merge.MaxEnvoys+1) },
		"of an unknown kind":        func(m *merge.Message) { m.Envoys.List[0].Kind = "proxy" },
		"a long node id":            func(m *merge.Message) { m.Envoys.List[0].Name = strings.Repeat("1", 2048) },
		"too many clusters":         func(m *merge.Message) { m.Envoys.List[0].Clusters = make([]string, 21) },
		"connected in the future":   func(m *merge.Message) { m.Envoys.List[0].Connected = -1 },
		"fewer than none left out":  func(m *merge.Message) { m.Envoys.LeftOut = -1 },
		"an ACK in the middle ages": func(m *merge.Message) { m.Envoys.List[0].Acked = maxRun + 1 },
	} {
		m := sample()
		change(m)
		if _, err := decode(encode(m), maxMessage); err == nil {
			t.Errorf("%s is read", name)
		}
	}
	if part := (route{Hashes: make([]byte, 7)}); part.valid() {
		t.Error("a part of a hash is read")
	}
}

func TestTheLongestListOfEnvoysFitsIntoAMessage(t *testing.T) {
	long := strings.Repeat("ü", 500)
	for name, one := range map[string]merge.Envoy{
		"long names": {Kind: api.FollowerEnvoy, Name: long, Address: long, State: api.EnvoyFollows,
			Clusters: slices.Repeat([]string{long}, 50), Connected: maxRun, Acked: maxRun},
		"many": {Kind: api.FollowerEnvoy, Name: "edge-1", Address: "10.1.0.1:4000", State: api.EnvoyFollows,
			Clusters: []string{"llama"}, Connected: maxRun, Acked: maxRun},
	} {
		const all = 5000
		list := bounded(slices.Repeat([]merge.Envoy{one}, all))
		if n := len(list.List); n > merge.MaxEnvoys || n == 0 || n+list.LeftOut != all {
			t.Errorf("%s: %d are listed, and %d left out", name, n, list.LeftOut)
		}
		pieces := split(&merge.Message{From: "a", Name: long, Envoys: list})
		last := pieces[len(pieces)-1]
		last.Seq = 1
		got, err := decode(encode(last), maxMessage)
		if err != nil || len(got.Envoys.List) != len(list.List) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNumbersOutOfBoundsAreRefused(t *testing.T) {
	for name, change := range map[string]func(*merge.Cluster){
		"a sum that is no number":    func(c *merge.Cluster) { c.Parts[0].Sums.Latency = math.NaN() },
		"an endless sum":             func(c *merge.Cluster) { c.Parts[0].Sums.Bytes = math.Inf(1) },
		"a negative rate":            func(c *merge.Cluster) { c.Head.Rate = -1 },
		"a negative count":           func(c *merge.Cluster) { c.Head.Watching = -1 },
		"too many requests":          func(c *merge.Cluster) { c.Parts[0].InFlight = maxCount + 1 },
		"a sum that wrapped around":  func(c *merge.Cluster) { c.Parts[0].Sums.Ended = math.MaxUint64 },
		"counts of the week before":  func(c *merge.Cluster) { c.Head.Age = 7 * 24 * time.Hour },
		"an address of two kilobyte": func(c *merge.Cluster) { c.Parts[0].Address = strings.Repeat("1", 2048) },
	} {
		m := sample()
		change(&m.Clusters[0])
		if _, err := decode(encode(m), maxMessage); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}

func TestAnotherVersionIsNamed(t *testing.T) {
	b := encode(sample())
	b[len(magic)] = version + 1
	if _, err := decode(b, maxMessage); !errors.Is(err, errVersion) {
		t.Errorf("got %v", err)
	}
	if _, err := decode([]byte("hello, world"), maxMessage); err == nil || errors.Is(err, errVersion) {
		t.Errorf("got %v for what is no message", err)
	}
}

func FuzzDecode(f *testing.F) {
	noon := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	f.Add(encode(sample()))
	f.Add(encode(&merge.Message{From: "a", Seq: 1}))
	f.Add([]byte("SYRP\x06"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b, maxMessage)
		if err != nil {
			return
		}
		again, err := decode(encode(m), maxMessage)
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if d := cmp.Diff(m, again); d != "" {
			t.Fatalf("%s", d)
		}
		p := merge.New("self", noon)
		p.SetMembers(map[string][]string{"llama": {"10.0.0.1:8000"}})
		p.Take(noon, m)
		p.Tick(noon)
	})
}

func TestALargeMessageIsSentInPieces(t *testing.T) {
	const most = math.MaxInt64
	m := &merge.Message{From: "a", Seq: 1}
	for range 3 {
		c := merge.Cluster{Name: "llama"}
		for range 5000 {
			c.Parts = append(c.Parts, flight.Part{Address: "10.10.10.10:8000", InFlight: maxCount, Sums: flight.Sums{
				Issued: most, Hashed: most, Ended: most, Failed: most, Errors: most, Succeeded: most, Answered: most,
				Latency: 1.1,
				Sized:   most, Bytes: 1.1, Refused: most, RefusedBytes: 1.1,
			}})
		}
		m.Clusters = append(m.Clusters, c)
	}
	m.Gave, m.Wants = "b", "c"
	for range 2000 {
		m.Routes = append(m.Routes, merge.Route{Cluster: "llama", Endpoint: "10.10.10.10:8000",
			Hashes: make([]uint64, maxHashes), Kept: true, Age: maxRun})
	}
	parts, routes, gave := 0, 0, 0
	for _, piece := range split(m) {
		piece.Seq = 1
		b := encode(piece)
		if len(b) > maxMessage {
			t.Errorf("a piece has %d bytes", len(b))
		}
		got, err := decode(b, maxMessage)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range got.Clusters {
			parts += len(c.Parts)
		}
		routes += len(got.Routes)
		if got.Gave != "" {
			gave = routes
		}
		if got.Wants != m.Wants {
			t.Error("a piece asks for nothing")
		}
	}
	if routes != 2000 || gave != routes {
		t.Errorf("%d routes, want 2000; the end of them after %d", routes, gave)
	}
	if parts != 15_000 {
		t.Errorf("%d parts, want 15000", parts)
	}
}
