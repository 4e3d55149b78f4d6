package daemon

import "time"

const (
	// settlePatience bounds the wait for Envoys' ACKs of the last push.
	settlePatience = 500 * time.Millisecond
	// goodbye bounds the wait for peers to close their connections, once their streams have ended. Peers that answer
	// take milliseconds, and a shorter wait lets Envoys find the next process sooner.
	goodbye = 50 * time.Millisecond
	// stopLimit bounds the whole stop, whatever peers, disks and servers do. The command adds its own waits, for a
	// reload and for the reader of the log (docs/operations.md has the sum).
	stopLimit = settlePatience + time.Second
)

// stop ends everything in order and waits for it, for at most stopLimit: the rest ends with the process. parts ends the
// collectors and the admin listener, and waits for them; envoys is closed when the xDS port is no longer served.
//
// The streams end last, because Envoys then reconnect at once, and after that with longer and longer delays.
func (d *Daemon) stop(parts func() error, envoys <-chan error) error {
	var failed error
	phase := make(chan string, 8)
	go func() {
		defer close(phase)
		phase <- "the loops of the clusters"
		d.draining.Store(true)
		d.manager.Close()
		phase <- "ACKs of the last push"
		d.settle()
		phase <- "the collectors and the admin listener"
		failed = parts()
		phase <- "the services of the xDS port"
		d.streams.Close()
		d.signals.close()
		d.loads.Close()
		d.places.Close()
		phase <- "connections to the xDS port"
		d.closePort()
		for range envoys {
		}
	}()
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	for doing := ""; ; {
		select {
		case next, more := <-phase:
			if !more {
				return failed
			}
			doing = next
		case <-limit.C:
			d.streams.Close() // so that the Envoys do not count as vanished
			d.xdsListener.CloseConnections()
			d.options.Log.Warn("stopped without waiting any longer", "for", doing, "limit", stopLimit)
			return nil
		}
	}
}

// settle waits a moment for responsive Envoys to acknowledge the last push: a drop fraction must not outlive the
// process that decides on it.
func (d *Daemon) settle() {
	const step = 5 * time.Millisecond
	for end := time.Now().Add(settlePatience); time.Now().Before(end) && !d.streams.Settled(settlePatience); {
		time.Sleep(step)
	}
}

// closePort stops the gRPC server: gracefully with peers that answer, and soon with the others.
func (d *Daemon) closePort() {
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		d.grpc.GracefulStop()
	}()
	limit := time.NewTimer(goodbye)
	defer limit.Stop()
	select {
	case <-graceful:
		return
	case <-limit.C:
	}
	// Connections first: Stop waits for handshakes, and to send a farewell to peers that do not read.
	d.xdsListener.CloseConnections()
	d.grpc.Stop()
	<-graceful
}
