package admin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"steelyard/internal/api"
)

// The roles of a token. One that may operate may also view.
const (
	RoleView    = "view"    // reads everything
	RoleOperate = "operate" // also uses the routes that change something
)

// A Token is a line of the file of tokens.
type Token struct {
	Role, Name string // the name is for the log
	hash       [sha256.Size]byte
}

// Bounds of the file of tokens.
const (
	maxTokens     = 1000
	shortestToken = 16 // bytes: shorter ones can be guessed
	longestToken  = 512

	shownLines = 5 // that are wrong
)

// ParseTokens reads a file of tokens: one line each with its role, a name and the token; empty lines and those that
// begin with # do not count. An error has the number of the line and never what is in it.
func ParseTokens(content []byte) ([]Token, error) {
	var all []Token
	var wrong []string
	lines := bufio.NewScanner(bytes.NewReader(content))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 3 || fields[0] != RoleView && fields[0] != RoleOperate {
			wrong = append(wrong, fmt.Sprintf("line %d: write ROLE NAME TOKEN, where ROLE is %s or %s", n, RoleView,
				RoleOperate))
			continue
		}
		if l := len(fields[2]); l < shortestToken || l > longestToken {
			wrong = append(wrong, fmt.Sprintf("line %d: the token has %d characters: write %d to %d, for example, the "+
				"output of openssl rand -hex 32", n, l, shortestToken, longestToken))
			continue
		}
		t := Token{Role: fields[0], Name: fields[1], hash: sha256.Sum256([]byte(fields[2]))}
		if slices.ContainsFunc(all, func(other Token) bool { return other.hash == t.hash }) {
			wrong = append(wrong, fmt.Sprintf("line %d: another line has the same token: give each name its own", n))
			continue
		}
		if all = append(all, t); len(all) > maxTokens {
			return nil, fmt.Errorf("line %d: there are more than %d tokens", n, maxTokens)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(wrong) > 0 {
		return nil, errors.New(strings.Join(api.Limit(wrong, shownLines), "; "))
	}
	if len(all) == 0 {
		return nil, errors.New("no line has a token: write ROLE NAME TOKEN")
	}
	return all, nil
}

// AccessOptions are what the configuration has on access to the listener.
type AccessOptions struct {
	Loopback bool // only processes of this machine can connect
	TLS      bool
	// TokensFile is shown; the tokens come from SetTokens.
	TokensFile string
	// Review asks the Kubernetes API about tokens that are not in the file; nil if they are wrong. Without a file and
	// without Review, everyone who can connect may view, and nobody may operate.
	Review        Reviewer
	AnonymousView bool // viewing needs no token
	Insecure      bool // the operator has allowed that TLS or tokens are missing off loopback
}

// An Access is who may use the listener. Its methods can be called from any goroutine.
type Access struct {
	AccessOptions
	reviews  *reviews
	sessions sessions // of tokens that are reviewed

	mu     sync.Mutex
	tokens []Token // while the file cannot be read, those of its previous content
	err    error
	denied map[string]*denial
}

// A denial counts the requests that were denied for one reason.
type denial struct {
	api.DeniedRequests
	logged logLimit
}

// NewAccess returns an Access without tokens.
func NewAccess(o AccessOptions) *Access {
	a := &Access{AccessOptions: o, reviews: newReviews(o.Review), denied: make(map[string]*denial),
		sessions: sessions{all: make(map[string]reviewedSession)}}
	for _, reason := range []string{api.DeniedCrossOrigin, api.DeniedNoToken, api.DeniedNotReviewed, api.DeniedRole,
		api.DeniedWrongToken} {
		a.denied[reason] = &denial{DeniedRequests: api.DeniedRequests{Reason: reason}}
	}
	return a
}

// SetTokens replaces the tokens, from the next request on. With an error the previous ones stay.
func (a *Access) SetTokens(tokens []Token, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err = err; err == nil {
		a.tokens = tokens
	}
}

// current are the tokens that are accepted now.
func (a *Access) current() []Token {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tokens
}

// closed reports whether callers need a token.
func (a *Access) closed() bool { return a.TokensFile != "" || a.Review != nil }

func (a *Access) status() api.AdminAccess {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := api.AdminAccess{Loopback: a.Loopback, TLS: a.TLS, TokensFile: a.TokensFile, Tokens: len(a.tokens),
		AnonymousView: a.AnonymousView, Kubernetes: a.Review != nil,
		Insecure: a.Insecure && !a.Loopback && (!a.TLS || !a.closed())}
	if a.err != nil {
		s.TokensError = a.err.Error()
	}
	if err := a.reviews.failing(); err != nil {
		s.KubernetesError = err.Error()
	}
	for _, d := range a.denied {
		s.Denied = append(s.Denied, d.DeniedRequests)
	}
	slices.SortFunc(s.Denied, func(x, y api.DeniedRequests) int { return strings.Compare(x.Reason, y.Reason) })
	return s
}

// A caller is who has sent a request. The zero caller may do nothing.
type caller struct {
	name, role string // name is empty without a token; role is, of one who may do nothing
	session    bool   // by the cookie of a browser
}

func (c caller) mayView() bool    { return c.role != "" }
func (c caller) mayOperate() bool { return c.role == RoleOperate }

type callerKey struct{}

// callerOf returns who has sent the request. A route that changes something logs it.
func callerOf(r *http.Request) caller {
	c, _ := r.Context().Value(callerKey{}).(caller)
	return c
}

// identify finds the caller of a request by its token or its session. denied is why the caller may do nothing.
func (a *Access) identify(r *http.Request, now time.Time) (c caller, denied string) {
	if !a.closed() {
		return caller{role: RoleView}, ""
	}
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "bearer") {
			return caller{}, api.DeniedWrongToken
		}
		return a.holder(r.Context(), token, now)
	}
	if cookie, err := r.Cookie(a.cookieName()); err == nil {
		if t := matchSession(a.current(), cookie.Value, now); t != nil {
			return caller{name: t.Name, role: t.Role, session: true}, ""
		}
		if token := a.sessions.token(cookie.Value, now); token != "" {
			c, denied := a.holder(r.Context(), token, now)
			c.session = true
			return c, denied
		}
	}
	if a.AnonymousView {
		return caller{role: RoleView}, ""
	}
	return caller{}, api.DeniedNoToken
}

