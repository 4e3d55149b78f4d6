package ledger

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// manyClusters returns a ledger of 20 clusters with 1,000 endpoints each, and their addresses.
func manyClusters() (*Ledger, [20][]string) {
	l := New(nil)
	var addresses [20][]string
	for c := range addresses {
		for i := range 1000 {
			addresses[c] = append(addresses[c], fmt.Sprintf("10.%d.%d.%d:8000", c, i/250, i%250))
		}
		l.SetMembers("cluster-"+strconv.Itoa(c), addresses[c])
	}
	return l, addresses
}

// grows is by how many bytes the heap is larger after do.
func grows(do func()) int {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	do()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return int(after.HeapAlloc) - int(before.HeapAlloc)
}

// TestUnknownNodesTakeMemoryByWhatTheySay: a node that any client can invent takes some hundred bytes and not a list of
// all endpoints, and one too many takes nothing.
func TestUnknownNodesTakeMemoryByWhatTheySay(t *testing.T) {
	for _, nodes := range []int{2_000, 20_000} {
		t.Run(strconv.Itoa(nodes), func(t *testing.T) {
			l, addresses := manyClusters()
			heap := grows(func() {
				for i := range nodes {
					node := Envoy{NodeID: strconv.Itoa(i), Host: "10.9.9.9"}
					l.Open(node, start).Begin(start, "id", addresses[i%20][i%1000])
					l.Reporting(node, time.Second, start).Report(start, []ClusterLoad{{
						Cluster:   "cluster-19",
						Endpoints: []EndpointLoad{{Address: addresses[19][i%1000], InProgress: 1}},
					}})
				}
			})
			kept := min(nodes, maxEnvoys/strangers)
			t.Logf("%d nodes, %d kept: %d bytes each", nodes, kept, heap/kept)
			if each := heap / kept; each > 2_500 || len(l.envoys) != kept {
				t.Errorf("%d nodes kept take %d bytes each; want %d and at most 2,500", len(l.envoys), each, kept)
			}
			runtime.KeepAlive(l)
		})
	}
}

// TestAFleetTakesMemoryByItsPairsOfEnvoyAndEndpoint: 1,000 Envoys that use one of 20 clusters, with
// 1,000 endpoints, take what that many pairs take, whatever else there is.
func TestAFleetTakesMemoryByItsPairsOfEnvoyAndEndpoint(t *testing.T) {
	const envoys = 1000
	l, addresses := manyClusters()
	load := []ClusterLoad{{Cluster: "cluster-19"}}
	for _, address := range addresses[19] {
		load[0].Endpoints = append(load[0].Endpoints, EndpointLoad{Address: address, InProgress: 1, Issued: 1})
	}
	watchers := make([]Envoy, envoys)
	for i := range watchers {
		watchers[i] = Envoy{NodeID: strconv.Itoa(i), Host: "10.0.0.1"}
	}
	l.SetWatchers("cluster-19", watchers)
	heap := grows(func() {
		for _, node := range watchers {
			l.Open(node, start)
			l.Reporting(node, time.Second, start).Report(start, load)
		}
	})
	pairs := envoys * len(addresses[19])
	t.Logf("%d bytes for each of %d pairs", heap/pairs, l.accounts)
	if each := heap / pairs; each > 170 || l.accounts != pairs {
		t.Errorf("%d bytes for each of %d pairs, want at most 170 for each of %d", each, l.accounts, pairs)
	}
	runtime.KeepAlive(l)
}

// TestTheNamesOfAllEnvoysAreBounded: those that watch nothing get a part of them, and leave room
// when they go.
func TestTheNamesOfAllEnvoysAreBounded(t *testing.T) {
	w := twoClusters()
	var unknown []*testEnvoy
	for i := range 2 * maxServicesTotal / strangers / maxServices {
		e := w.envoy("stranger-" + strconv.Itoa(i))
		w.reporting(e)
		e.reports.Report(w.now, names(strconv.Itoa(i)+"-", maxServices, "chat"))
		unknown = append(unknown, e)
	}
	w.mustBeSound(t)
	if got := w.ledger.services; got != maxServicesTotal/strangers {
		t.Errorf("%d names of strangers are kept, want %d", got, maxServicesTotal/strangers)
	}
	watcher := w.envoys[0]
	w.reporting(watcher)
	watcher.reports.Report(w.now, names("", maxServices, "embed"))
	if got := len(w.ledger.envoys[watcher.node].services); got != maxServices {
		t.Errorf("%d names of one that watches are kept, want %d", got, maxServices)
	}
	for _, e := range unknown {
		e.reports.Close()
	}
	w.mustBeSound(t)
}

// TestAllThatUnknownNodesSayHasATotal: whatever nodes that watch nothing send, and however many they
// are, they take what the package comment says.
func TestAllThatUnknownNodesSayHasATotal(t *testing.T) {
	const most = 160 << 20 // bytes, as in the package comment
	l, addresses := manyClusters()
	load := []ClusterLoad{{Cluster: "cluster-19"}}
	for _, address := range addresses[19][:150] {
		load[0].Endpoints = append(load[0].Endpoints, EndpointLoad{Address: address, InProgress: 1, Issued: 1})
	}
	for i := range 40 { // names that mislead, as long as they may be
		load = append(load, ClusterLoad{Name: strings.Repeat("n", 1000) + strconv.Itoa(i), Cluster: "cluster-19"})
	}
	heap := grows(func() {
		for i := range 5000 {
			node := Envoy{NodeID: strconv.Itoa(i), Host: "10.9.9.9"}
			s := l.Open(node, start)
			for j := range 80 {
				s.Begin(start, strconv.Itoa(j), addresses[19][j])
			}
			own := slices.Clone(load)
			for j := range own[1:] {
				own[j+1].Name = strings.Clone(own[j+1].Name) // as of another stream
			}
			l.Reporting(node, time.Second, start).Report(start, own)
		}
	})
	t.Logf("%d MB: %d nodes, %d pairs, %d requests, %d names", heap>>20, len(l.envoys), l.accounts, l.open, l.services)
	if heap > most {
		t.Errorf("%d MB, want at most %d", heap>>20, most>>20)
	}
	for what, n := range map[string][2]int{
		"nodes":    {len(l.envoys), maxEnvoys / strangers},
		"pairs":    {l.accounts, maxAccounts / strangers},
		"requests": {l.open, maxOpenTotal / strangers},
		"names":    {l.services, maxServicesTotal / strangers},
	} {
		if n[0] != n[1] {
			t.Errorf("%d %s are kept, want the bound of %d reached", n[0], what, n[1])
		}
	}
	runtime.KeepAlive(l)
}
