package accesslog

import (
	"fmt"

	"steelyard/collectors/ledger"
	"steelyard/collectors/wire"
)

const (
	maxMessage = 1 << 20 // bytes; Envoy's buffer is 16 KB unless set otherwise
	maxEntries = 16_384  // in a message
	maxCluster = 1024    // bytes of a cluster's name; a longer one is taken as unknown

	// Buffers up to this size are kept for the next message of a stream. A message of an Envoy that Steelyard
	// configured has at most about eighty entries; a larger one gets new memory.
	keptEvents = 128
	keptText   = 16 << 10 // bytes
)

// Field numbers of envoy.service.accesslog.v3.StreamAccessLogsMessage.
const (
	messageIdentifier = 1
	messageHTTPLogs   = 2
	identifierNode    = 1
	logsEntry         = 1
)

// A message is a StreamAccessLogsMessage. One is reused for all messages of a stream, with its buffers; node is read
// only while it is wanted.
type message struct {
	wantNode bool
	node     []byte // a core.v3.Node; nil if there is none
	events   []ledger.Event
	skipped  int
	text     []byte // ids, addresses and clusters of the events
	entry    entry
}

var _ wire.Message = (*message)(nil)

// UnmarshalWire reads the events of a message, and copies what they refer to.
func (m *message) UnmarshalWire(data []byte) error {
	m.node, m.events, m.text, m.skipped = nil, m.events[:0], m.text[:0], 0
	if len(data) > maxMessage {
		return fmt.Errorf("an access log message of %d bytes, want at most %d", len(data), maxMessage)
	}
	err := m.read(data)
	m.entry = entry{} // data belongs to the caller again
	if err != nil {
		return fmt.Errorf("reading an access log message: %w", err)
	}
	return nil
}

func (m *message) read(data []byte) error {
	r := wire.Read(data)
	for r.Next() {
		var err error
		switch {
		case r.Number == messageIdentifier && m.wantNode:
			err = m.readIdentifier(r.Bytes)
		case r.Number == messageHTTPLogs:
			err = m.readLogs(r.Bytes)
		}
		if err != nil {
			return err
		}
	}
	return r.Err()
}

func (m *message) readIdentifier(identifier []byte) error {
	r := wire.Read(identifier)
	for r.Next() {
		if r.Number == identifierNode && r.Bytes != nil {
			m.node = append([]byte{}, r.Bytes...)
		}
	}
	return r.Err()
}

func (m *message) readLogs(logs []byte) error {
	r := wire.Read(logs)
	for r.Next() {
		if r.Number != logsEntry {
			continue
		}
		if len(m.events)+m.skipped >= maxEntries {
			return fmt.Errorf("more than %d entries", maxEntries)
		}
		if err := m.entry.read(r.Bytes); err != nil {
			return err
		}
		if err := m.keep(); err != nil {
			return err
		}
	}
	return r.Err()
}

// keep makes an event of the entry that was just read. An entry without an address belongs to a request that never had
// an endpoint.
func (m *message) keep() error {
	e := &m.entry
	if !e.wanted() {
		m.skipped++
		return nil
	}
	start := len(m.text)
	text, err := wire.AppendAddress(m.text, e.address)
	if err != nil {
		return err
	}
	if len(text) == start {
		m.skipped++
		return nil
	}
	middle := len(text)
	text = e.appendID(text)
	end := len(text)
	if len(e.cluster) <= maxCluster {
		text = append(text, e.cluster...)
	}
	m.text = text
	ev := ledger.Event{
		Address: text[start:middle], ID: text[middle:end], Cluster: text[end:],
		Body: e.body, Outcome: ledger.Outcome{Bytes: e.bytes},
	}
	if e.kind == upstreamEnd {
		ev.Ended, ev.Outcome = true, e.outcome()
	}
	m.events = append(m.events, ev)
	return nil
}

// release is called when the events have been used. It frees buffers that are larger than for a usual message: a stream
// stays open, and may never send a large one again.
func (m *message) release() {
	if cap(m.text) > keptText {
		m.text, m.events = nil, nil // events refer to the text
	}
	if cap(m.events) > keptEvents {
		m.events = nil
	}
}
