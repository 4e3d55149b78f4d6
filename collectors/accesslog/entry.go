package accesslog

import (
	"encoding/binary"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"steelyard/collectors/ledger"
	"steelyard/collectors/wire"
)

// The types of entries that are read, of envoy.data.accesslog.v3.AccessLogType.
const (
	upstreamPoolReady = 7
	upstreamEnd       = 9
)

// Field numbers of envoy.data.accesslog.v3, by message.
const (
	entryCommon   protowire.Number = 1
	entryRequest  protowire.Number = 3
	entryResponse protowire.Number = 4

	commonStart                protowire.Number = 5
	commonFirstUpstreamSent    protowire.Number = 7 // time_to_first_upstream_tx_byte
	commonLastUpstreamReceived protowire.Number = 10
	commonUpstreamAddress      protowire.Number = 13
	commonCluster              protowire.Number = 15 // upstream_cluster
	commonFlags                protowire.Number = 16
	commonDuration             protowire.Number = 23
	commonStreamID             protowire.Number = 26
	commonBytesReceived        protowire.Number = 32 // upstream_wire_bytes_received
	commonType                 protowire.Number = 33

	requestID      protowire.Number = 9
	requestHeaders protowire.Number = 13 // a map of those that the Envoy is configured to log

	responseCode     protowire.Number = 1
	responseHeaders  protowire.Number = 4 // maps, like requestHeaders
	responseTrailers protowire.Number = 5

	mapKey   protowire.Number = 1
	mapValue protowire.Number = 2
)

// grpcStatus is the name under which a gRPC server reports how a call ended: in a trailer, or in a header if the answer
// has nothing else.
const grpcStatus = "grpc-status"

// contentLength is the name of the header with the size of a request's body. A chunked body has none.
const contentLength = "content-length"

// maxContentLength is the largest size that is accepted, in bytes: up to it a float64 is exact.
const maxContentLength = 1 << 53

// unknownGRPCStatus replaces a status that is not a number: it is gRPC's UNKNOWN.
const unknownGRPCStatus = 2

// The response flags that show how an attempt ended.
const (
	flagRequestTimeout        protowire.Number = 3
	flagLocalReset            protowire.Number = 4
	flagRemoteReset           protowire.Number = 5
	flagConnectionFailure     protowire.Number = 6
	flagConnectionTermination protowire.Number = 7
	flagOverflow              protowire.Number = 8
	flagDownstreamTermination protowire.Number = 15
	flagIdleTimeout           protowire.Number = 17
	flagMaxDurationReached    protowire.Number = 20
	flagDurationTimeout       protowire.Number = 23
	flagProtocolError         protowire.Number = 24
	flagDownstreamReset       protowire.Number = 28
)

// maxID is the length, in bytes, up to which ids are compared. Envoy's own have 36.
const maxID = 256

// An entry has what is needed of one HTTPAccessLogEntry. Its slices belong to the message.
type entry struct {
	kind                         uint64
	address                      []byte // a core.v3.Address
	cluster                      []byte // the Envoy's name for it
	streamID, requestID          []byte
	start                        moment
	firstSent, lastReceived      span
	duration                     span
	status, bytes                uint64
	body                         ledger.Size // of the request
	grpcStatus                   int         // 0 is OK, and none
	connectFailed, reset, halted bool
	overflow                     bool // the Envoy's circuit breaker was open: the request never reached the endpoint
}

// A moment is a google.protobuf.Timestamp as it was sent; zero if there is none. Moments are only compared.
type moment struct{ seconds, nanos uint64 }

// A span is a duration that may be missing.
type span struct {
	d     time.Duration
	known bool
}

// read decodes an entry.
func (e *entry) read(message []byte) error {
	*e = entry{}
	r := wire.Read(message)
	for r.Next() {
		var err error
		switch r.Number {
		case entryCommon:
			err = e.readCommon(r.Bytes)
		case entryRequest:
			err = e.readRequest(r.Bytes)
		case entryResponse:
			err = e.readResponse(r.Bytes)
		}
		if err != nil {
			return err
		}
	}
	return r.Err()
}

func (e *entry) readCommon(message []byte) error {
	r := wire.Read(message)
	for r.Next() {
		var err error
		switch r.Number {
		case commonStart:
			err = e.start.read(r.Bytes)
		case commonFirstUpstreamSent:
			err = e.firstSent.read(r.Bytes)
		case commonLastUpstreamReceived:
			err = e.lastReceived.read(r.Bytes)
		case commonUpstreamAddress:
			e.address = r.Bytes
		case commonCluster:
			e.cluster = r.Bytes
		case commonFlags:
			err = e.readFlags(r.Bytes)
		case commonDuration:
			err = e.duration.read(r.Bytes)
		case commonStreamID:
			e.streamID = r.Bytes
		case commonBytesReceived:
			e.bytes = r.Varint
		case commonType:
			e.kind = r.Varint
		}
		if err != nil {
			return err
		}
	}
	return r.Err()
}

