package admin

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sessionTime is how long a browser stays logged in: a shift.
const sessionTime = 12 * time.Hour

// A session is what a browser keeps in place of a token of the file: when it ends, signed with the token. So the token
// is in no cookie, every replica with the same file accepts the session, and it ends when its token leaves the file.
func newSession(t *Token, ends time.Time) string {
	end := strconv.FormatInt(ends.Unix(), 10)
	return end + "." + sign(t, end)
}

func sign(t *Token, end string) string {
	mac := hmac.New(sha256.New, t.hash[:])
	mac.Write([]byte("steelyard session until " + end))
	return hex.EncodeToString(mac.Sum(nil))
}

func matchSession(tokens []Token, session string, now time.Time) (found *Token) {
	end, signature, _ := strings.Cut(session, ".")
	if seconds, err := strconv.ParseInt(end, 10, 64); err != nil || now.Unix() >= seconds {
		return nil
	}
	for i := range tokens {
		if hmac.Equal([]byte(signature), []byte(sign(&tokens[i], end))) {
			found = &tokens[i]
		}
	}
	return found
}

// maxSessions bounds the browsers that are logged in with tokens that are reviewed.
const maxSessions = 1000

// sessions holds the browsers that are logged in with tokens that are reviewed, by a random name. The tokens stay in
// memory, so that each request is reviewed as one with the token is: the session ends with the token or its rights, and
// with this process.
type sessions struct {
	mu  sync.Mutex
	all map[string]reviewedSession
}

type reviewedSession struct {
	token string
	ends  time.Time
}

// add returns the name of a new session; ok is false if there are too many.
func (s *sessions) add(token string, now time.Time) (name string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, session := range s.all {
		if !now.Before(session.ends) {
			delete(s.all, name)
		}
	}
	if len(s.all) >= maxSessions {
		return "", false
	}
	name = rand.Text()
	s.all[name] = reviewedSession{token, now.Add(sessionTime)}
	return name, true
}

func (s *sessions) end(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, name)
}

// token returns that of a session; empty without one.
func (s *sessions) token(name string, now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	session := s.all[name]
	if !now.Before(session.ends) {
		return ""
	}
	return session.token
}
