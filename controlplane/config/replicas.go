package config

import (
	"net"
	"net/netip"
	"slices"
)

// checkReplicas wants to be told where the other replicas are, and that they can connect to this one.
func (d *decoder) checkReplicas(cfg *Config) {
	r := cfg.Replicas
	for _, name := range []*string{&r.Prefix, &r.Name} {
		d.checkWord(name, longestName, "a name such as steelyard")
	}
	d.checkObjectName(&r.Service)
	d.checkReachable(&r.Address)
	if r.Address == "" && cfg.Lease(false) != "" && Loopback(cfg.XDS.Listen) {
		d.conflict(&cfg.Replicas, &cfg.XDS.Listen, "the replica that grants the places of queues is reached by the "+
			"others on its xDS port, and they cannot connect to %s: write another xds.listen; or, below this section, "+
			"address: HOST:PORT, by which the others reach it, or lease: none if this replica is the only one",
			cfg.XDS.Listen)
	}
	switch {
	case r.Lease == LeaseNone && (d.written(&r.Service) || len(r.Peers) > 0):
		d.fail(&r.Lease, "lease: none is for the only replica, and others are named here: keep one of them")
	case r.Lease == LeaseNone:
	case d.written(&r.Service) && len(r.Peers) > 0:
		d.conflict(&r.Service, &r.Peers, "there are service and peers: keep one of them")
	case !d.written(&r.Service) && len(r.Peers) == 0:
		d.fail(&cfg.Replicas, "where the other replicas are is missing: write peers: [HOST:PORT], with the xDS "+
			"listener of each; in Kubernetes service: steelyard-xds, or remove this section in a Pod of the manifests")
	}
	d.checkPeers(cfg)
	switch {
	case r.Lease == LeaseRedis && cfg.Redis == nil:
		d.conflict(&r.Lease, &cfg.Redis, "there is no redis section: add redis: {addresses: [127.0.0.1:6379]} at the "+
			"top level, or write kubernetes, or none for the only replica")
	case len(r.Peers) > 0 && cfg.queued() && cfg.Lease(false) == "":
		d.conflict(&r.Lease, &cfg.Redis, "a queue of several replicas needs a place where they agree on the one that "+
			"grants its places: add redis: {addresses: [127.0.0.1:6379]} at the top level, or write lease: "+
			"kubernetes, or remove queue from the clusters")
	}
}

// checkPeers complains of addresses of which none can be that of another replica.
func (d *decoder) checkPeers(cfg *Config) {
	r := cfg.Replicas
	lines := map[string]int{}
	itself := 0
	for i := range r.Peers {
		peer := &r.Peers[i]
		if !connectable(*peer) {
			d.refuse(peer, "is not host:port of another replica: write where its xDS listener is, such as "+
				"steelyard-2.internal:18000")
		}
		d.checkTwice(peer, *peer, lines, "replica")
		switch {
		case cfg.isItself(*peer):
			itself++
		case Loopback(*peer) && !Loopback(cfg.XDS.Listen):
			(*Checker)(d).Warn(peer, "%s is on this machine: fine for a test, but a replica on another machine needs "+
				"an address that leads there from here", shown(*peer))
		}
	}
	if itself > 0 && itself == len(r.Peers) {
		d.refuse(&r.Peers[0], "is this replica itself: write the xDS listeners of the others")
	}
	other := func(peer string) bool { return !Loopback(peer) }
	if Loopback(cfg.XDS.Listen) && (r.Service != "" || slices.ContainsFunc(r.Peers, other)) {
		(*Checker)(d).Warn(&cfg.Replicas, "only this machine can connect to xds.listen, %s, and the other replicas "+
			"have to: write an address there that they reach, such as 0.0.0.0:18000", d.value(&cfg.XDS.Listen))
	}
}

// checkReachable wants host:port of this process's xDS listener, or nothing.
func (d *decoder) checkReachable(address *string) {
	if *address != "" && !connectable(*address) {
		d.refuse(address, "is not host:port that another machine can connect to: for example, 10.0.0.5:18000")
	}
}

// connectable reports whether a text is host:port of a server to connect to.
func connectable(address string) bool {
	host, text, err := net.SplitHostPort(address)
	port, ok := parsePort(text)
	_, name := netip.ParseAddr(host)
	return err == nil && ok && port > 0 && !everyInterface(host) && (name == nil || hostname.MatchString(host))
}

// isItself reports whether a peer is this replica.
func (c *Config) isItself(peer string) bool {
	host, port, _ := net.SplitHostPort(c.XDS.Listen)
	other, itsPort, _ := net.SplitHostPort(peer)
	here := other == host || everyInterface(host) && Loopback(peer) || Loopback(c.XDS.Listen) && other == "localhost"
	return peer == c.Replicas.Address || here && itsPort == port
}

func (c *Config) queued() bool {
	return slices.ContainsFunc(c.Clusters, func(c Cluster) bool { return c.Queue != nil })
}
