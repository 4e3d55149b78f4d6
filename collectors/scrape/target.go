package scrape

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/url"
	"time"

	"steelyard/collectors/modelserver"
	"steelyard/internal/credentials"
)

// A Target is one metrics page to fetch, and how. Targets are compared with ==:
// one that differs in any field is another target.
type Target struct {
	Cluster string // the cluster that the endpoint belongs to
	Address string // host:port of the endpoint, its identity within the cluster
	ID      string // distinguishes successive endpoints with this address; may be empty
	URL     string // where its metrics are: http or https

	Engine modelserver.Engine
	Custom modelserver.Custom // series names, with modelserver.EngineCustom

	Interval  time.Duration // between the starts of two fetches
	Timeout   time.Duration // of one fetch, body included; not above Interval
	BodyLimit int64         // bytes; a longer body is an error and is not read to its end

	TLS             credentials.Client // with https; its files are current for every new connection
	BearerTokenFile string             // its content is sent as bearer token; empty = none. Read again when it changes
}

// validate checks what would make every fetch fail or the loop misbehave. The configuration is checked before, with
// messages for its author; this check is the last one.
func (t Target) validate() error {
	u, err := url.Parse(t.URL)
	switch {
	case err != nil:
		return err
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("the URL must begin with http://HOST or https://HOST")
	case t.Interval <= 0 || t.Timeout <= 0 || t.BodyLimit <= 0:
		return errors.New("interval, timeout and body limit must be above zero")
	case t.Timeout > t.Interval:
		return fmt.Errorf("the timeout (%v) is above the interval (%v)", t.Timeout, t.Interval)
	}
	return nil
}

// redacted returns the URL without a password, for messages.
func (t Target) redacted() string {
	u, err := url.Parse(t.URL)
	if err != nil {
		return "a URL that cannot be read" // validate has read it
	}
	return u.Redacted()
}

// beat returns the time between the moments at which scrapes begin: a tenth of the interval, and 25 ms at most. A
// process that is woken for each scrape spends as much time on waking up as on the page.
func (t Target) beat() time.Duration { return min(t.Interval/10, 25*time.Millisecond) }

// offset spreads the targets over the beats of the interval, so that a fleet is not scraped in step. It depends on the
// target only.
func (t Target) offset() time.Duration {
	h := fnv.New64a()
	for _, s := range []string{t.Cluster, t.Address, t.URL} {
		_, _ = io.WriteString(h, s) // a hash takes everything
		h.Write([]byte{0})          // so that ("a", "bc") and ("ab", "c") differ
	}
	return time.Duration(h.Sum64() % uint64(t.Interval)).Truncate(t.beat())
}
