package customrouter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	maxBackends   = 10_000
	maxBody       = 1 << 20 // of set-backends
	maxHost       = 253     // that of DNS
	lookupTimeout = 2 * time.Second
	maxLookups    = 64 // at a time
)

// resolve looks up the IP:port of backends. Of several with the same, the first stays: they are one server.
func (o *Options) resolve(ctx context.Context, backends []string) (distinct []string, found map[string]string,
	err error) {
	ips, err := lookUp(ctx, backends, o.Guard)
	if err != nil {
		return nil, nil, err
	}
	found = make(map[string]string, len(backends))
	seen := make(map[string]bool)
	for i, b := range backends {
		ip := ips[i]
		if err := checkIP(ip); err != nil {
			return nil, nil, fmt.Errorf("backend %q: %w", b, err)
		}
		_, port, _ := net.SplitHostPort(b) // checked by parseBackend
		if listens(o.Own, ip, port) {
			return nil, nil, fmt.Errorf("backend %q: this router itself listens at %s: want the address of a replica",
				b, o.Own)
		}
		if address := net.JoinHostPort(ip.String(), port); !seen[address] {
			seen[address] = true
			found[b] = address
			distinct = append(distinct, b)
		}
	}
	return distinct, found, nil
}

// lookUp returns the IP of each backend. Each goroutine defers guard.
func lookUp(ctx context.Context, backends []string, guard func()) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	ips, errs := make([]netip.Addr, len(backends)), make([]error, len(backends))
	running := make(chan struct{}, maxLookups)
	var all sync.WaitGroup
	for i, b := range backends {
		host, _, _ := net.SplitHostPort(b) // checked by parseBackend
		if ip, err := netip.ParseAddr(host); err == nil {
			ips[i] = ip
			continue
		}
		running <- struct{}{}
		all.Go(func() {
			defer guard()
			defer func() { <-running }()
			found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
			if err != nil {
				errs[i] = fmt.Errorf("backend %q: %w", b, err)
				return
			}
			ips[i] = slices.MinFunc(found, func(a, b netip.Addr) int { return a.Unmap().Compare(b.Unmap()) }).Unmap()
		})
	}
	all.Wait()
	return ips, first(slices.DeleteFunc(errs, func(err error) bool { return err == nil }))
}

// listens reports whether a listener at own, IP:port or empty, is reached by an IP of this machine and a port.
func listens(own string, ip netip.Addr, port string) bool {
	listener, err := netip.ParseAddrPort(own)
	if err != nil || port != strconv.Itoa(int(listener.Port())) {
		return false
	}
	if !listener.Addr().IsUnspecified() {
		return ip == listener.Addr().Unmap()
	}
	local, _ := net.InterfaceAddrs() // without them, only loopback is known
	return ip.IsLoopback() || slices.ContainsFunc(local, func(a net.Addr) bool {
		network, ok := a.(*net.IPNet)
		return ok && network.IP.Equal(ip.AsSlice())
	})
}

// checkIP returns an error for an address that no server has.
func checkIP(ip netip.Addr) error {
	broadcast := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	if !ip.IsValid() || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() || ip == broadcast {
		return fmt.Errorf("%q is not the address of one server: want an IP without zone that can be connected to", ip)
	}
	return nil
}

