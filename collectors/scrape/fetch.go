package scrape

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// accept requests the text format that all engines have; OpenMetrics has nothing more that is needed and costs more to
// write.
const accept = "text/plain;version=0.0.4;q=1,text/plain;q=0.9,*/*;q=0.1"

// maxDrain is how much of an error page is read, in bytes, so that the
// connection can be used again.
const maxDrain = 64 << 10

// A fetcher fetches one target's page. It belongs to the target's loop, which closes it.
type fetcher struct {
	target  *Target
	client  http.Client
	token   *tokenFile // nil without one
	request *http.Request
}

func newFetcher(t *Target, n *network) (*fetcher, error) {
	if err := t.validate(); err != nil {
		return nil, err
	}
	request, err := http.NewRequest(http.MethodGet, t.URL, nil)
	if err != nil {
		return nil, err
	}
	request.Header = http.Header{
		"Accept":          {accept},
		"Accept-Encoding": {"identity"},
		"User-Agent":      {"steelyard"},
	}
	if u := request.URL.User; u != nil {
		password, _ := u.Password()
		request.SetBasicAuth(u.Username(), password)
	}
	f := &fetcher{target: t, request: request}
	f.client = http.Client{Transport: n.transport(t), CheckRedirect: sameHostOnly}
	if t.BearerTokenFile != "" {
		f.token = &tokenFile{path: t.BearerTokenFile}
	}
	return f, nil
}

func (f *fetcher) close() { f.client.CloseIdleConnections() }

// An exchange records when a page was fetched and how much of it.
type exchange struct {
	start, end time.Time
	bytes      int64
}

// at returns when the page was true: the server wrote it between start and end, so the middle is wrong by half the
// duration at most.
func (x exchange) at() time.Time { return x.start.Add(x.end.Sub(x.start) / 2) }

// fetch reads the page into a buffer of the pool, to which the caller returns it. The buffer is nil if nothing was to
// be read.
func (f *fetcher) fetch(ctx context.Context, bodies *sync.Pool) (exchange, *bytes.Buffer, error) {
	x := exchange{start: time.Now()}
	ctx, cancel := context.WithDeadline(ctx, x.start.Add(f.target.Timeout))
	defer cancel()
	body, err := f.exchange(ctx, bodies)
	x.end = time.Now()
	if body != nil {
		x.bytes = int64(body.Len())
	}
	if err != nil && Kind(err) != KindConfig { // for which nothing was fetched
		err = fmt.Errorf("fetching %s: %w", f.request.URL.Redacted(), inWords(err, f.target))
	}
	return x, body, err
}

// exchange gets a buffer only when an answer begins, so that thousands of slow servers do not each hold the memory of a
// page.
func (f *fetcher) exchange(ctx context.Context, bodies *sync.Pool) (*bytes.Buffer, error) {
	if err := f.authorize(ctx); err != nil {
		return nil, failure(KindConfig, "%w", err)
	}
	response, err := f.client.Do(f.request.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body := bodies.Get().(*bytes.Buffer)
	body.Reset()
	return body, readBody(response, body, f.target.BodyLimit)
}

// authorize puts the current token into the request.
func (f *fetcher) authorize(ctx context.Context) error {
	if f.token == nil {
		return nil
	}
	token, err := f.token.read(ctx)
	if err != nil {
		return err
	}
	f.request.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// readBody reads the body of a good response to its end, so that the connection can be used again; it does not read a
// body that is too large, which closes the connection.
func readBody(response *http.Response, body *bytes.Buffer, limit int64) error {
	if response.StatusCode != http.StatusOK {
		_, _ = io.CopyN(io.Discard, response.Body, maxDrain) // only to keep the connection
		return failure(KindStatus, "answered with status %d, expected 200", response.StatusCode)
	}
	if encoding := response.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return failure(KindParse, "the body is encoded as %.20q, which was not asked for", encoding)
	}
	if response.ContentLength > limit {
		return failure(KindTooLarge, "the body has %d bytes, the limit is %d (body_limit)", response.ContentLength,
			limit)
	}
	if n := response.ContentLength; n > 0 {
		body.Grow(int(n) + bytes.MinRead) // MinRead more, or ReadFrom would grow it again to detect the end
	}
	n, err := body.ReadFrom(io.LimitReader(response.Body, limit+1))
	if err != nil {
		return err
	}
	if n > limit {
		return failure(KindTooLarge, "the body is longer than the limit of %d bytes (body_limit)", limit)
	}
	return nil
}
