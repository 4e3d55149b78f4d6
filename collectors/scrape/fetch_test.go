package scrape

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestReportsTheLoadAndWhenItWasTrue(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, page(7)) })
	before := time.Now()
	r := once(t, patient(s.URL+"/metrics"))
	after := time.Now()
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	if r.Report.Queue.Value != 7 || !r.Report.Queue.At.Equal(r.At) {
		t.Errorf("queue %+v at %v, want 7", r.Report.Queue, r.At)
	}
	if r.Report.Running.Known() {
		t.Errorf("running is known: %+v", r.Report.Running)
	}
	if r.At.Before(before) || r.At.After(after) || r.Duration <= 0 || r.Duration > after.Sub(before) {
		t.Errorf("at %v for %v, outside of %v to %v", r.At, r.Duration, before, after)
	}
	if want := int64(len(page(7))); r.BodyBytes != want {
		t.Errorf("%d bytes, want %d", r.BodyBytes, want)
	}
}

func TestAsksForPlainText(t *testing.T) {
	header := make(chan http.Header, 1)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		header <- r.Header
		io.WriteString(w, page(0))
	})
	if r := once(t, patient(s.URL)); r.Err != nil {
		t.Fatal(r.Err)
	}
	got := <-header
	for name, want := range map[string]string{
		"Accept":          accept,
		"Accept-Encoding": "identity",
		"User-Agent":      "steelyard",
		"Authorization":   "",
	} {
		if got.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.Get(name), want)
		}
	}
}

func TestKeepsTheConnection(t *testing.T) {
	var connections atomic.Int32
	answers := []int{200, 500, 200, 404, 302, 200, 200}
	asked := 0 // requests come one by one
	answer := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(answers[asked%len(answers)])
		asked++
		io.WriteString(w, page(1))
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(answer))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	l := looped(t, patient(s.URL))
	for range 2*len(answers) - 2 {
		l.scrape(t.Context())
	}
	if n := connections.Load(); n != 1 || asked != 2*len(answers) {
		t.Errorf("%d connections for %d requests, want 1 for %d", n, asked, 2*len(answers))
	}
}

func TestAServerThatHangsTimesOut(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	wantFailure(t, once(t, target(s.URL)), KindTimeout, "no complete answer within 20ms")
}

func TestASlowDripTimesOut(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil { // a byte at a time, for ever
			io.WriteString(w, "#")
			w.(http.Flusher).Flush()
			select {
			case <-time.After(time.Millisecond):
			case <-r.Context().Done():
			}
		}
	})
	r := once(t, target(s.URL))
	wantFailure(t, r, KindTimeout, "no complete answer within 20ms")
}

func TestAHugeBodyIsNotRead(t *testing.T) {
	for _, c := range []struct {
		name   string
		length bool
	}{{"of announced length", true}, {"of unknown length", false}} {
		t.Run(c.name, func(t *testing.T) {
			const size = 100 << 20
			var sent atomic.Int64
			gone := make(chan struct{})
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				defer close(gone)
				if c.length {
					w.Header().Set("Content-Length", fmt.Sprint(size))
				}
				chunk := []byte(strings.Repeat("#", 64<<10-1) + "\n")
				for sent.Load() < size {
					n, err := w.Write(chunk)
					sent.Add(int64(n))
					if err != nil {
						return
					}
				}
			})
			r := once(t, patient(s.URL))
			wantFailure(t, r, KindTooLarge, "limit")
			if r.BodyBytes > 1<<20+1 {
				t.Errorf("%d bytes read, the limit is %d", r.BodyBytes, 1<<20)
			}
			<-gone // the connection was closed under the server's hands
			if n := sent.Load(); n >= size {
				t.Errorf("the server could send all %d bytes", n)
			}
		})
	}
}

func TestABodyOfExactlyTheLimitIsRead(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, page(1)) })
	tgt := patient(s.URL)
	tgt.BodyLimit = int64(len(page(1)))
	if r := once(t, tgt); r.Err != nil {
		t.Error(r.Err)
	}
	tgt.BodyLimit--
	wantFailure(t, once(t, tgt), KindTooLarge, "limit")
}

func TestWhatIsNoLoadReportFails(t *testing.T) {
	elsewhere := serve(t, func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("asked %s, Authorization %q", r.URL, r.Header.Get("Authorization"))
	})
	for _, c := range []struct {
		name, kind, words string
		answer            http.HandlerFunc
	}{
		{"an error page", KindStatus, "status 500",
			func(w http.ResponseWriter, r *http.Request) { http.Error(w, page(1), 500) }},
		{"no content", KindStatus, "status 204", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) }},
		{"garbage", KindParse, "begins with",
			func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "\x00\xff\x17{{{\n") }},
		{"nothing", KindParse, "empty", func(w http.ResponseWriter, r *http.Request) {}},
		{"a body cut off between two lines", KindConnection, "unexpected EOF",
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", fmt.Sprint(len(page(1))+10))
				io.WriteString(w, page(1))
			}},
		{"a chunked body cut off between two lines", KindConnection, "unexpected EOF",
			func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, page(1))
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}},
		{"a compressed body", KindParse, "encoded as \"gzip\"", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, page(1))
		}},
		{"a redirect to another host", KindRedirect, "redirected to " + elsewhere.URL,
			func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, elsewhere.URL, http.StatusFound)
			}},
		{"redirects without end", KindRedirect, "more than 3 times", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/again", http.StatusFound)
		}},
		{"a header without end", KindConnection, "header", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 2*maxHeader))
			io.WriteString(w, page(1))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tgt := patient(serve(t, c.answer).URL)
			tgt.BearerTokenFile = write(t, "very-secret")
			r := once(t, tgt)
			wantFailure(t, r, c.kind, c.words)
			if strings.Contains(fmt.Sprint(r.Err), "secret") {
				t.Errorf("the token is in the error: %v", r.Err)
			}
		})
	}
}

