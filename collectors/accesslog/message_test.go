package accesslog

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	accessdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"steelyard/collectors/ledger"
	"steelyard/collectors/wire"
)

// TestRecordedMessagesOfARealEnvoy holds every recorded message to what it is known to be
// of, and to the generated code.
func TestRecordedMessagesOfARealEnvoy(t *testing.T) {
	cases := []struct {
		recorded string
		want     ledger.Outcome // Latency to the millisecond
	}{
		{"01-ok", ledger.Outcome{Status: 200, Latency: 100 * time.Millisecond, Bytes: 1119}},
		{"03-500", ledger.Outcome{Status: 500, Bytes: 138}},
		{"05-503", ledger.Outcome{Status: 503, Bytes: 137}},
		{"07-streamed", ledger.Outcome{Status: 200, Latency: 500 * time.Millisecond, Bytes: 170}},
		{"09-reset", ledger.Outcome{Reset: true}},
		{"11-cut", ledger.Outcome{Status: 200, Bytes: 133, Reset: true}},
		{"12-refused", ledger.Outcome{ConnectFailed: true}},
		{"14-timeout", ledger.Outcome{}},
		{"16-aborted-stream", ledger.Outcome{Status: 200, Bytes: 141}},
		{"18-aborted", ledger.Outcome{}},
		{"20-grpc-unavailable",
			ledger.Outcome{Status: 200, GRPCStatus: 14, Latency: 100 * time.Microsecond, Bytes: 49}},
		{"22-grpc-not-found", ledger.Outcome{Status: 200, GRPCStatus: 5, Latency: 100 * time.Microsecond, Bytes: 16}},
		{"24-grpc-ok", ledger.Outcome{Status: 200, Latency: 100 * time.Microsecond, Bytes: 42}},
		{"27-grpc-refused", ledger.Outcome{Status: 415, GRPCStatus: 3, Latency: 100 * time.Microsecond, Bytes: 61}},
	}
	for _, c := range cases {
		t.Run(c.recorded, func(t *testing.T) {
			data := recorded(t, c.recorded)
			events, skipped := byHand(t, data)
			reference, _ := byReference(t, data)
			if diff := cmp.Diff(reference, events); diff != "" || skipped != 0 || len(events) != 1 {
				t.Fatalf("%d events, %d skipped\n%s", len(events), skipped, diff)
			}
			got := events[0]
			answered := c.want.Status > 0 && !c.want.Reset && c.want.Bytes > 0 && c.recorded != "16-aborted-stream"
			if (got.Latency > 0) != answered || got.Latency < c.want.Latency ||
				got.Latency > c.want.Latency+50*time.Millisecond {
				t.Errorf("a latency of %v, want about %v", got.Latency, c.want.Latency)
			}
			got.Latency = c.want.Latency
			if want := map[bool]string{false: "up", true: "refused"}[c.want.ConnectFailed]; got.Cluster != want {
				t.Errorf("through cluster %q, want %q", got.Cluster, want)
			}
			if !got.Ended || got.Outcome != c.want || len(got.ID) != 16+36 ||
				!strings.HasPrefix(got.Address, "127.0.0.1:") {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// TestEveryRecordedEndHasItsBeginning: by start, id and address, but for the connection
// that was refused.
func TestEveryRecordedEndHasItsBeginning(t *testing.T) {
	files, err := filepath.Glob("testdata/recorded/*.bin")
	if err != nil || len(files) != 28 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	open := map[string]bool{}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		events, _ := byHand(t, data)
		for _, e := range events {
			key := e.ID + e.Address
			if e.Ended && !e.ConnectFailed && !open[key] {
				t.Errorf("%s ends what did not begin", name)
			}
			open[key] = !e.Ended
		}
	}
	for key, is := range open {
		if is {
			t.Errorf("%s never ended", key)
		}
	}
}

// TestWhatACircuitBreakerStopsIsNoRequestOfTheEndpoint: a real Envoy logs an end with an endpoint
// that never got the request.
func TestWhatACircuitBreakerStopsIsNoRequestOfTheEndpoint(t *testing.T) {
	if events, skipped := byHand(t, recorded(t, "26-circuit-breaker")); len(events) != 0 || skipped != 1 {
		t.Errorf("%v, %d skipped", events, skipped)
	}
}

func TestByHandIsAsByTheGeneratedCode(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		entries := &accesslogv3.StreamAccessLogsMessage_HTTPAccessLogEntries{
			LogEntry: rapid.SliceOfN(rapid.Custom(drawEntry), 0, 5).Draw(rt, "entries")}
		data, err := proto.Marshal(&accesslogv3.StreamAccessLogsMessage{
			LogEntries: &accesslogv3.StreamAccessLogsMessage_HttpLogs{HttpLogs: entries}})
		if err != nil {
			rt.Fatal(err)
		}
		wantEvents, wantSkipped := byReference(t, data)
		events, skipped := byHand(t, data)
		if diff := cmp.Diff(wantEvents, events); diff != "" || skipped != wantSkipped {
			rt.Fatalf("%d skipped, want %d\n%s", skipped, wantSkipped, diff)
		}
	})
}

func TestATCPLogIsNoRequest(t *testing.T) {
	data, err := proto.Marshal(&accesslogv3.StreamAccessLogsMessage{
		LogEntries: &accesslogv3.StreamAccessLogsMessage_TcpLogs{
			TcpLogs: &accesslogv3.StreamAccessLogsMessage_TCPAccessLogEntries{
				LogEntry: []*accessdatav3.TCPAccessLogEntry{{}},
			},
		}})
	if err != nil {
		t.Fatal(err)
	}
	if events, skipped := byHand(t, data); len(events) != 0 || skipped != 0 {
		t.Errorf("%v, %d skipped", events, skipped)
	}
}

func TestAnAbsurdTimeIsUnknown(t *testing.T) {
	for name, seconds := range map[string]uint64{"negative": 1<<64 - 5, "a century": 100 * 365 * 24 * 3600} {
		t.Run(name, func(t *testing.T) {
			var s span
			b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), seconds)
			if err := s.read(b); err != nil || s.known {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}

func TestMessagesAreBounded(t *testing.T) {
	entry := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), nil)
	logs := func(n int) []byte {
		var b []byte
		for range n {
			b = append(b, entry...)
		}
		return protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), b)
	}
	cases := []struct {
		name string
		data []byte
		err  string
	}{
		{"as many entries as may be", logs(maxEntries), ""},
		{"one entry too many", logs(maxEntries + 1), "more than 16384 entries"},
		{"too long", make([]byte, maxMessage+1), "want at most"},
		{"garbage", []byte("\xff\xff"), wire.ErrMalformed.Error()},
		{"a garbled entry", []byte("\x12\x04\x0a\x02\x0a\xff"), wire.ErrMalformed.Error()},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := (&message{}).UnmarshalWire(c.data)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, want %q", err, c.err)
			}
		})
	}
}

