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
	maxText       = 300     // of a backend: the longest host name, a scheme and a port
	maxHost       = 253     // that of DNS
	lookupTimeout = 2 * time.Second
	maxLookups    = 64 // at a time
	// lookAgain is the time between two look-ups of names that were not found: a backend may be set before its name is
	// known everywhere.
	lookAgain = 5 * time.Second
)

// A backend is one that set-backends names.
type backend struct {
	given   string // as it was given: by this it is shown
	key     string // HOST:PORT in one spelling: by this it is known
	address string // IP:port, once it was looked up
}

// A LeftOut is a backend of set-backends that gets no requests.
type LeftOut struct {
	Backend string `json:"backend"` // as it was given, without a password
	Error   string `json:"error"`   // why it cannot be used
}

// asked is what set-backends asked for.
type asked struct {
	backends []backend
	leftOut  []LeftOut // cannot be used, whatever a look-up says
}

// resolve looks up the backends that are asked for. Of several with the same IP:port, the first stays: they are one
// server. One whose name is not found any more keeps the address that it had. later reports whether another look-up may
// find more.
func (r *Router) resolve(a asked) (used []backend, leftOut []LeftOut, later bool) {
	ips, errs := lookUp(r.connecting, a.backends, r.options.Guard)
	leftOut = slices.Clone(a.leftOut)
	seen := make(map[string]bool)
	for i, b := range a.backends {
		host, port, _ := net.SplitHostPort(b.key) // checked by parseBackend
		b.address = net.JoinHostPort(ips[i].String(), port)
		err := errs[i]
		switch {
		case err != nil && r.addressOf(b.key) != "":
			b.address, err = r.addressOf(b.key), nil
		case err != nil:
		case listens(r.options.Own, ips[i], port):
			err = fmt.Errorf("this router itself listens at %s: want the address of a replica", r.options.Own)
		default:
			err = checkIP(ips[i])
		}
		if err != nil {
			leftOut = append(leftOut, leaveOut(b.given, err))
			_, noName := netip.ParseAddr(host)
			later = later || noName != nil
		} else if !seen[b.address] {
			seen[b.address] = true
			used = append(used, b)
		}
	}
	return used, leftOut, later
}

