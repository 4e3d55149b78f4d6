package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	envoybootstrap "steelyard/envoy-bootstrap"
)

// The demo of the queue.
const (
	queueServers = 4 // that execute one request at a time
	queueEnvoys  = 2
	queueService = 250 * time.Millisecond // of a request
)

// classes are the names in the configuration.
var classes = [2]string{"interactive", "batch"}

// oneSlot makes servers that execute one request at a time.
func oneSlot(int) modelsim.Options { return modelsim.Options{Slots: 1} }

// Queue plays the demo of the queue for a time.
func Queue(ctx context.Context, out io.Writer, d time.Duration, s Steelyard) (err error) {
	servers, err := modelsim.StartServers(queueServers, oneSlot)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	text := configOf(servers, settings{cluster: fmt.Sprintf(`    capacity: 1
    queue:
      max_in_flight: 1
      classes:
        - {name: %s, weight: 3, max_waiting: 20, max_wait: 10s}
        - {name: %s, weight: 1, max_waiting: 20, max_wait: 10s}
`, classes[0], classes[1])})
	return s.ControlPlane.during(ctx, text, func(ctx context.Context, control Handle) (err error) {
		envoys, err := startEnvoys(ctx, queueEnvoys, "demo-envoy",
			bootstrap(control.XDSAddress(), envoybootstrap.Options{Module: true}))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, envoys.close()) }()
		urls, err := envoys.urls(ctx, weightedListener, completionsPath)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, `Steelyard demo: %d Envoys with the module, %d servers that execute one request of %v at a time
Page:  %s
Load:  the classes %s (weight 3) and %s (weight 1) each send as much as all servers can do

`, queueEnvoys, queueServers, queueService, pageOf(control), classes[0], classes[1])
		return sendClasses(ctx, out, d, urls)
	})
}

// sendClasses sends the requests of all classes, shows each second what came of them, and waits for all answers.
func sendClasses(ctx context.Context, out io.Writer, d time.Duration, urls []string) error {
	var meters [len(classes)]load.Meter
	group, sending := errgroup.WithContext(ctx)
	for i, class := range classes {
		group.Go(func() error {
			_, err := load.Run(sending, load.Plan{Targets: urls, Seed: uint64(i), Meter: &meters[i],
				Header:  http.Header{"X-Steelyard-Class": {class}},
				Process: load.Fixed, Rate: queueServers / queueService.Seconds(), Duration: d,
				Work: load.Work{Mean: queueService, Shape: load.Deterministic}})
			return err
		})
	}
	fmt.Fprintf(out, "%-14s %10s %10s %10s %12s %8s\n", "class", "answered", "share", "refused", "mean wait", "failed")
	show, over := time.NewTicker(time.Second), time.NewTimer(d)
	defer show.Stop()
	defer over.Stop()
	for {
		select {
		case <-sending.Done():
			return group.Wait()
		case <-show.C:
			showClasses(out, meters[:])
		case <-over.C:
			fmt.Fprintf(out, "In the end. Wanted: %s 75%%, %s 25%% of the answers. A queue that is full refuses "+
				"with 429.\n", classes[0], classes[1])
			showClasses(out, meters[:]) // before the queue empties, which has no shares
			return group.Wait()
		}
	}
}

// showClasses prints what each class got so far.
func showClasses(out io.Writer, meters []load.Meter) {
	var got [len(classes)]load.Snapshot
	all := 0
	for i := range meters {
		got[i] = meters[i].Snapshot()
		all += got[i].Answered()
	}
	for i, s := range got {
		wait := max(0, s.Latency-queueService)
		fmt.Fprintf(out, "%-14s %10d %9.0f%% %10d %12v %8d\n", classes[i], s.Answered(),
			100*float64(s.Answered())/float64(max(1, all)), s.Refused, wait.Round(10*time.Millisecond),
			s.Errors-s.Refused)
	}
	fmt.Fprintln(out)
}
