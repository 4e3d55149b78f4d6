package admin

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"steelyard/internal/api"
)

// A web page in a browser that can reach this listener cannot read it, because the page has another origin; unless the
// name of that origin is made to resolve to this machine (DNS rebinding). The browser then sends that name as Host, so
// a Host that anyone can register is refused.

// A hostCheck has the Host names that the listener accepts.
type hostCheck struct {
	own     string   // the name of the machine, lower case
	allowed []string // lower case; *.NAME stands for all names below NAME
	log     *slog.Logger
	now     func() time.Time

	mu      sync.Mutex
	refused api.RefusedRequests
	logged  logLimit
}

func newHostCheck(allowed []string, log *slog.Logger, now func() time.Time) *hostCheck {
	own, err := os.Hostname()
	if err != nil {
		own = "localhost" // which is allowed anyway
	}
	h := &hostCheck{own: canonicalHost(own), log: log, now: now}
	for _, name := range allowed {
		h.allowed = append(h.allowed, canonicalHost(name))
	}
	return h
}

// canonicalHost is a host name, lower case and without a port or the root's dot.
func canonicalHost(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// private are domains that nobody can register: of this machine, of Kubernetes' services, and for private use.
var private = []string{"localhost", "svc", "cluster.local", "internal"}

// allows reports whether nobody else can make the name resolve to this machine: an address is no
// name, one word is no domain on the internet, and the others are configured or private.
func (h *hostCheck) allows(host string) bool {
	name := canonicalHost(host)
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil || !strings.Contains(name, ".") {
		return true
	}
	within := func(domain string) bool { return strings.HasSuffix(name, "."+domain) }
	return name == h.own || slices.ContainsFunc(private, within) ||
		slices.ContainsFunc(h.allowed, func(allowed string) bool {
			domain, all := strings.CutPrefix(allowed, "*.")
			return name == allowed || all && within(domain)
		})
}

// checked refuses requests with another Host. /healthz accepts any: it shows nothing.
func (h *hostCheck) checked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" || h.allows(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		h.refuse(r)
		writeError(w, http.StatusMisdirectedRequest, "this listener does not accept the Host %.100q: "+
			"add it to admin.allowed_hosts, or use the IP address", canonicalHost(r.Host))
	})
}

func (h *hostCheck) refuse(r *http.Request) {
	const longest = 100 // bytes of a name that is shown
	h.mu.Lock()
	now := h.now()
	h.refused.Count++
	h.refused.LastAt = api.At(now)
	h.refused.LastHost = strings.ToValidUTF8(r.Host[:min(len(r.Host), longest)], "")
	refused, shouldLog := h.refused, h.logged.due(now)
	h.mu.Unlock()
	if shouldLog {
		h.log.Warn("admin request refused: its Host is not in admin.allowed_hosts", "host", refused.LastHost,
			"peer", r.RemoteAddr, "refused", refused.Count)
	}
}

func (h *hostCheck) totals() api.RefusedRequests {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refused
}
