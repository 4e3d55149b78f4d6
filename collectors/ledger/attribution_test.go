package ledger

import (
	"strconv"
	"testing"
	"time"
)

// shared returns an Envoy that watches two clusters with one endpoint in both.
func shared() (*world, *testEnvoy) {
	w, e := single()
	w.cluster("embed", one)
	w.watch("embed", e)
	return w, e
}

// through has requests begin through a cluster of the Envoy's.
func (w *world) through(s *Stream, cluster string, n int) {
	for i := range n {
		s.Events(w.now,
			[]Event{{ID: []byte(cluster + strconv.Itoa(i)), Address: []byte(one), Cluster: []byte(cluster)}})
	}
}

// mustHave checks requests in flight and issued, by cluster.
func (w *world) mustHave(t *testing.T, name string, inFlight, issued int) {
	t.Helper()
	w.mustBeSound(t)
	got := w.ticked().Read(name, w.now, nil)[0]
	if int(got.InFlight.Value) != inFlight || int(got.Proxies.Issued.Value) != issued {
		t.Errorf("%s: %v in flight, %v issued; want %d and %d", name, got.InFlight.Value, got.Proxies.Issued.Value,
			inFlight, issued)
	}
}

func TestARequestCountsInTheClusterThatItWentThrough(t *testing.T) {
	w, e := shared()
	s := w.open(e)
	w.through(s, "chat", 3)
	w.through(s, "embed/fallback", 2)
	w.mustHave(t, "chat", 3, 3)
	w.mustHave(t, "embed", 2, 2)
	s.Events(w.now, []Event{{Ended: true, ID: []byte("chat0"), Address: []byte(one), Cluster: []byte("chat")}})
	w.mustHave(t, "chat", 2, 3)
	w.mustHave(t, "embed", 2, 2)
}

func TestLoadReportsShowWhichClusterANameMeans(t *testing.T) {
	w, e := shared()
	s := w.open(e)
	w.reporting(e)
	report := func(chat, embed uint64) {
		w.after(time.Second)
		load := func(n uint64) []EndpointLoad {
			if n == 0 {
				return nil
			}
			return []EndpointLoad{{Address: one, InProgress: n, Issued: n}}
		}
		e.reports.Report(w.now, []ClusterLoad{
			{Name: "ours", Cluster: "chat/failsafe", Endpoints: load(chat)},
			{Name: "chat", Cluster: "embed", Endpoints: load(embed)}, // a name to be misled by
		})
	}
	report(0, 0)
	w.through(s, "ours", 3)
	w.through(s, "chat", 2)
	w.mustHave(t, "chat", 3, 3)
	w.mustHave(t, "embed", 2, 2)
	report(3, 2)
	report(3, 2)
	w.mustHave(t, "chat", 3, 3)
	w.mustHave(t, "embed", 2, 2)
	s.Close() // from here on by the reports
	report(4, 1)
	w.mustHave(t, "chat", 4, 7+3)
	w.mustHave(t, "embed", 1, 3+2)
}

// TestARequestThroughAnUnknownClusterIsOneOfEach: a load that is not counted is worse
// than one that is counted twice.
func TestARequestThroughAnUnknownClusterIsOneOfEach(t *testing.T) {
	w, e := shared()
	s := w.open(e)
	w.through(s, "a fallback of one's own", 2)
	w.through(s, "", 1)
	w.mustHave(t, "chat", 3, 3)
	w.mustHave(t, "embed", 3, 3)
	w.reporting(e)
	w.after(time.Second)
	e.reports.Report(w.now, []ClusterLoad{{Name: "x", Cluster: "x",
		Endpoints: []EndpointLoad{{Address: one, InProgress: 3}}}})
	w.mustHave(t, "chat", 3, 3)
	w.mustHave(t, "embed", 3, 3)
}

// TestTheOnlyClusterOfAnEndpointNeedsNoName: whatever the Envoy calls it.
func TestTheOnlyClusterOfAnEndpointNeedsNoName(t *testing.T) {
	w, e := single()
	w.cluster("embed", "10.1.0.9:80")
	s := w.open(e)
	w.through(s, "embed", 2)
	w.through(s, "?", 1)
	w.mustHave(t, "chat", 3, 3)
}

func TestTheNamesOfAnEnvoyAreBounded(t *testing.T) {
	w, e := shared()
	w.reporting(e)
	var loads []ClusterLoad
	for i := range 2 * maxServices {
		loads = append(loads, ClusterLoad{Name: strconv.Itoa(i), Cluster: "chat"})
	}
	e.reports.Report(w.now, loads)
	if got := len(w.ledger.envoys[e.node].services); got != maxServices {
		t.Errorf("%d names are kept, want %d", got, maxServices)
	}
}

