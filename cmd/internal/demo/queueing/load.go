package queueing

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"steelyard/e2e/rig/modelsim"
)

// outcome is what a class got.
type outcome struct {
	answered, refused, failed int
	waited                    time.Duration // of all that were answered
}

// load sends the requests of all classes.
type load struct {
	out     io.Writer
	urls    []string
	client  *http.Client
	sending sync.WaitGroup

	mu       sync.Mutex
	outcomes map[string]*outcome // by class
}

func newLoad(out io.Writer, urls []string) *load {
	l := &load{out: out, urls: urls, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}},
		outcomes: make(map[string]*outcome)}
	for _, c := range classes {
		l.outcomes[c] = &outcome{}
	}
	return l
}

// run sends for a time, shows what came of it each second, and waits for all answers.
func (l *load) run(ctx context.Context, d time.Duration) error {
	defer l.client.CloseIdleConnections()
	defer l.sending.Wait()
	const between = service / serverCount
	send, show := time.NewTicker(between), time.NewTicker(time.Second)
	defer send.Stop()
	defer show.Stop()
	over := time.NewTimer(d)
	defer over.Stop()
	fmt.Fprintf(l.out, "%-14s %10s %10s %10s %12s %8s\n", "class", "answered", "share", "refused", "mean wait",
		"failed")
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-over.C:
			fmt.Fprintf(l.out, "In the end. Wanted: %s 75%%, %s 25%% of the answers. A queue that is full refuses "+
				"with 503.\n", classes[0], classes[1])
			l.show() // before the queue empties, which has no shares
			return nil
		case <-show.C:
			l.show()
		case <-send.C:
			for _, class := range classes {
				l.sending.Go(func() { l.send(ctx, class, l.urls[n%len(l.urls)]) })
			}
			n++
		}
	}
}

// send sends one request.
func (l *load) send(ctx context.Context, class, url string) {
	began := time.Now()
	code := l.call(ctx, class, url)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch o := l.outcomes[class]; code {
	case http.StatusOK:
		o.answered++
		o.waited += max(0, time.Since(began)-service)
	case http.StatusServiceUnavailable:
		o.refused++
	default:
		o.failed++
	}
}

// call is the status of a request, 0 without an answer.
func (l *load) call(ctx context.Context, class, url string) int {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return 0
	}
	r.Header.Set(modelsim.HeaderService, strconv.FormatFloat(service.Seconds(), 'f', -1, 64))
	r.Header.Set("X-Steelyard-Class", class)
	resp, err := l.client.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

// show prints what each class got so far.
func (l *load) show() {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := 0
	for _, o := range l.outcomes {
		all += o.answered
	}
	for _, class := range classes {
		o := l.outcomes[class]
		share, wait := 0.0, time.Duration(0)
		if o.answered > 0 {
			share, wait = float64(o.answered)/float64(all), o.waited/time.Duration(o.answered)
		}
		fmt.Fprintf(l.out, "%-14s %10d %9.0f%% %10d %12v %8d\n", class, o.answered, 100*share, o.refused,
			wait.Round(10*time.Millisecond), o.failed)
	}
	fmt.Fprintln(l.out)
}
