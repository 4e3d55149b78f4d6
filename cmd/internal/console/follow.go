package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"steelyard/internal/api"
)

// A Follower prints events as they happen. It goes on after the latest one that it has printed when Steelyard did not
// answer for some time, and from the first when Steelyard was started again.
type Follower struct {
	Client *Client
	Query  EventQuery // Since is the id of the latest event that is known; 0: none
	Latest api.Time   // of that event
	Out    Output
	Notes  io.Writer // what is no event: that nothing answers, or that events are missing

	lost  bool   // the latest question was not answered
	asked string // who answered the one before
}

// Run asks at each interval until ctx is done, or Steelyard refuses.
func (f *Follower) Run(ctx context.Context, interval time.Duration) error {
	f.Query.Limit, f.asked = 0, f.Client.String()
	return Every(ctx, interval, 0, func() error { return f.ask(ctx) })
}

// Unanswered reports whether an error may pass by itself: nothing answered, or the answer was of a server in trouble.
func Unanswered(err error) bool {
	var refused *RefusedError
	return err != nil && (!errors.As(err, &refused) || refused.Code >= 500)
}

func (f *Follower) ask(ctx context.Context) error {
	list, err := f.Client.events(ctx, f.Query)
	if where := f.Client.String(); err == nil && where != f.asked { // another replica, with other ids
		f.remark("the following events are of %s", where)
		f.asked, f.Query.Since = where, 0
		return f.ask(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case Unanswered(err):
		if !f.lost {
			f.remark("%v; retrying", err)
		}
		f.lost = true
		return nil
	case err != nil:
		return err
	case f.lost:
		f.lost = false
		f.remark("Steelyard answers again")
	}
	if list.LatestID > 0 && list.LatestID < f.Query.Since { // there is always the event of the start
		f.remark("Steelyard was started again: its events begin with 1")
		f.Query.Since = 0
		return f.ask(ctx)
	}
	if before := f.Query.Since; before > 0 && list.OldestID > before+1 {
		f.remark("%d events are missing: they are not kept any more", list.OldestID-before-1)
	}
	f.Query.Since = max(f.Query.Since, list.LatestID)
	if len(list.Events) == 0 {
		return nil
	}
	f.Query.Since = max(f.Query.Since, list.Events[len(list.Events)-1].ID) // it may be newer than the id
	events := slices.DeleteFunc(list.Events, func(e api.Event) bool { return e.At.Before(f.Latest.Time) })
	if len(events) == 0 {
		return nil
	}
	f.Latest = events[len(events)-1].At
	return PrintEvents(f.Out, events)
}

func (f *Follower) remark(format string, args ...any) {
	fmt.Fprintf(f.Notes, "steelyard: "+format+"\n", args...)
}