// names are n clusters of an Envoy's that stand for one in EDS.
func names(prefix string, n int, service string) (loads []ClusterLoad) {
	for i := range n {
		loads = append(loads, ClusterLoad{Name: prefix + strconv.Itoa(i), Cluster: service})
	}
	return loads
}

// TestTheNameOfOneClusterIsKeptWhateverElseAnEnvoyHas: clusters of other control planes,
// names that stand for themselves, and clusters that are gone.
func TestTheNameOfOneClusterIsKeptWhateverElseAnEnvoyHas(t *testing.T) {
	ours := ClusterLoad{Name: "ours", Cluster: "chat/failsafe"}
	for name, before := range map[string][]ClusterLoad{
		"clusters of others":            names("", 2*maxServices, "elsewhere"),
		"names that need no learning":   names("chat/", 2*maxServices, "chat/failsafe"),
		"clusters that were since gone": names("", maxServices, "embed"),
	} {
		t.Run(name, func(t *testing.T) {
			w, e := shared()
			w.reporting(e)
			e.reports.Report(w.now, before)
			for range 5 {
				w.after(time.Second)
				e.reports.Report(w.now, []ClusterLoad{ours})
			}
			w.through(w.open(e), "ours", 3)
			w.mustHave(t, "chat", 3, 3)
			w.mustHave(t, "embed", 0, 0)
		})
	}
	t.Run("clusters of others, in one report", func(t *testing.T) {
		w, e := shared()
		w.reporting(e)
		e.reports.Report(w.now, append(names("", 2*maxServices, "elsewhere"), ours))
		w.through(w.open(e), "ours", 3)
		w.mustHave(t, "chat", 3, 3)
		w.mustHave(t, "embed", 0, 0)
	})
}

func TestANameThatIsKnownCanComeToStandForAnotherCluster(t *testing.T) {
	w, e := shared()
	w.reporting(e)
	loads := names("", maxServices, "embed")
	e.reports.Report(w.now, loads)
	loads[7].Cluster = "chat"
	e.reports.Report(w.now, loads)
	w.through(w.open(e), "7", 3)
	w.mustHave(t, "chat", 3, 3)
	w.mustHave(t, "embed", 0, 0)
}

// TestRequestsThatAHashPlacedAreKnown: by the EDS name of the cluster that they went through, or, until a report has
// shown it, by the name that a bootstrap gives it.
func TestRequestsThatAHashPlacedAreKnown(t *testing.T) {
	for name, c := range map[string]struct {
		through, eds string // eds is empty where there are no load reports
		hashed       int
	}{
		"a cluster that follows the weights":          {"chat", "chat/failsafe", 0},
		"one that hashes, of a bootstrap":             {"chat_affinity", "chat/members", 3},
		"the same, and no report has come":            {"chat_affinity", "", 3},
		"one that hashes, of a name of its own":       {"ours", "chat/members", 3},
		"one that hashes, of the name of the cluster": {"chat", "chat/members", 3},
		"a name that misleads":                        {"chat_affinity", "chat/failsafe", 0},
		"a fallback":                                  {"chat_fallback", "chat/fallback", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, e := shared()
			w.reporting(e)
			report := func(n uint64) {
				w.after(time.Second)
				e.reports.Report(w.now, []ClusterLoad{{Name: c.through, Cluster: c.eds,
					Endpoints: []EndpointLoad{{Address: one, InProgress: n, Issued: n}}}})
			}
			s := w.open(e)
			if c.eds != "" {
				report(0)
			}
			w.through(s, c.through, 3)
			w.mustBeHashed(t, c.hashed)
			if c.eds == "" {
				return
			}
			report(3)
			s.Close() // from here on by the reports
			report(5)
			if c.hashed > 0 {
				c.hashed += 5
			}
			w.mustBeHashed(t, c.hashed)
		})
	}
}

// mustBeHashed checks how many of the requests to chat a hash placed.
func (w *world) mustBeHashed(t *testing.T, want int) {
	t.Helper()
	if got := w.ticked().Read("chat", w.now, nil)[0].Proxies; int(got.Hashed.Value) != want || !got.Hashed.Known() {
		t.Errorf("%v of %v hashed, want %d", got.Hashed, got.Issued.Value, want)
	}
}

// TestAClusterOfOursMayBeNamedLikeOneThatHashes: what goes through it follows its weights.
func TestAClusterOfOursMayBeNamedLikeOneThatHashes(t *testing.T) {
	w, e := shared()
	w.cluster("chat_affinity", one)
	w.watch("chat_affinity", e)
	w.through(w.open(e), "chat_affinity", 3)
	w.mustHave(t, "chat_affinity", 3, 3)
	w.mustHave(t, "chat", 0, 0)
	if got := w.ticked().Read("chat_affinity", w.now, nil)[0].Proxies.Hashed.Value; got != 0 {
		t.Errorf("%v hashed, want none", got)
	}
}
