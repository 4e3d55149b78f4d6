package console

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"steelyard/internal/api"
)

// TestEventsAreFollowedAcrossAnOutageAndARestart has a server that answers, fails, has lost some events, was started
// again, and then refuses.
func TestEventsAreFollowedAcrossAnOutageAndARestart(t *testing.T) {
	event := func(id uint64, text string) api.Event {
		return api.Event{ID: id, At: api.At(noon), Kind: api.EventConfig, Text: text}
	}
	answers := []struct {
		since string // that is asked for
		list  api.EventList
		code  int
	}{
		// 9 was filtered out
		{"7", api.EventList{Events: []api.Event{event(8, "eight")}, OldestID: 1, LatestID: 9}, 200},
		{"9", api.EventList{OldestID: 1, LatestID: 9}, 200},
		{"9", api.EventList{}, 503},
		{"9", api.EventList{}, 502},
		{"9", api.EventList{Events: []api.Event{event(13, "thirteen")}, OldestID: 12, LatestID: 13}, 200},
		{"13", api.EventList{OldestID: 1, LatestID: 2}, 200}, // another process
		{"", api.EventList{
			Events: []api.Event{event(1, "started"), event(2, "two")}, OldestID: 1, LatestID: 2}, 200},
		{"2", api.EventList{}, 403},
	}
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked >= len(answers) {
			t.Error("it asks after it was refused")
			return
		}
		a := answers[asked]
		asked++
		if got := r.URL.Query().Get("since"); got != a.since || r.URL.Query().Get("limit") != "" {
			t.Errorf("question %d: %s, want since %q", asked, r.URL, a.since)
		}
		if a.code != 200 {
			http.Error(w, "no", a.code)
			return
		}
		_ = json.NewEncoder(w).Encode(a.list)
	}))
	defer s.Close()
	c, err := NewClient(t.Context(), Options{Admins: []string{s.URL}})
	if err != nil {
		t.Fatal(err)
	}
	var out, notes strings.Builder
	f := &Follower{Client: c, Query: EventQuery{Since: 7, Limit: 3}, Notes: &notes,
		Out: Output{W: &out, Format: FormatTable}}
	if err := f.Run(t.Context(), time.Millisecond); err == nil || Unanswered(err) {
		t.Errorf("a refusal does not end it: %v", err)
	}
	var texts []string
	for line := range strings.Lines(out.String()) {
		texts = append(texts, strings.Fields(line)[len(strings.Fields(line))-1])
	}
	if got := strings.Join(texts, " "); got != "eight thirteen started two" {
		t.Errorf("printed %q:\n%s", got, out.String())
	}
	for _, want := range []string{"retrying", "answers again", "2 events are missing", "started again"} {
		if strings.Count(notes.String(), want) != 1 {
			t.Errorf("the notes do not have %q once:\n%s", want, notes.String())
		}
	}
}

func TestFollowingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"events":[],"oldest_id":0,"latest_id":0}`))
		cancel()
	}))
	defer s.Close()
	c, err := NewClient(t.Context(), Options{Admins: []string{s.URL}})
	if err != nil {
		t.Fatal(err)
	}
	f := &Follower{Client: c, Notes: &strings.Builder{}, Out: Output{W: &strings.Builder{}, Format: FormatTable}}
	if err := f.Run(ctx, time.Hour); err != nil {
		t.Error(err)
	}
}
