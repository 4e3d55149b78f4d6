package console

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A replica answers with the name of its cluster, or does not; asked counts the requests.
type replica struct {
	*httptest.Server
	asked atomic.Int64
	code  atomic.Int64 // of the answers; 0: 200
}

func startReplica(t *testing.T, cluster string) *replica {
	t.Helper()
	r := &replica{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		r.asked.Add(1)
		if code := int(r.code.Load()); code != 0 {
			w.WriteHeader(code)
			return
		}
		fmt.Fprintf(w, `{"clusters": [{"name": %q}], "level": "info"}`, cluster)
	}))
	t.Cleanup(r.Close)
	return r
}

// nobody is an address at which nothing listens.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func clientOf(t *testing.T, notes *strings.Builder, admins ...string) *Client {
	t.Helper()
	c, err := NewClient(t.Context(), Options{Admins: admins, Notes: notes})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantCluster wants an answer of the replica with this cluster.
func wantCluster(t *testing.T, c *Client, want string) {
	t.Helper()
	if got, err := c.FirstCluster(t.Context()); err != nil || got != want {
		t.Errorf("%s %v, want %s", got, err, want)
	}
}

func TestTheFirstReplicaThatAnswersIsAsked(t *testing.T) {
	a, b := startReplica(t, "of a"), startReplica(t, "of b")
	none := nobody(t)
	var notes strings.Builder
	c := clientOf(t, &notes, none, a.URL, b.URL)
	wantCluster(t, c, "of a")
	wantCluster(t, c, "of a")
	if c.String() != a.URL || b.asked.Load() > 0 {
		t.Errorf("%s is asked; b was asked %d times", c, b.asked.Load())
	}
	if got := notes.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, none+" does not answer") ||
		!strings.Contains(got, "asking "+a.URL) {
		t.Errorf("the notes are %q", got)
	}
	a.code.Store(http.StatusServiceUnavailable)
	wantCluster(t, c, "of b")
	a.code.Store(0)
	wantCluster(t, c, "of b")
	b.code.Store(http.StatusUnauthorized) // an answer
	if got, err := c.FirstCluster(t.Context()); err == nil || c.String() != b.URL {
		t.Errorf("%s, and %s is asked", got, c)
	}
}

// As in the variable of the environment.
func TestReplicasMayBeInOneOptionWithCommas(t *testing.T) {
	there := startReplica(t, "there")
	c := clientOf(t, new(strings.Builder), nobody(t)+", "+there.URL)
	wantCluster(t, c, "there")
}

func TestAReplicaThatHangsIsNotWaitedForLong(t *testing.T) {
	hangs, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and answers nothing
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	b := startReplica(t, "of b")
	began := time.Now()
	wantCluster(t, clientOf(t, new(strings.Builder), hangs.Addr().String(), b.URL), "of b")
	if took := time.Since(began); took < patienceOfSeveral || took > patience {
		t.Errorf("after %v, want %v", took, patienceOfSeveral)
	}
}

func TestWhereNoReplicaAnswersEachIsNamedWithTheReason(t *testing.T) {
	a, none := startReplica(t, ""), nobody(t)
	a.code.Store(http.StatusInternalServerError)
	c := clientOf(t, new(strings.Builder), none, a.URL)
	_, err := c.FirstCluster(t.Context())
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"none of 2 admin listeners answers", none + " does not answer", "connection refused",
		a.URL + " answered 500"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}

// TestWhatChangesSomethingIsSentOnce: the next replica gets it only if the one before cannot have.
func TestWhatChangesSomethingIsSentOnce(t *testing.T) {
	a, b := startReplica(t, "of a"), startReplica(t, "of b")
	c := clientOf(t, new(strings.Builder), nobody(t), a.URL, b.URL)
	if err := c.SetLogLevel(t.Context(), "info"); err != nil || a.asked.Load() != 1 {
		t.Errorf("%v; a was asked %d times", err, a.asked.Load())
	}
	a.code.Store(http.StatusInternalServerError)
	if err := c.SetLogLevel(t.Context(), "info"); err == nil || b.asked.Load() > 0 {
		t.Errorf("%v; b was asked %d times", err, b.asked.Load())
	}
}

// TestEventsOfAnotherReplicaAreFollowedFromTheTimeOfTheLatest, as it counts them by itself.
func TestEventsOfAnotherReplicaAreFollowedFromTheTimeOfTheLatest(t *testing.T) {
	event := func(id int, at string) string {
		return fmt.Sprintf(`{"id": %d, "at": %q, "kind": "config", "text": "event %d of %s"}`, id, at, id, at)
	}
	answers := func(list string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, list) }))
		t.Cleanup(s.Close)
		return s
	}
	a := answers(`{"events": [` + event(70, "2026-03-14T12:00:00Z") + `], "oldest_id": 1, "latest_id": 70}`)
	b := answers(`{"events": [` + event(80, "2026-03-14T11:00:00Z") + "," + event(81, "2026-03-14T12:00:05Z") +
		`], "oldest_id": 1, "latest_id": 81}`)
	var out, notes strings.Builder
	f := &Follower{Client: clientOf(t, new(strings.Builder), a.URL, b.URL), Out: Output{W: &out}, Notes: &notes}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f.asked = f.Client.String()
	for range 2 {
		if err := f.ask(ctx); err != nil {
			t.Fatal(err)
		}
		a.Close()
	}
	if got := out.String(); !strings.Contains(got, "event 70") || strings.Contains(got, "event 80") ||
		!strings.Contains(got, "event 81") {
		t.Errorf("printed:\n%s", got)
	}
	if !strings.Contains(notes.String(), "events are of "+b.URL) {
		t.Errorf("the notes are %q", notes.String())
	}
}
