package accesslog

import (
	"cmp"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	accessdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"steelyard/collectors/ledger"
)

// event is one in a form that can be compared and printed.
type event struct {
	Ended       bool
	ID, Address string
	Cluster     string
	Body        ledger.Size
	ledger.Outcome
}

// byHand reads a message as the server does.
func byHand(t testing.TB, data []byte) (events []event, skipped int) {
	t.Helper()
	m := &message{wantNode: true}
	if err := m.UnmarshalWire(data); err != nil {
		t.Fatal(err)
	}
	for _, e := range m.events {
		events = append(events, event{e.Ended, string(e.ID), string(e.Address), string(e.Cluster), e.Body, e.Outcome})
	}
	return events, m.skipped
}

// byReference reads a message by its generated code.
func byReference(t testing.TB, data []byte) (events []event, skipped int) {
	t.Helper()
	var m accesslogv3.StreamAccessLogsMessage
	if err := proto.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	for _, e := range m.GetHttpLogs().GetLogEntry() {
		common := e.GetCommonProperties()
		socket := common.GetUpstreamRemoteAddress().GetSocketAddress()
		kind := common.GetAccessLogType()
		wanted := kind == accessdatav3.AccessLogType_UpstreamPoolReady ||
			kind == accessdatav3.AccessLogType_UpstreamEnd && !common.GetResponseFlags().GetUpstreamOverflow()
		if !wanted || socket == nil {
			skipped++
			continue
		}
		ev := event{
			Address: net.JoinHostPort(socket.GetAddress(), strconv.Itoa(int(socket.GetPortValue()))),
			Cluster: common.GetUpstreamCluster(),
			Outcome: ledger.Outcome{Bytes: common.GetUpstreamWireBytesReceived()},
		}
		given := e.GetRequest().GetRequestHeaders()["content-length"]
		if length, err := strconv.ParseUint(given, 10, 64); err == nil && length <= 1<<53 {
			ev.Body = ledger.Size{Bytes: length, Known: true}
		}
		start := binary.BigEndian.AppendUint64(nil, uint64(common.GetStartTime().GetSeconds()))
		start = binary.BigEndian.AppendUint64(start, uint64(common.GetStartTime().GetNanos()))
		ev.ID = string(start) + cmp.Or(common.GetStreamId(), e.GetRequest().GetRequestId())
		if kind == accessdatav3.AccessLogType_UpstreamEnd {
			ev.Ended, ev.Outcome = true, referenceOutcome(e)
		}
		events = append(events, ev)
	}
	return events, skipped
}

func referenceOutcome(e *accessdatav3.HTTPAccessLogEntry) ledger.Outcome {
	common, flags := e.GetCommonProperties(), e.GetCommonProperties().GetResponseFlags()
	o := ledger.Outcome{
		Status:        int(e.GetResponse().GetResponseCode().GetValue()),
		Bytes:         common.GetUpstreamWireBytesReceived(),
		ConnectFailed: flags.GetUpstreamConnectionFailure(),
		Reset: flags.GetUpstreamRemoteReset() || flags.GetUpstreamConnectionTermination() ||
			flags.GetUpstreamProtocolError(),
	}
	for _, m := range []map[string]string{e.GetResponse().GetResponseHeaders(), e.GetResponse().GetResponseTrailers()} {
		if text, logged := m["grpc-status"]; logged {
			status, err := strconv.ParseUint(cmp.Or(text, "0"), 10, 32)
			if err != nil || len(text) > 2 {
				status = 2
			}
			o.GRPCStatus = int(status)
		}
	}
	halted := flags.GetLocalReset() || flags.GetDownstreamConnectionTermination() || flags.GetDownstreamRemoteReset() ||
		flags.GetUpstreamRequestTimeout() || flags.GetStreamIdleTimeout() || flags.GetDurationTimeout() ||
		flags.GetUpstreamMaxStreamDurationReached()
	first, last := common.GetTimeToFirstUpstreamTxByte(), common.GetTimeToLastUpstreamRxByte()
	switch {
	case halted || last == nil:
	case first != nil && last.AsDuration() >= first.AsDuration():
		o.Latency = max(1, last.AsDuration()-first.AsDuration())
	default:
		o.Latency = common.GetDuration().AsDuration()
	}
	return o
}

