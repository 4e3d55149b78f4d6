package accesslog

import (
	"testing"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/protobuf/proto"

	"steelyard/collectors/ledger"
)

// BenchmarkEntry is what one entry of a real Envoy costs: read by hand, by the
// generated code, and the ratio of the two; and read and counted.
//
//	go test ./collectors/accesslog -run '^$' -bench Entry -benchmem
func BenchmarkEntry(b *testing.B) {
	data := [2][]byte{recorded(b, "02-500-begin"), recorded(b, "03-500")}
	var hand, generated time.Duration
	m := &message{}
	b.Run("by hand", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			if err := m.UnmarshalWire(data[i%2]); err != nil {
				b.Fatal(err)
			}
		}
		hand = b.Elapsed() / time.Duration(b.N)
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		var whole accesslogv3.StreamAccessLogsMessage
		for i := range b.N {
			if err := proto.Unmarshal(data[i%2], &whole); err != nil {
				b.Fatal(err)
			}
		}
		generated = b.Elapsed() / time.Duration(b.N)
		if hand > 0 {
			b.ReportMetric(float64(generated)/float64(hand), "times-by-hand")
		}
	})
	b.Run("by hand and counted", func(b *testing.B) {
		b.ReportAllocs()
		events, _ := byHand(b, data[0])
		l := ledger.New(func(string) {})
		envoy := ledger.Envoy{NodeID: "a", Host: "127.0.0.1"}
		l.SetMembers("chat", []string{events[0].Address})
		l.SetWatchers("chat", []ledger.Envoy{envoy})
		s := l.Open(envoy, time.Now())
		for i := range b.N {
			if err := m.UnmarshalWire(data[i%2]); err != nil {
				b.Fatal(err)
			}
			s.Events(time.Now(), m.events)
		}
	})
}
