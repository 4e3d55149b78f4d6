package console

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"steelyard/cmd/internal/table"
	"steelyard/internal/credentials"
	"steelyard/internal/files"
)

// Where a command finds Steelyard, unless an option or a variable of the environment names another address.
const (
	DefaultAdmin = "http://127.0.0.1:19000"

	EnvAdmin     = "STEELYARD_ADMIN"
	EnvToken     = "STEELYARD_TOKEN"
	EnvTokenFile = "STEELYARD_TOKEN_FILE"
	EnvCAFile    = "STEELYARD_CA_FILE"
)

// The bounds of a request.
const (
	patience = 10 * time.Second
	// patienceOfSeveral is how long one of several listeners may take until it begins to answer.
	patienceOfSeveral = 2 * time.Second
	maxAnswer         = 256 << 20 // bytes: a cluster of 10,000 endpoints has 30 MiB
	maxToken          = 16 << 10
	shownAnswer       = 300 // bytes of an answer that is not Steelyard's
)

// Options are how Steelyard is reached.
type Options struct {
	// Admins are URLs of admin listeners, of several replicas, with commas between those in one text; none: those in
	// EnvAdmin, or DefaultAdmin.
	Admins    []string
	TokenFile string // file with a token; empty: EnvToken, or EnvTokenFile, or none
	TLS       credentials.Client
	Notes     io.Writer // gets which of several listeners do not answer; nil: nobody
}

// A Client asks one Steelyard: of several replicas, the first that answers. It is not safe for concurrent use.
type Client struct {
	listeners []listener
	asks      int // which of them
	token     string
	notes     io.Writer
}

// A listener is the admin listener of a replica.
type listener struct {
	base  *url.URL
	http  http.Client
	noted bool // that it does not answer
}

// A RefusedError is an answer that is not a success.
type RefusedError struct {
	Code    int
	Message string
}

func (e *RefusedError) Error() string { return e.Message }

// ErrOptions marks what is wrong with Options: a mistake in the command line.
var ErrOptions = errors.New("option")

func wrong(format string, args ...any) error {
	return fmt.Errorf("%w %s", ErrOptions, fmt.Sprintf(format, args...))
}

// NewClient checks the options and reads the files that they name; it does not connect.
func NewClient(ctx context.Context, o Options) (*Client, error) {
	admins := strings.Split(cmp.Or(strings.Join(o.Admins, ","), os.Getenv(EnvAdmin), DefaultAdmin), ",")
	c := &Client{notes: cmp.Or(o.Notes, io.Discard)}
	var err error
	if c.token, err = token(ctx, o); err != nil {
		return nil, err
	}
	for _, admin := range admins {
		l, err := newListener(ctx, strings.TrimSpace(admin), o.TLS, len(admins) > 1)
		if err != nil {
			return nil, err
		}
		c.listeners = append(c.listeners, *l)
	}
	return c, nil
}

