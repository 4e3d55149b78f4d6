// Package discovery finds the endpoints of one cluster: from a fixed list
// (NewStatic), from a watched file in Prometheus' file_sd form (NewFile) or from
// DNS (NewDNS). Package kubernetes has the sources that the Kubernetes API offers.
// Each is a Discoverer; a source whose set can change sends it by a Refresher.
//
// controlplane.Manager makes one Discoverer per cluster from the configuration,
// and passes its sets to the cluster's loop and to the collectors. The configuration calls Normalize,
// DNSConfig.Validate and ReadFile to refuse what cannot work before anything runs.
//
// # What a source promises
//
// It sends whole sets, sorted by address, each address once, and only when the
// set differs from the one sent before. What it cannot read, find out or
// parse never removes an endpoint: the previous set stays, and the report function
// gets the reason. Where a part of what it found can be used, that is the set, and
// the report function gets the others, as *Omissions; only a file is used whole or
// not at all. An explicit empty list in a file is understood,
// and empties the set; an empty file, a file that is gone, a name that does not
// resolve and an answer without addresses are failures.
//
// Addresses are IP:port, since that is what EDS hands to the proxies; only DNS
// takes names, and resolves them itself.
//
// # The file_sd form
//
//	# a list of groups
//	- targets: ["10.0.0.1:8000", "[2001:db8::1]:8000"]
//	  labels:
//	    zone: a                # locality
//	    capacity: 8            # slots: requests executed at once
//	    engine: triton         # one of engines.Names
//	    metrics_port: 8002     # where it is not the serving port
//	    metrics_path: /metrics
//
// The labels hold for all targets of their group. Every label may be left out,
// then the cluster's configuration decides; labels of other names are the
// user's own and ignored. Any fault refuses the whole file.
//
// # What it is not
//
// It does not ask whether an endpoint is alive, healthy or loaded: an endpoint is
// there because a source names it. It does not merge sources, and it holds no
// endpoints for others to look up.
package discovery