// recorded returns the messages of a real Envoy 1.40, by name.
func recorded(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "recorded", name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func address(ip string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// drawHeaders draws headers that Envoy is configured to log.
func drawHeaders(t *rapid.T) map[string]string {
	headers := map[string]string{"x-other": "7"}
	if rapid.Bool().Draw(t, "gRPC") {
		headers["grpc-status"] = rapid.SampledFrom([]string{"0", "1", "14", "16", "99", "100", "", "-1", "x",
			"4294967296"}).Draw(t, "grpc-status")
	}
	return headers
}

// drawLengths are request headers with a content-length, or something like one.
func drawLengths(t *rapid.T) map[string]string {
	length := rapid.SampledFrom(append(oddLengths, "0", "1", "1234567")).Draw(t, "content-length")
	return map[string]string{"x-other": "7", "content-length": length}
}

// oddLengths are at the bounds of what is a size, and beyond.
var oddLengths = []string{
	"9007199254740992", "9007199254740993", "9999999999999999", "18446744073709551616", "", "-1", "+1", " 1", "1 ",
	"1,1", "0x10", "1e3", "chunked", "\x00",
}

// drawEntry is any entry that Envoy could send.
func drawEntry(t *rapid.T) *accessdatav3.HTTPAccessLogEntry {
	flag := func(name string) bool { return rapid.IntRange(0, 9).Draw(t, name) == 0 }
	span := func(name string) *durationpb.Duration {
		if flag("no " + name) {
			return nil
		}
		return durationpb.New(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, name)))
	}
	e := &accessdatav3.HTTPAccessLogEntry{
		CommonProperties: &accessdatav3.AccessLogCommon{
			StartTime: &timestamppb.Timestamp{Seconds: rapid.Int64().Draw(t, "start"),
				Nanos: rapid.Int32().Draw(t, "start nanos")},
			TimeToFirstUpstreamTxByte: span("first"),
			TimeToLastUpstreamRxByte:  span("last"),
			Duration:                  span("duration"),
			UpstreamCluster:           rapid.StringN(0, 20, 20).Draw(t, "cluster"),
			StreamId:                  rapid.SampledFrom([]string{"", "", "stream"}).Draw(t, "stream id"),
			UpstreamWireBytesReceived: rapid.Uint64().Draw(t, "bytes"),
			AccessLogType: accessdatav3.AccessLogType(
				rapid.SampledFrom([]int32{7, 9, 9, 6, 0, 13}).Draw(t, "type")),
			ResponseFlags: &accessdatav3.ResponseFlags{
				UpstreamConnectionFailure:     flag("failure"),
				UpstreamConnectionTermination: flag("termination"),
				UpstreamRemoteReset:           flag("remote reset"),
				UpstreamProtocolError:         flag("protocol"),
				LocalReset:                    flag("local reset"),
				UpstreamRequestTimeout:        flag("timeout"),
				DownstreamRemoteReset:         flag("downstream reset"),
				UpstreamOverflow:              flag("overflow"),
				NoRouteFound:                  flag("no route"),
			},
			CustomTags: map[string]string{"a": "b"},
		},
		Request: &accessdatav3.HTTPRequestProperties{RequestId: rapid.StringMatching(`[a-f0-9-]{0,36}`).Draw(t, "id"),
			Path: "/v1"},
		Response: &accessdatav3.HTTPResponseProperties{ResponseBodyBytes: 5},
	}
	if rapid.Bool().Draw(t, "sized") {
		e.Request.RequestHeaders = drawLengths(t)
	}
	if flag("trailers only") {
		e.Response.ResponseHeaders = drawHeaders(t)
	} else if flag("trailers") {
		e.Response.ResponseTrailers = drawHeaders(t)
	}
	if flag("no start") {
		e.CommonProperties.StartTime = nil
	}
	if !flag("no address") {
		ip := rapid.SampledFrom([]string{"10.0.0.1", "2001:db8::2"}).Draw(t, "ip")
		e.CommonProperties.UpstreamRemoteAddress = address(ip, rapid.Uint32Range(1, 65_535).Draw(t, "port"))
	}
	if !flag("no status") {
		e.Response.ResponseCode = wrapperspb.UInt32(rapid.Uint32Range(0, 599).Draw(t, "status"))
	}
	return e
}