// hostName is what is looked up. Underscores are common in names of containers.
var hostName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\.?$`)

// canonical returns a host in the one spelling under which it is shown.
func canonical(host string) (string, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String(), checkIP(ip.Unmap())
	}
	if host = strings.ToLower(host); !hostName.MatchString(host) || len(host) > maxHost {
		return "", fmt.Errorf("%q is neither an IP nor a host name", host)
	}
	return host, nil
}

// parseBackend returns the host:port, in one spelling, of "http://host:port" or "host:port".
func parseBackend(text string) (string, error) {
	address := text
	if at := strings.LastIndex(text, "@"); at >= 0 { // what is in front may be a password
		return "", fmt.Errorf("backend …%q: want http://HOST:PORT without a user", text[at:])
	}
	if strings.Contains(text, "://") {
		u, err := url.Parse(text)
		switch {
		case err != nil:
			return "", fmt.Errorf("backend %q: %w", text, err)
		case u.Scheme != "http":
			return "", fmt.Errorf("backend %q: the scheme is %q, want http", text, u.Scheme)
		case u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
			return "", fmt.Errorf("backend %q: want http://HOST:PORT and nothing else", text)
		}
		if address = u.Host; u.Port() == "" {
			address = net.JoinHostPort(u.Hostname(), "80")
		}
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return "", fmt.Errorf("backend %q: want http://HOST:PORT or HOST:PORT", text)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", fmt.Errorf("backend %q: the port is %q, want 1 to 65535", text, port)
	}
	if host, err = canonical(host); err != nil {
		return "", fmt.Errorf("backend %q: %w", text, err)
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

// parseBackends reads the body of set-backends: all backends, each once. A body with an error changes nothing.
func parseBackends(body io.Reader) ([]string, error) {
	list, err := backendList(json.NewDecoder(body))
	switch {
	case err != nil:
		return nil, err
	case len(list) > maxBackends:
		return nil, fmt.Errorf("%d backends, at most %d can be set", len(list), maxBackends)
	}
	var out []string
	seen := make(map[string]bool)
	var errs []error
	for i, item := range list {
		var text *string
		if err := json.Unmarshal(item, &text); err != nil || text == nil {
			errs = append(errs, fmt.Errorf("item %d of the backends is %s, want a text such as \"http://10.0.0.1:80\"",
				i+1, clipped(item, longestQuote)))
			continue
		}
		b, err := parseBackend(*text)
		if err != nil {
			errs = append(errs, err)
		} else if !seen[b] {
			seen[b] = true
			out = append(out, b)
		}
	}
	return out, first(errs)
}

// first joins the first errors, with a part of each: bodies have up to a megabyte, and errors are logged.
func first(errs []error) error {
	const most, longest = 5, 300
	var texts []string
	for _, err := range errs[:min(most, len(errs))] {
		texts = append(texts, clipped([]byte(err.Error()), longest))
	}
	switch more := len(errs) - most; {
	case len(errs) == 0:
		return nil
	case more > 0:
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return errors.New(strings.Join(texts, "\n"))
}

// wanted is the form of the body of set-backends.
const wanted = `want {"backends": ["http://10.0.0.1:80"]}`

// backendList reads the list from a JSON object that has it once, and maybe keys that do not concern us.
func backendList(d *json.Decoder) (list []json.RawMessage, err error) {
	if open, err := d.Token(); err != nil {
		return nil, broken(err)
	} else if open != json.Delim('{') {
		return nil, errors.New("the body is not a JSON object: " + wanted)
	}
	found := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, broken(err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, broken(err)
		}
		if key != "backends" {
			continue
		}
		if found {
			return nil, errors.New(`the key "backends" is there twice: ` + wanted)
		}
		if found = true; json.Unmarshal(value, &list) != nil || list == nil {
			return nil, fmt.Errorf("the backends are %s, which is not a list: %s", clipped(value, longestQuote), wanted)
		}
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return nil, broken(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("want one JSON object, and nothing after it")
	}
	if !found {
		return nil, errors.New(`the key "backends" is missing: ` + wanted)
	}
	return list, nil
}

// broken is the error of a body that is no JSON, or that could not be read.
func broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the body ends within its JSON: " + wanted)
	}
	return fmt.Errorf("the body is not read as JSON: %w: %s", err, wanted)
}

const longestQuote = 64

// clipped is the beginning of a text, for an error.
func clipped(text []byte, longest int) string {
	if len(text) > longest {
		return strings.ToValidUTF8(string(text[:longest]), "") + "…"
	}
	return string(text)
}

// setBackends is POST /_custom_router/set-backends.
func (r *Router) setBackends(w http.ResponseWriter, req *http.Request) {
	backends, err := parseBackends(http.MaxBytesReader(w, req.Body, maxBody))
	r.setting.Lock() // a look-up may take longer than the next one's
	defer r.setting.Unlock()
	var address map[string]string
	if err == nil {
		backends, address, err = r.options.resolve(req.Context(), backends)
	}
	if err != nil {
		r.options.Log.Warn("backends refused, those before stay", "error", err)
		answer(w, http.StatusBadRequest, map[string]any{"ok": false, "error": err.Error()})
		return
	}
	r.set(time.Now(), backends, address)
	r.options.Log.Info("backends set", "backends", len(backends))
	answer(w, http.StatusOK, map[string]any{"ok": true, "backends": len(backends)})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}