// holder returns who has a token: by the file, or else by a review.
func (a *Access) holder(ctx context.Context, token string, now time.Time) (c caller, denied string) {
	if t := match(a.current(), token); t != nil {
		return caller{name: t.Name, role: t.Role}, ""
	}
	if a.Review == nil {
		return caller{}, api.DeniedWrongToken
	}
	answer, err := a.reviews.of(ctx, token, now)
	switch c = (caller{name: answer.Name, role: answer.Role}); {
	case err != nil:
		return c, api.DeniedNotReviewed
	case c.name == "":
		return c, api.DeniedWrongToken
	case c.role == "":
		return c, api.DeniedRole
	}
	return c, ""
}

// match finds a token. It takes the same time wherever in the list the token is, and however much of it is right.
func match(tokens []Token, token string) (found *Token) {
	hash := sha256.Sum256([]byte(token))
	for i := range tokens {
		if subtle.ConstantTimeCompare(hash[:], tokens[i].hash[:]) == 1 {
			found = &tokens[i]
		}
	}
	return found
}

// deny counts a request, and logs the first of a minute for each reason.
func (a *Access) deny(reason string, r *http.Request, log *slog.Logger, now time.Time) {
	a.mu.Lock()
	d := a.denied[reason]
	d.Count++
	d.LastAt, d.LastPeer = api.At(now), r.RemoteAddr
	count, shouldLog := d.Count, reason != api.DeniedNoToken && d.logged.due(now)
	a.mu.Unlock()
	if shouldLog {
		log.Warn("admin request denied", "reason", reason, "peer", r.RemoteAddr, "path", r.URL.Path, "denied", count)
	}
}