// lookUp returns the IP of each backend, or why there is none. Each goroutine defers guard.
func lookUp(ctx context.Context, backends []backend, guard func()) ([]netip.Addr, []error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	ips, errs := make([]netip.Addr, len(backends)), make([]error, len(backends))
	running := make(chan struct{}, maxLookups)
	var all sync.WaitGroup
	for i, b := range backends {
		host, _, _ := net.SplitHostPort(b.key) // checked by parseBackend
		if ip, err := netip.ParseAddr(host); err == nil {
			ips[i] = ip
			continue
		}
		errs[i] = errors.New("the look-up of its name failed") // until it is over
		running <- struct{}{}
		all.Go(func() {
			defer guard()
			defer func() { <-running }()
			found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
			if errs[i] = err; err == nil {
				byValue := func(a, b netip.Addr) int { return a.Unmap().Compare(b.Unmap()) }
				ips[i] = slices.MinFunc(found, byValue).Unmap()
			}
		})
	}
	all.Wait()
	return ips, errs
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

// parseBackend reads "http://host:port" or "host:port".
func parseBackend(text string) (backend, error) {
	address := text
	if len(text) > maxText {
		return backend{}, fmt.Errorf("it has %d bytes, want at most %d", len(text), maxText)
	}
	if strings.Contains(text, "@") { // what is in front may be a password
		return backend{}, errors.New("want http://HOST:PORT without a user")
	}
	if strings.Contains(text, "://") {
		u, err := url.Parse(text)
		var failed *url.Error
		switch {
		case errors.As(err, &failed):
			return backend{}, failed.Err
		case u.Scheme != "http":
			return backend{}, fmt.Errorf("the scheme is %q, want http", u.Scheme)
		case u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
			return backend{}, errors.New("want http://HOST:PORT and nothing else")
		}
		if address = u.Host; u.Port() == "" {
			address = net.JoinHostPort(u.Hostname(), "80")
		}
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return backend{}, errors.New("want http://HOST:PORT or HOST:PORT")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return backend{}, fmt.Errorf("the port is %q, want 1 to 65535", port)
	}
	if host, err = canonical(host); err != nil {
		return backend{}, err
	}
	return backend{given: text, key: net.JoinHostPort(host, strconv.FormatUint(n, 10))}, nil
}

// parseBackends reads the body of set-backends: all backends, each once. The error is of a body that has no list.
func parseBackends(body io.Reader) (a asked, err error) {
	list, err := backendList(json.NewDecoder(body))
	switch {
	case err != nil:
		return a, err
	case len(list) > maxBackends:
		return a, fmt.Errorf("%d backends, at most %d can be set", len(list), maxBackends)
	}
	seen := make(map[string]bool)
	for _, item := range list {
		var text *string
		if err := json.Unmarshal(item, &text); err != nil || text == nil {
			a.leftOut = append(a.leftOut, leaveOut(string(item),
				errors.New("want a text such as \"http://10.0.0.1:80\"")))
			continue
		}
		b, err := parseBackend(*text)
		if err != nil {
			a.leftOut = append(a.leftOut, leaveOut(*text, err))
		} else if !seen[b.key] {
			seen[b.key] = true
			a.backends = append(a.backends, b)
		}
	}
	return a, nil
}

// leaveOut names a backend and why it cannot be used, in short: bodies have up to a megabyte, and this is logged.
func leaveOut(given string, err error) LeftOut {
	if at := strings.LastIndex(given, "@"); at >= 0 { // what is in front may be a password
		given = "…" + given[at:]
	}
	return LeftOut{Backend: clipped(given, longestQuote), Error: clipped(err.Error(), maxText)}
}

// shown are the first of those that are left out, and how many there are besides.
func shown(all []LeftOut) []LeftOut {
	const most = 100
	if len(all) <= most {
		return all
	}
	return append(slices.Clone(all[:most]), LeftOut{Error: fmt.Sprintf("and %d more", len(all)-most)})
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
			return nil, fmt.Errorf("the backends are %s, which is not a list: %s",
				clipped(string(value), longestQuote), wanted)
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
func clipped(text string, longest int) string {
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

// setBackends is POST /_custom_router/set-backends. What cannot be used is left out, and named in the answer.
func (r *Router) setBackends(w http.ResponseWriter, req *http.Request) {
	a, err := parseBackends(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		r.options.Log.Warn("backends refused, those before stay", "error", err)
		answer(w, http.StatusBadRequest, map[string]any{"ok": false, "error": err.Error()})
		return
	}
	r.setting.Lock() // a look-up may take longer than the next one's
	defer r.setting.Unlock()
	r.asked = a
	used, leftOut := r.look()
	r.options.Log.Info("backends set", "backends", used)
	status, said := http.StatusOK, map[string]any{"ok": true, "backends": used}
	if len(leftOut) > 0 {
		said["left_out"] = leftOut
	}
	if used == 0 && len(leftOut) > 0 {
		status, said["ok"] = http.StatusBadRequest, false
		said["error"] = "none of the backends can be used, those before stay"
	}
	answer(w, status, said)
}

// look sets those of the backends that were asked for that can be used. Where there are some and none can be used,
// those before stay. It is called by one goroutine at a time.
func (r *Router) look() (used int, leftOut []LeftOut) {
	backends, leftOut, later := r.resolve(r.asked)
	leftOut = shown(leftOut)
	if len(backends) > 0 || len(leftOut) == 0 {
		r.set(time.Now(), backends)
	}
	r.mu.Lock()
	changed := !slices.Equal(leftOut, r.leftOut)
	r.leftOut, r.lookAt = leftOut, time.Time{}
	if later {
		r.lookAt = time.Now().Add(lookAgain)
	}
	r.mu.Unlock()
	switch {
	case changed && len(leftOut) == 0:
		r.options.Log.Info("no backend is left out any more", "backends", len(backends))
	case changed:
		r.options.Log.Warn("backends left out", "backends", len(backends), "left_out", leftOut)
	}
	return len(backends), leftOut
}

// lookOnce looks up again what was not found, unless another list was set meanwhile, of which all was.
func (r *Router) lookOnce() {
	r.setting.Lock()
	defer r.setting.Unlock()
	r.mu.Lock()
	due := !r.lookAt.IsZero()
	r.mu.Unlock()
	if due {
		r.look()
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}