func newListener(ctx context.Context, admin string, by credentials.Client, several bool) (*listener, error) {
	if !strings.Contains(admin, "://") {
		admin = "http://" + admin
	}
	base, err := url.Parse(admin)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" {
		return nil, wrong("--admin %q: write the URL of the admin listener, such as %s", admin, DefaultAdmin)
	}
	if base.User != nil {
		return nil, wrong("--admin: a user or password in the URL is not used: write a token into a file, and " +
			"--token-file")
	}
	base.Path = strings.TrimRight(base.Path, "/")
	if base.Scheme == "http" && (by.CAFile != "" || by.CertFile != "" || by.KeyFile != "") {
		return nil, wrong("--admin %s has no TLS: write https://, or leave out the options for certificates", base)
	}
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 4}
	if several {
		transport.ResponseHeaderTimeout = patienceOfSeveral
	}
	if base.Scheme == "https" {
		by.CAFile = cmp.Or(by.CAFile, os.Getenv(EnvCAFile))
		if transport.TLSClientConfig, err = tlsConfig(ctx, by, base.Hostname()); err != nil {
			return nil, err
		}
	}
	return &listener{base: base, http: http.Client{Transport: transport, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

func tlsConfig(ctx context.Context, c credentials.Client, host string) (*tls.Config, error) {
	if (c.CertFile == "") != (c.KeyFile == "") {
		return nil, wrong("--cert-file and --key-file: write both or none")
	}
	c.ServerName = cmp.Or(c.ServerName, host)
	return credentials.New(slog.New(slog.DiscardHandler)).Client(ctx, c)
}

// token is never printed, nor in an error.
func token(ctx context.Context, o Options) (string, error) {
	path := o.TokenFile
	if path == "" {
		if t := os.Getenv(EnvToken); t != "" {
			return strings.TrimSpace(t), nil
		}
		path = os.Getenv(EnvTokenFile)
	}
	if path == "" {
		return "", nil
	}
	content, err := files.Read(ctx, path, maxToken+1)
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	fields := strings.Fields(string(content))
	switch {
	case len(content) > maxToken, len(fields) == 0:
		return "", fmt.Errorf("%s: write a file with only the token", path)
	case len(fields) == 3 && (fields[0] == "view" || fields[0] == "operate"):
		return fields[2], nil // a line of admin.tokens_file
	case len(fields) > 1:
		return "", fmt.Errorf("%s: write a file with only the token, or with one line of admin.tokens_file", path)
	}
	return fields[0], nil
}

// String is where the Client asks.
func (c *Client) String() string { return c.listeners[c.asks].base.String() }

// get asks for what is at a path, whose parts are escaped. The parameters follow in pairs; empty ones are left out.
func (c *Client) get(ctx context.Context, into any, path []string, parameters ...string) error {
	return c.do(ctx, http.MethodGet, path, parameters, nil, into)
}

// do asks the listeners in turn, beginning with the one that answered last, until one answers. What changes something
// is sent to the next one only if the one before cannot have received it.
func (c *Client) do(
	ctx context.Context, method string, path, parameters []string, body []byte, into any,
) error {
	var all []error
	for range c.listeners {
		l := &c.listeners[c.asks]
		err := l.do(ctx, c.token, method, path, parameters, body, into)
		again := Unanswered(err) && ctx.Err() == nil && (method == http.MethodGet || notReached(err))
		if !again || len(c.listeners) == 1 {
			l.noted = false
			return err
		}
		all = append(all, err)
		c.asks = (c.asks + 1) % len(c.listeners)
		if len(all) < len(c.listeners) && !l.noted {
			fmt.Fprintf(c.notes, "steelyard: %v; asking %s\n", err, c)
		}
		l.noted = true
	}
	return fmt.Errorf("none of %d admin listeners answers:\n%w", len(all), errors.Join(all...))
}

func (l *listener) do(
	ctx context.Context, token, method string, path, parameters []string, body []byte, into any,
) error {
	query := url.Values{}
	for i := 0; i+1 < len(parameters); i += 2 {
		if parameters[i+1] != "" {
			query.Add(parameters[i], parameters[i+1])
		}
	}
	u := l.base.JoinPath(append([]string{"api", "v1"}, escaped(path)...)...)
	u.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	request.Header.Set("User-Agent", "steelyard")
	response, err := l.http.Do(request)
	if err != nil {
		return l.unreached(ctx, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", l.base, err)
	}
	if response.StatusCode != http.StatusOK {
		return l.refused(response.StatusCode, answer)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s is not the admin listener of a Steelyard: %w", l.base, err)
	}
	return nil
}

func escaped(path []string) []string {
	out := make([]string, len(path))
	for i, p := range path {
		out[i] = url.PathEscape(p)
	}
	return out
}

// notReached reports whether there was no connection, so that the request cannot have been received.
func notReached(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// unreached explains why nothing answered.
func (l *listener) unreached(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if cause, ok := errors.AsType[*url.Error](err); ok {
		err = cause.Err
	}
	if strings.Contains(err.Error(), "malformed HTTP") { // with what was read, which may be binary
		return fmt.Errorf("%s does not speak HTTP, as the xDS port does not: write the admin.listen of Steelyard "+
			"(--admin URL, or %s)", l.base, EnvAdmin)
	}
	hint := ""
	if notReached(err) {
		hint = ": is Steelyard running, and is this its admin.listen? (--admin URL, or " + EnvAdmin + ")"
	}
	return fmt.Errorf("%s does not answer: %w%s", l.base, err, hint)
}

func (l *listener) refused(code int, answer []byte) error {
	var body struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(answer, &body) != nil || body.Error == "" {
		body.Error = fmt.Sprintf("%s answered %d %s: %.*s", l.base, code, http.StatusText(code), shownAnswer,
			bytes.TrimSpace(answer))
	}
	if code == http.StatusUnauthorized {
		body.Error += " (here: --token-file FILE, or " + EnvToken + ")"
	}
	return &RefusedError{Code: code, Message: table.Printable(body.Error)}
}