// FuzzMessage: whatever comes is read or refused.
func FuzzMessage(f *testing.F) {
	files, err := filepath.Glob("testdata/recorded/*.bin")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		if data, err := os.ReadFile(name); err == nil && len(data) < 4096 {
			f.Add(data)
		}
	}
	f.Add([]byte("\x12\x04\x0a\x02\x0a\xff"))
	for _, length := range append(oddLengths, "0", "1234567") {
		f.Add(sized(f, length))
	}
	l := ledger.New(nil)
	l.SetMembers("chat", []string{"127.0.0.1:80"})
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &message{wantNode: true}
		err := m.UnmarshalWire(data)
		if err != nil {
			if errors.Is(err, wire.ErrMalformed) &&
				proto.Unmarshal(data, &accesslogv3.StreamAccessLogsMessage{}) == nil {
				t.Errorf("protobuf reads it, and not we: %v", err)
			}
			return
		}
		if len(m.events)+m.skipped > maxEntries {
			t.Errorf("%d events, %d skipped", len(m.events), m.skipped)
		}
		s := l.Open(ledger.Envoy{NodeID: "a"}, time.Now())
		s.Events(time.Now(), m.events)
		s.Close()
	})
}

// sized returns a message with the beginning of a request that has this content-length.
func sized(t testing.TB, length string) []byte {
	t.Helper()
	data, err := proto.Marshal(&accesslogv3.StreamAccessLogsMessage{
		LogEntries: &accesslogv3.StreamAccessLogsMessage_HttpLogs{
			HttpLogs: &accesslogv3.StreamAccessLogsMessage_HTTPAccessLogEntries{
				LogEntry: []*accessdatav3.HTTPAccessLogEntry{{
					CommonProperties: &accessdatav3.AccessLogCommon{
						AccessLogType:         accessdatav3.AccessLogType_UpstreamPoolReady,
						UpstreamRemoteAddress: address("127.0.0.1", 80),
					},
					Request: &accessdatav3.HTTPRequestProperties{
						RequestHeaders: map[string]string{"content-length": length},
					},
				}},
			},
		}})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestASizeIsAPlainNumberOrUnknown: unknown is not zero, and what is no number of bytes is no size.
func TestASizeIsAPlainNumberOrUnknown(t *testing.T) {
	sizes := map[string]ledger.Size{
		"0": {Bytes: 0, Known: true}, "1234567": {Bytes: 1_234_567, Known: true},
		"9007199254740992": {Bytes: 1 << 53, Known: true},
	}
	for _, length := range append(oddLengths, "0", "1234567") {
		events, skipped := byHand(t, sized(t, length))
		if len(events) != 1 || skipped != 0 || events[0].Body != sizes[length] {
			t.Errorf("content-length %q: %+v, %d skipped; want a body of %+v", length, events, skipped, sizes[length])
		}
	}
	if events, _ := byHand(t, recorded(t, "02-500-begin")); events[0].Body != (ledger.Size{}) {
		t.Errorf("no content-length was logged, and yet %+v", events[0].Body)
	}
}

// TestALargeMessageLeavesNoMemoryBehind: streams are open for ever.
func TestALargeMessageLeavesNoMemoryBehind(t *testing.T) {
	of := func(entries int, id string) []byte {
		logs := &accesslogv3.StreamAccessLogsMessage_HTTPAccessLogEntries{}
		for range entries {
			logs.LogEntry = append(logs.LogEntry, &accessdatav3.HTTPAccessLogEntry{
				CommonProperties: &accessdatav3.AccessLogCommon{
					AccessLogType:         accessdatav3.AccessLogType_UpstreamPoolReady,
					UpstreamRemoteAddress: address("10.0.0.1", 80), UpstreamCluster: strings.Repeat("c", 900),
				},
				Request: &accessdatav3.HTTPRequestProperties{RequestId: id},
			})
		}
		data, err := proto.Marshal(&accesslogv3.StreamAccessLogsMessage{
			LogEntries: &accesslogv3.StreamAccessLogsMessage_HttpLogs{HttpLogs: logs}})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	m := &message{}
	for name, data := range map[string][]byte{"many entries": of(1000, "1"),
		"long ids": of(100, strings.Repeat("x", maxID)), "usual": of(8, "1")} {
		if err := m.UnmarshalWire(data); err != nil {
			t.Fatal(err)
		}
		m.release()
		if cap(m.events) > keptEvents || cap(m.text) > keptText {
			t.Errorf("%s: room for %d events and %d bytes is kept", name, cap(m.events), cap(m.text))
		}
		if name == "usual" && (cap(m.events) < 8 || cap(m.text) == 0) {
			t.Errorf("the memory of a usual message is not kept")
		}
	}
}

// TestAClusterWithAnAbsurdNameIsNotKnown: it would be another one if it were cut.
func TestAClusterWithAnAbsurdNameIsNotKnown(t *testing.T) {
	data, err := proto.Marshal(&accesslogv3.StreamAccessLogsMessage{
		LogEntries: &accesslogv3.StreamAccessLogsMessage_HttpLogs{
			HttpLogs: &accesslogv3.StreamAccessLogsMessage_HTTPAccessLogEntries{
				LogEntry: []*accessdatav3.HTTPAccessLogEntry{{
					CommonProperties: &accessdatav3.AccessLogCommon{
						AccessLogType:         accessdatav3.AccessLogType_UpstreamEnd,
						UpstreamRemoteAddress: address("10.0.0.1", 80),
						UpstreamCluster:       strings.Repeat("c", maxCluster+1),
					},
				}},
			},
		}})
	if err != nil {
		t.Fatal(err)
	}
	if events, _ := byHand(t, data); len(events) != 1 || events[0].Cluster != "" {
		t.Errorf("%+v", events)
	}
}
