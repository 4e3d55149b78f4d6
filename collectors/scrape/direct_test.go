package scrape

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// chunked is a whole response whose body comes in these chunks.
func chunked(chunks ...string) string {
	var b strings.Builder
	b.WriteString("HTTP/1.1 200 OK\r\nDate: today\r\nTransfer-Encoding: chunked\r\n\r\n")
	for _, c := range append(chunks, "") {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(c), c)
	}
	return b.String()
}

// sendInBytes sends the words one byte at a time.
func sendInBytes(words string) func(net.Conn) {
	return func(c net.Conn) {
		for i := range len(words) {
			if _, err := io.WriteString(c, words[i:i+1]); err != nil {
				return
			}
		}
	}
}

func TestAnAnswerAsServersWriteItIsReadInPlace(t *testing.T) {
	long := strings.Repeat("# nothing of interest\n", 10_000)
	for name, answer := range map[string]string{
		"of a length":          answer200(7),
		"in a chunk":           chunked(page(7)),
		"in chunks":            chunked(page(7)[:9], page(7)[9:10], page(7)[10:]),
		"longer than expected": chunked(long, page(7)),
		"long, of a length": fmt.Sprintf("HTTP/1.1 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: %d\r\n\r\n%s%s",
			len(long+page(7)), long, page(7)),
	} {
		t.Run(name, func(t *testing.T) {
			l := looped(t, patient(talk(t, []func(net.Conn){send(answer200(1)), send(answer), sendInBytes(answer)})))
			for i, want := range []float64{1, 7, 7} {
				if r := l.scrape(t.Context()); r.Err != nil || r.Report.Queue.Value != want {
					t.Fatalf("scrape %d: queue %v, error %v", i, r.Report.Queue, r.Err)
				}
			}
			if l.fetcher.connection.conn.direct == 0 {
				t.Error("net/http has read it")
			}
		})
	}
}

// TestAKeptConnectionIsReadAsANewOne: of what is not read in place nothing is lost, and an
// answer means the same on either way.
func TestAKeptConnectionIsReadAsANewOne(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	tooLong := strings.Repeat("#\n", 1<<19+1)
	for name, answer := range map[string]string{
		"good":                      answer200(7),
		"an empty body":             "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"no chunk":                  chunked(),
		"until the end":             "HTTP/1.1 200 OK\r\n\r\n" + page(7),
		"to be closed":              "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\n#a\n",
		"an early hint":             "HTTP/1.1 103 Early Hints\r\n\r\n" + answer200(7),
		"of HTTP/1.0":               "HTTP/1.0 200 OK\r\n\r\n" + page(7),
		"an error":                  "HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno",
		"no HTTP":                   "what?\r\n\r\n",
		"nothing":                   "",
		"broken off in the header":  "HTTP/1.1 200 OK\r\nContent-",
		"broken off in the body":    "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n#",
		"broken off in a chunk":     strings.TrimSuffix(chunked(page(7)), "\r\n0\r\n\r\n"),
		"too long":                  fmt.Sprintf(ok+"Content-Length: %d\r\n\r\n%s", len(tooLong), tooLong),
		"too long, in chunks":       chunked(tooLong[:1<<19], tooLong[1<<19:]),
		"in a chunk that is none":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n\r\n",
		"in a chunk that is longer": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n#\n\r\n0\r\n\r\n",
		"of two lengths":            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n#\n",
		"with a trailer":            ok + "Transfer-Encoding: chunked\r\n\r\n2\r\n#\n\r\n0\r\nA: b\r\n\r\n",
		"compressed":                "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n#\n",
		"a header without end":      "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", maxHeader),
	} {
		t.Run(name, func(t *testing.T) {
			tgt := patient(talk(t, []func(net.Conn){send(answer)}, []func(net.Conn){send(answer200(1)), send(answer)},
				[]func(net.Conn){send(answer)}))
			first := looped(t, tgt).scrape(t.Context())
			l := looped(t, tgt)
			if r := l.scrape(t.Context()); r.Err != nil {
				t.Fatal(r.Err)
			}
			kept := l.scrape(t.Context())
			if fmt.Sprint(kept.Err) != fmt.Sprint(first.Err) || Kind(kept.Err) != Kind(first.Err) ||
				kept.Report.Queue.Value != first.Report.Queue.Value || kept.BodyBytes != first.BodyBytes {
				t.Errorf("over a kept connection: %d bytes, queue %v, %v\nover a new one: %d bytes, queue %v, %v",
					kept.BodyBytes, kept.Report.Queue.Value, kept.Err,
					first.BodyBytes, first.Report.Queue.Value, first.Err)
			}
		})
	}
}

