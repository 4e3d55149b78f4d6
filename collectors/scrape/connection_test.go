package scrape

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// talk serves connections one after the other with its script: it is handed
// the connection after each request. The connection is closed when its script is at its end.
func talk(t *testing.T, scripts ...[]func(net.Conn)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, script := range scripts {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r := bufio.NewReader(conn)
			for _, answer := range script {
				if _, err := http.ReadRequest(r); err != nil {
					t.Errorf("reading a request: %v", err)
				}
				answer(conn)
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return "http://" + l.Addr().String()
}

func send(words string) func(net.Conn) {
	return func(c net.Conn) { io.WriteString(c, words) }
}

// answer200 returns a whole response of page(n).
func answer200(n int) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(page(n)), page(n))
}

// TestAConnectionThatWasClosedMeanwhileIsReplaced is what a server with a short keep-alive
// does all the time: no scrape may fail for it.
func TestAConnectionThatWasClosedMeanwhileIsReplaced(t *testing.T) {
	for name, url := range map[string]string{
		"closed without a word": talk(t, []func(net.Conn){send(answer200(1))}, []func(net.Conn){send(answer200(2))}),
		"after an answer without a request": talk(t,
			[]func(net.Conn){send(answer200(1) + "HTTP/1.1 408 Too late\r\n\r\n")},
			[]func(net.Conn){send(answer200(2))}),
		"announced": talk(t, []func(net.Conn){send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + page(1))},
			[]func(net.Conn){send(answer200(2))}),
		"in HTTP/1.0, by its nature": talk(t, []func(net.Conn){send("HTTP/1.0 200 OK\r\n\r\n" + page(1))},
			[]func(net.Conn){send(answer200(2))}),
	} {
		t.Run(name, func(t *testing.T) {
			l := looped(t, patient(url))
			for want := 1; want <= 2; want++ {
				if r := l.scrape(t.Context()); r.Err != nil || r.Report.Queue.Value != float64(want) {
					t.Errorf("scrape %d: queue %v, error %v", want, r.Report.Queue, r.Err)
				}
			}
		})
	}
}

// TestAnAnswerThatBrokeOffIsNotAskedForAgain: the server has heard the request, and may be
// in trouble.
func TestAnAnswerThatBrokeOffIsNotAskedForAgain(t *testing.T) {
	url := talk(t,
		[]func(net.Conn){send(answer200(1)), send("HTTP/1.1 200 OK\r\n")},
		[]func(net.Conn){send(answer200(3))})
	l := looped(t, patient(url))
	if r := l.scrape(t.Context()); r.Err != nil {
		t.Fatal(r.Err)
	}
	wantFailure(t, l.scrape(t.Context()), KindConnection, "EOF")
	if r := l.scrape(t.Context()); r.Err != nil || r.Report.Queue.Value != 3 {
		t.Errorf("after it: queue %v, error %v", r.Report.Queue, r.Err)
	}
}

func TestAnswersBeforeTheResponseAreSkipped(t *testing.T) {
	hint := "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
	endless := strings.Repeat(hint, maxHeader/len(hint)+1)
	l := looped(t, patient(talk(t, []func(net.Conn){send(hint + answer200(1)), send(endless + answer200(2))})))
	if r := l.scrape(t.Context()); r.Err != nil || r.Report.Queue.Value != 1 {
		t.Errorf("queue %v, error %v", r.Report.Queue, r.Err)
	}
	wantFailure(t, l.scrape(t.Context()), KindConnection, "header")
}

// TestAKeptConnectionThatHangsIsNotAskedTwice: the time is up, for a second try too.
func TestAKeptConnectionThatHangsIsNotAskedTwice(t *testing.T) {
	release := make(chan struct{})
	tgt := target(talk(t, []func(net.Conn){send(answer200(1)), func(net.Conn) { <-release }}))
	defer close(release)
	l := looped(t, patient(tgt.URL))
	if r := l.scrape(t.Context()); r.Err != nil {
		t.Fatal(r.Err)
	}
	l.fetcher.target.Timeout = 20 * time.Millisecond
	wantFailure(t, l.scrape(t.Context()), KindTimeout, "no complete answer within 20ms")
}

func TestAnExchangeThatIsCancelledEndsAtOnce(t *testing.T) {
	for name, begun := range map[string]bool{"before it": false, "in it": true} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			if !begun {
				cancel()
			}
			s := serve(t, func(http.ResponseWriter, *http.Request) { cancel(); <-release })
			defer close(release)
			defer cancel()
			if r := looped(t, patient(s.URL)).scrape(ctx); r.Err == nil || r.Duration >= patience || ctx.Err() == nil {
				t.Errorf("error %v after %v", r.Err, r.Duration)
			}
		})
	}
}

// TestCertificatesAreLookedForBeforeAConnectionIsOpened: without them it is of no use.
func TestCertificatesAreLookedForBeforeAConnectionIsOpened(t *testing.T) {
	tgt := patient("https://127.0.0.1:1/metrics")
	tgt.TLS.CAFile = "/nowhere"
	l, n := loopAndNetwork(t, tgt)
	n.dial = func(context.Context, string, string) (net.Conn, error) {
		t.Error("dialled")
		return nil, errors.New("no network")
	}
	wantFailure(t, l.scrape(t.Context()), KindConfig, "reading CA file")
}

// chunked returns a whole response whose body comes in these chunks.
func chunked(chunks ...string) string {
	var b strings.Builder
	b.WriteString("HTTP/1.1 200 OK\r\nDate: today\r\nTransfer-Encoding: chunked\r\n\r\n")
	for _, c := range append(chunks, "") {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(c), c)
	}
	return b.String()
}

// TestAKeptConnectionIsReadAsANewOne: an answer means the same over either.
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
