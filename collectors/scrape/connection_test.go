package scrape

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
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

// answer200 is a whole response of page(n).
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
	hints := strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", maxInterim)
	l := looped(t, patient(talk(t, []func(net.Conn){send(hints + answer200(1)), send(hints + hints + answer200(2))})))
	if r := l.scrape(t.Context()); r.Err != nil || r.Report.Queue.Value != 1 {
		t.Errorf("queue %v, error %v", r.Report.Queue, r.Err)
	}
	wantFailure(t, l.scrape(t.Context()), KindConnection, "more than 5 answers before the response")
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
	l := looped(t, tgt)
	l.fetcher.connection.network.dial = func(context.Context, string, string) (net.Conn, error) {
		t.Error("dialled")
		return nil, errors.New("no network")
	}
	wantFailure(t, l.scrape(t.Context()), KindConfig, "reading CA file")
}