// TestAHeaderThatEndsWithBareLineFeedsIsNotWaitedFor: net/http reads it, and the connection
// stays open.
func TestAHeaderThatEndsWithBareLineFeedsIsNotWaitedFor(t *testing.T) {
	for name, header := range map[string]string{
		"everywhere":      "HTTP/1.1 200 OK\nContent-Length: %d\n\n%s",
		"at the end":      "HTTP/1.1 200 OK\r\nContent-Length: %d\n\n%s",
		"before the last": "HTTP/1.1 200 OK\r\nContent-Length: %d\n\r\n%s",
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			answer := func(c net.Conn) {
				fmt.Fprintf(c, header, len(page(7)), page(7))
				<-release
			}
			l := looped(t, patient(talk(t, []func(net.Conn){send(answer200(1)), answer})))
			defer close(release)
			for i, want := range []float64{1, 7} {
				if r := l.scrape(t.Context()); r.Err != nil || r.Report.Queue.Value != want || r.Duration > patience/2 {
					t.Fatalf("scrape %d: queue %v after %v, error %v", i, r.Report.Queue, r.Duration, r.Err)
				}
			}
		})
	}
}

// TestAServerThatHangsTakesNoMemoryForAPage: a thousand of them would take that of a thousand.
func TestAServerThatHangsTakesNoMemoryForAPage(t *testing.T) {
	release := make(chan struct{})
	url := talk(t, []func(net.Conn){send(answer200(1)), func(net.Conn) { <-release }})
	defer close(release)
	l := looped(t, patient(url))
	if r := l.scrape(t.Context()); r.Err != nil {
		t.Fatal(r.Err)
	}
	l.bodies = &sync.Pool{New: func() any { t.Error("memory for a page was taken"); return new(bytes.Buffer) }}
	l.fetcher.target.Timeout = 20 * time.Millisecond
	wantFailure(t, l.scrape(t.Context()), KindTimeout, "no complete answer within 20ms")
}

func TestBothWaysAskForTheSame(t *testing.T) {
	asked := make(chan string, 1)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		asked <- fmt.Sprint(r.Method, r.Host, r.URL, r.Header, user, password)
		io.WriteString(w, page(1))
	})
	u, err := url.Parse(s.URL + "/metrics?name[]=a&name[]=b")
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("me", "secret")
	l := looped(t, patient(u.String()))
	var before string
	for range 2 {
		if r := l.scrape(t.Context()); r.Err != nil {
			t.Fatal(r.Err)
		}
		if now := <-asked; before == "" {
			before = now
		} else if now != before || !strings.HasSuffix(now, "mesecret") {
			t.Errorf("asked for\n%s\nand then for\n%s", before, now)
		}
	}
	if l.fetcher.connection.conn.direct == 0 {
		t.Error("both times through net/http")
	}
}

// FuzzReadsInPlaceWhatNetHTTPReads: what is read in place is what net/http would have read,
// however it comes.
func FuzzReadsInPlaceWhatNetHTTPReads(f *testing.F) {
	f.Add([]byte(answer200(1)), uint16(20))
	f.Add([]byte(chunked("a", "bcd")+"HTTP"), uint16(70))
	f.Add([]byte("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nX: y\r\nContent-Length: 3\r\n\r\nabc"), uint16(3))
	const limit = 1 << 10
	f.Fuzz(func(t *testing.T, text []byte, split uint16) {
		r, first := reply{limit: limit}, text[:min(int(split), len(text))]
		read := first
		ok := r.take(first)
		if ok && !r.whole {
			read = text
			ok = r.take(text)
		}
		if !ok || !r.whole {
			return
		}
		body := bytes.NewBuffer(bytes.Clone(read))
		r.cut(body)
		rest := bufio.NewReader(bytes.NewReader(text))
		response, err := http.ReadResponse(rest, nil)
		if err != nil || response.StatusCode != http.StatusOK || response.Close {
			t.Fatalf("net/http: %v, %v", response, err)
		}
		want, err := io.ReadAll(response.Body)
		if err != nil || !bytes.Equal(want, body.Bytes()) || int64(len(want)) > limit {
			t.Fatalf("read %q, want %q, %v", body.Bytes(), want, err)
		}
		if encoding := response.Header.Get("Content-Encoding"); encoding != "" {
			t.Fatalf("encoded as %s", encoding)
		}
		if after, _ := io.ReadAll(rest); len(after) != len(text)-r.end {
			t.Fatalf("ends %d bytes before the end, want %d", len(text)-r.end, len(after))
		}
	})
}