func TestFollowsARedirectOnTheSameHost(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics/" {
			http.Redirect(w, r, "/metrics/", http.StatusMovedPermanently)
			return
		}
		if got := r.Header.Get("Authorization"); got != "Bearer abc" {
			t.Errorf("Authorization %q after the redirect", got)
		}
		io.WriteString(w, page(3))
	})
	tgt := patient(s.URL + "/metrics")
	tgt.BearerTokenFile = write(t, "abc\n")
	if r := once(t, tgt); r.Err != nil || r.Report.Queue.Value != 3 {
		t.Errorf("queue %v, error %v", r.Report.Queue, r.Err)
	}
}

func TestNothingListens(t *testing.T) {
	s := serve(t, nil)
	s.Close()
	wantFailure(t, once(t, patient(s.URL)), KindRefused, "connection refused")
}

func TestTheTokenIsReadAgainWhenItChanges(t *testing.T) {
	got := make(chan string, 1)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Authorization")
		io.WriteString(w, page(1))
	})
	tgt := patient(s.URL)
	tgt.BearerTokenFile = write(t, "first\n")
	l := looped(t, tgt)
	scrape := func(want string) {
		t.Helper()
		if r := l.scrape(t.Context()); r.Err != nil {
			t.Fatal(r.Err)
		}
		if token := <-got; token != want {
			t.Errorf("Authorization %q, want %q", token, want)
		}
	}
	scrape("Bearer first")
	scrape("Bearer first")
	next := tgt.BearerTokenFile + ".next" // the way that secrets are rotated: a new file in place of the old
	if err := os.WriteFile(next, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, tgt.BearerTokenFile); err != nil {
		t.Fatal(err)
	}
	scrape("Bearer other")
	if err := os.Remove(tgt.BearerTokenFile); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, l.scrape(t.Context()), KindConfig, "reading bearer token")
}

func TestATokenFileThatDiffersInAnythingIsReadAgain(t *testing.T) {
	then := time.Now().Add(-time.Hour).Truncate(time.Second)
	for _, c := range []struct {
		name, token string
		modified    time.Time
		newFile     bool
	}{
		{"rewritten in place, of the same length", "later", then.Add(time.Second), false},
		{"rewritten in place with an older time", "later", then.Add(-time.Second), false},
		{"rewritten in place within the clock's resolution", "longer", then, false},
		{"another file of the same length and time", "later", then, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := tokenFile{path: write(t, "first")}
			if err := os.Chtimes(f.path, then, then); err != nil {
				t.Fatal(err)
			}
			if token, err := f.read(t.Context()); token != "first" || err != nil {
				t.Fatalf("token %q, error %v", token, err)
			}
			path := f.path
			if c.newFile {
				path += ".next"
			}
			if err := errors.Join(os.WriteFile(path, []byte(c.token), 0o600), os.Chtimes(path, then, c.modified),
				os.Rename(path, f.path)); err != nil {
				t.Fatal(err)
			}
			if token, err := f.read(t.Context()); token != c.token || err != nil {
				t.Errorf("token %q, error %v; want %q", token, err, c.token)
			}
		})
	}
}

func TestRefusesATokenThatIsNone(t *testing.T) {
	for name, content := range map[string]string{
		"empty": " \n", "two words": "Bearer abcdef", "a line break": "abcdef\nabcdef",
		"too long": strings.Repeat("abcdef", 1+maxToken/6),
	} {
		t.Run(name, func(t *testing.T) {
			tgt := patient("http://127.0.0.1:1")
			tgt.BearerTokenFile = write(t, content)
			r := once(t, tgt)
			wantFailure(t, r, KindConfig, "reading bearer token from "+tgt.BearerTokenFile)
			if strings.Contains(r.Err.Error(), "abcdef") {
				t.Errorf("the token is in the error: %v", r.Err)
			}
			if strings.Contains(r.Err.Error(), "fetching") {
				t.Errorf("nothing was fetched, and the error is %v", r.Err)
			}
		})
	}
}

func TestThePasswordOfAURLIsNotInTheError(t *testing.T) {
	r := once(t, patient("http://user:very-secret@127.0.0.1:1/metrics"))
	wantFailure(t, r, KindRefused, "user:xxxxx@127.0.0.1:1")
	if strings.Contains(r.Err.Error(), "very-secret") {
		t.Error(r.Err)
	}
}
