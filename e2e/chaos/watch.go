package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"steelyard/internal/api"
)

const (
	// silence bounds the time that a running Steelyard may go without an answer that has a fresh decision. The log
	// reader stalls for longer.
	silence   = 4 * time.Second
	lookEvery = 250 * time.Millisecond
	// answerWithin bounds one request.
	answerWithin = 2 * time.Second
)

// A caller asks Steelyard's admin API.
type caller struct {
	address string
	client  *http.Client
}

func (a caller) get(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	response, err := a.ask(ctx, path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(into)
}

// ask returns an answer with status 200. The caller closes its body.
func (a caller) ask(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.address+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("%s answers %s", path, response.Status)
	}
	return response, nil
}

func (a caller) cluster(ctx context.Context) (c api.Cluster, err error) {
	return c, a.get(ctx, "/api/v1/clusters/"+cluster, &c)
}

// A watch asks Steelyard all the time, and complains when it is silent although it runs.
type watch struct {
	api     caller
	journal *journal

	mu      sync.Mutex
	running bool
	good    time.Time // the last good answer, or since when it runs again
	noted   bool      // a complaint about this silence was made
}

// expect sets whether Steelyard has to answer from now on.
func (w *watch) expect(answers bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running, w.good, w.noted = answers, time.Now(), false
}

func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.judge(w.look(ctx))
		}
	}
}

// look wants an answer with a fresh decision.
func (w *watch) look(ctx context.Context) error {
	c, err := w.api.cluster(ctx)
	if err != nil {
		return err
	}
	if age := c.Decision.AgeSeconds.Or(0); age > silence.Seconds() {
		return fmt.Errorf("its last decision is %.1f s old", age)
	}
	return nil
}

func (w *watch) judge(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.good, w.noted = time.Now(), false
	}
	if since := time.Since(w.good); w.running && !w.noted && since > silence {
		w.noted = true
		w.journal.complain("%s runs and was silent for %.1f s: %v; faults at the time:\n    %s",
			partSteelyard, since.Seconds(), err, w.journal.around(w.good, time.Now()))
	}
}
