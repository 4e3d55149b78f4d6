package loadstats

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"steelyard/collectors/ledger"
	"steelyard/collectors/wire"
)

const (
	maxMessage   = 1 << 20 // bytes, as much as the xDS port receives: the node and about twenty thousand endpoints
	maxClusters  = 16_384  // in a report
	maxEndpoints = 65_536  // in a report
	maxName      = 1024    // bytes of a cluster's name

	// Buffers up to this size are kept for the next report of a stream. A larger report gets new memory.
	keptEndpoints = 2048
	keptClusters  = 256
)

// Field numbers of envoy.service.load_stats.v3.LoadStatsRequest and, by message, of
// envoy.config.endpoint.v3.
const (
	requestNode     protowire.Number = 1
	requestClusters protowire.Number = 2

	clusterName        protowire.Number = 1
	clusterLocality    protowire.Number = 2
	clusterDropped     protowire.Number = 5 // by category; the total has other causes, too
	clusterServiceName protowire.Number = 6
	droppedCount       protowire.Number = 2
	localityEndpoint   protowire.Number = 7
	endpointAddress    protowire.Number = 1
	endpointSucceeded  protowire.Number = 2
	endpointInProgress protowire.Number = 3
	endpointErrors     protowire.Number = 4
	endpointIssued     protowire.Number = 7
)

// A report is a LoadStatsRequest. One is reused for all messages of a stream, with its buffers; node is read only while
// it is wanted.
type report struct {
	wantNode bool
	node     []byte // a core.v3.Node; nil if there is none
	size     int    // bytes
	clusters []ledger.ClusterLoad
	loads    []ledger.EndpointLoad // of all clusters; their Endpoints are parts of it

	endpoints int
	names     map[string]string // of clusters and endpoints: each report repeats them
	text      []byte
}

var _ wire.Message = (*report)(nil)

// UnmarshalWire reads the loads of a report. It skips the node, which every report has, unless it is wanted.
func (m *report) UnmarshalWire(data []byte) error {
	m.node, m.clusters, m.loads, m.endpoints, m.size = nil, m.clusters[:0], m.loads[:0], 0, len(data)
	if len(data) > maxMessage {
		return fmt.Errorf("a load report of %d bytes, want at most %d", len(data), maxMessage)
	}
	if err := m.read(data); err != nil {
		return fmt.Errorf("reading a load report: %w", err)
	}
	return nil
}

func (m *report) read(data []byte) error {
	r := wire.Read(data)
	for r.Next() {
		switch {
		case r.Number == requestNode && m.wantNode && r.Bytes != nil:
			m.node = append([]byte{}, r.Bytes...)
		case r.Number == requestClusters:
			if len(m.clusters) >= maxClusters {
				return fmt.Errorf("more than %d clusters", maxClusters)
			}
			if err := m.readCluster(r.Bytes); err != nil {
				return err
			}
		}
	}
	return r.Err()
}

// readCluster reads a ClusterStats. Without a name in EDS, the Envoy's own name is used.
func (m *report) readCluster(message []byte) error {
	m.clusters = append(m.clusters, ledger.ClusterLoad{})
	load, first := &m.clusters[len(m.clusters)-1], len(m.loads)
	var name, service []byte
	r := wire.Read(message)
	for r.Next() {
		var err error
		switch r.Number {
		case clusterName:
			name = r.Bytes
		case clusterServiceName:
			service = r.Bytes
		case clusterLocality:
			err = m.readLocality(r.Bytes)
		case clusterDropped:
			err = readDropped(load, r.Bytes)
		}
		if err != nil {
			return err
		}
	}
	if len(service) == 0 {
		service = name
	}
	load.Name = m.name(clip(name))
	load.Cluster = m.name(clip(service))
	load.Endpoints = m.loads[first:len(m.loads):len(m.loads)]
	return r.Err()
}

func (m *report) readLocality(message []byte) error {
	r := wire.Read(message)
	for r.Next() {
		if r.Number != localityEndpoint {
			continue
		}
		if m.endpoints++; m.endpoints > maxEndpoints {
			return fmt.Errorf("more than %d endpoints", maxEndpoints)
		}
		if err := m.readEndpoint(r.Bytes); err != nil {
			return err
		}
	}
	return r.Err()
}

func (m *report) readEndpoint(message []byte) error {
	var e ledger.EndpointLoad
	r := wire.Read(message)
	for r.Next() {
		switch r.Number {
		case endpointAddress:
			text, err := wire.AppendAddress(m.text[:0], r.Bytes)
			if err != nil {
				return err
			}
			m.text = text
			e.Address = m.name(text)
		case endpointInProgress:
			e.InProgress = r.Varint
		case endpointIssued:
			e.Issued = r.Varint
		case endpointSucceeded:
			e.Succeeded = r.Varint
		case endpointErrors:
			e.Errors = r.Varint
		}
	}
	if e.Address != "" {
		m.loads = append(m.loads, e)
	}
	return r.Err()
}

func readDropped(load *ledger.ClusterLoad, message []byte) error {
	r := wire.Read(message)
	for r.Next() {
		if r.Number == droppedCount {
			load.Dropped += r.Varint
		}
	}
	return r.Err()
}

func clip(name []byte) []byte { return name[:min(len(name), maxName)] }

// release is called when the report has been used. It frees buffers that are larger than for a usual report: a stream
// stays open, and may never send a large one again.
func (m *report) release() {
	if cap(m.loads) > keptEndpoints {
		m.loads, m.clusters = nil, nil // clusters refer to loads
	}
	if cap(m.clusters) > keptClusters {
		m.clusters = nil
	}
	if len(m.names) > keptEndpoints {
		m.names = nil
	}
}

// name returns b as a string, the same one each time.
func (m *report) name(b []byte) string {
	if known, ok := m.names[string(b)]; ok {
		return known
	}
	if m.names == nil || len(m.names) >= maxEndpoints {
		m.names = make(map[string]string)
	}
	s := string(b)
	m.names[s] = s
	return s
}