// readFlags sorts the flags by what caused the end: the endpoint, or the client or Envoy before the answer was
// complete.
func (e *entry) readFlags(message []byte) error {
	r := wire.Read(message)
	for r.Next() {
		set := r.Varint != 0
		switch r.Number {
		case flagConnectionFailure:
			e.connectFailed = e.connectFailed || set
		case flagRemoteReset, flagConnectionTermination, flagProtocolError:
			e.reset = e.reset || set
		case flagOverflow:
			e.overflow = e.overflow || set
		case flagLocalReset, flagDownstreamTermination, flagDownstreamReset,
			flagRequestTimeout, flagIdleTimeout, flagMaxDurationReached, flagDurationTimeout:
			e.halted = e.halted || set
		}
	}
	return r.Err()
}

func (e *entry) readRequest(message []byte) error {
	r := wire.Read(message)
	for r.Next() {
		switch r.Number {
		case requestID:
			e.requestID = r.Bytes
		case requestHeaders:
			key, value, err := readHeader(r.Bytes)
			if err != nil {
				return err
			}
			if string(key) == contentLength {
				e.body = asSize(value)
			}
		}
	}
	return r.Err()
}

func (e *entry) readResponse(message []byte) error {
	r := wire.Read(message)
	for r.Next() {
		var err error
		switch r.Number {
		case responseCode:
			err = e.readStatus(r.Bytes)
		case responseHeaders, responseTrailers:
			var key, value []byte
			if key, value, err = readHeader(r.Bytes); string(key) == grpcStatus {
				e.grpcStatus = asGRPCStatus(value)
			}
		}
		if err != nil {
			return err
		}
	}
	return r.Err()
}

// readStatus reads a UInt32Value.
func (e *entry) readStatus(message []byte) error {
	r := wire.Read(message)
	for r.Next() {
		if r.Number == 1 {
			e.status = r.Varint
		}
	}
	return r.Err()
}

// readHeader reads an entry of a map of headers or trailers.
func readHeader(message []byte) (key, value []byte, err error) {
	r := wire.Read(message)
	for r.Next() {
		switch r.Number {
		case mapKey:
			key = r.Bytes
		case mapValue:
			value = r.Bytes
		}
	}
	return key, value, r.Err()
}

// asSize reads a content-length. The size is unknown if it is not a plain number within bounds.
func asSize(text []byte) ledger.Size {
	size, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil || size > maxContentLength {
		return ledger.Size{}
	}
	return ledger.Size{Bytes: size, Known: true}
}

// asGRPCStatus reads a grpc-status, which has one or two digits; none is OK. Anything else counts as an error.
func asGRPCStatus(text []byte) int {
	if len(text) == 0 {
		return 0
	}
	status, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil || len(text) > 2 {
		return unknownGRPCStatus
	}
	return int(status)
}

// read reads the two numbers, which a google.protobuf.Duration has, too.
func (m *moment) read(message []byte) error {
	r := wire.Read(message)
	for r.Next() {
		switch r.Number {
		case 1:
			m.seconds = r.Varint
		case 2:
			m.nanos = r.Varint
		}
	}
	return r.Err()
}

// read reads a google.protobuf.Duration.
func (s *span) read(message []byte) error {
	var m moment
	if err := m.read(message); err != nil {
		return err
	}
	// No request takes a year: a longer time, or a negative one, is unknown.
	const year = 365 * 24 * 3600
	if m.seconds < year && m.nanos < uint64(time.Second) {
		*s = span{time.Duration(m.seconds)*time.Second + time.Duration(m.nanos), true}
	}
	return nil
}

// wanted reports whether the entry is the beginning or the end of an attempt. One that the Envoy's
// own circuit breaker stopped has an end and an endpoint, which it never reached.
func (e *entry) wanted() bool {
	return e.kind == upstreamPoolReady || e.kind == upstreamEnd && !e.overflow
}

// appendID appends what the beginning and the end of an attempt have in common, and no other attempt has: when it
// started, in 16 bytes, and the request's id, which may be the client's: a client may give several requests the same
// one.
func (e *entry) appendID(text []byte) []byte {
	text = binary.BigEndian.AppendUint64(text, e.start.seconds)
	text = binary.BigEndian.AppendUint64(text, e.start.nanos)
	id := e.streamID
	if len(id) == 0 {
		id = e.requestID
	}
	return append(text, id[:min(len(id), maxID)]...)
}

func (e *entry) outcome() ledger.Outcome {
	o := ledger.Outcome{
		GRPCStatus: e.grpcStatus, ConnectFailed: e.connectFailed, Reset: e.reset, Bytes: e.bytes, Latency: e.latency(),
	}
	if e.status < 1000 {
		o.Status = int(e.status)
	}
	return o
}

// latency returns the time to the last byte of this attempt, 0 if there was none. Only that byte distinguishes an
// answer from one that the client or a timeout cut short: Envoy sets no flag for those. If the time at which the
// attempt was sent is missing, the duration of the whole attempt is used.
func (e *entry) latency() time.Duration {
	switch {
	case !e.lastReceived.known || e.halted:
		return 0
	case e.firstSent.known && e.lastReceived.d >= e.firstSent.d:
		return max(1, e.lastReceived.d-e.firstSent.d)
	}
	return e.duration.d
}
