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
	"time"
)

const (
	maxBackends   = 10_000
	maxBody       = 1 << 20 // of set-backends
	maxHost       = 253     // that of DNS
	maxErrors     = 10      // named in an answer and in the log, which any client can have written
	lookupTimeout = 2 * time.Second
)

// resolve looks up the IP:port of backends. Of several with the same, the first stays: they are one server. own is
// where the router itself listens.
func resolve(ctx context.Context, own string, backends []string) (distinct []string, found map[string]string,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found = make(map[string]string, len(backends))
	seen := make(map[string]bool)
	for _, b := range backends {
		host, port, _ := net.SplitHostPort(b) // checked by parseBackend
		ip, err := netip.ParseAddr(host)
		if err != nil {
			ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
			if err != nil {
				return nil, nil, fmt.Errorf("backend %q: %w", b, err)
			}
			ip = slices.MinFunc(ips, func(a, b netip.Addr) int { return a.Unmap().Compare(b.Unmap()) }).Unmap()
		}
		if err := checkIP(ip); err != nil {
			return nil, nil, fmt.Errorf("backend %q: %w", b, err)
		}
		if listens(own, ip, port) {
			return nil, nil, fmt.Errorf("backend %q: this router itself listens at %s: want the address of a replica",
				b, own)
		}
		if address := net.JoinHostPort(ip.String(), port); !seen[address] {
			seen[address] = true
			found[b] = address
			distinct = append(distinct, b)
		}
	}
	return distinct, found, nil
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
	if ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() || ip == broadcast {
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
	if len(text) > len("http://:65535/")+maxHost {
		return "", fmt.Errorf("backend %q is longer than an address can be", clipped([]byte(text)))
	}
	address := text
	if strings.Contains(text, "://") {
		u, err := url.Parse(text)
		switch {
		case err != nil:
			return "", fmt.Errorf("backend %q: %w", text, err)
		case u.Scheme != "http":
			return "", fmt.Errorf("backend %q: the scheme is %q, want http", text, u.Scheme)
		case u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
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
		if len(errs) == maxErrors {
			errs = append(errs, errors.New("those after it were not read"))
			break
		}
		var text *string
		if err := json.Unmarshal(item, &text); err != nil || text == nil {
			errs = append(errs, fmt.Errorf("item %d of the backends is %s, want a text such as \"http://10.0.0.1:80\"",
				i+1, clipped(item)))
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
	return out, errors.Join(errs...)
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
			return nil, fmt.Errorf("the backends are %s, which is not a list: %s", clipped(value), wanted)
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

// clipped is a text as an error quotes it.
func clipped(text []byte) string {
	const longest = 64
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
		backends, address, err = resolve(req.Context(), r.options.Own, backends)
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
