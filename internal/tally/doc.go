// Package tally logs events that a peer can cause thousands of times a second, in a bounded number of lines whatever
// the peers do. Packages xds, xds/access and xds/port use it for refused handshakes, clients, connections and streams.
//
// It is not the bound on lines about one client: cmd/internal/asynclog has that, for all lines of a process.
package tally
