package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"steelyard/controlplane/discovery"
	"steelyard/internal/loops"
)

// errWaiting is the state of a source before its first answer.
var errWaiting = errors.New("waiting for the first answer of the Kubernetes API")

// A source is what the discoverers have in common.
type source struct {
	client *Client
	report func(error)
	log    *slog.Logger
}

// follow passes on what look finds, whenever sub is set, until ctx is done. A nil set of look is none to pass on.
func (s *source) follow(ctx context.Context, sets chan<- []discovery.Endpoint, sub loops.Signal,
	look func() ([]discovery.Endpoint, error)) {
	defer s.client.subscribe(sub)()
	r := discovery.NewRefresher(sets, s.report, s.log)
	sub.Set()
	settled := time.NewTimer(0)
	defer settled.Stop()
	<-settled.C
	waiting := time.NewTicker(metadataPatience)
	defer waiting.Stop()
	changed := sub // nil while a change waits for others, which must not prolong it: they may never end
	for {
		select {
		case <-ctx.Done():
			return
		case r.Out() <- r.Pending():
			r.Delivered()
			waiting.Stop() // the first answer is there
		case <-waiting.C:
			sub.Set()
		case <-changed:
			changed = nil
			settled.Reset(settle)
		case <-settled.C:
			changed = sub
			set, err := look()
			if err == errWaiting { //nolint:errorlint // it is this one, or one that is worth a report
				continue
			}
			r.Done(set, err)
		}
	}
}
