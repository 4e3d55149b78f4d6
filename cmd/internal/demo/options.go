package demo

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// The defaults of Options.
const (
	DefaultDuration  = 20 * time.Second
	DefaultEnvoys    = 3
	DefaultEndpoints = 6
	DefaultLoad      = 0.8
)

// The servers of the demo. Each executes as many requests at once as it has
// slots, and every third one does so at slowSpeed.
const (
	slots       = 4
	meanService = 300 * time.Millisecond // at speed 1
	slowSpeed   = 0.5
)

// Options are the choices of a demo. The zero value of a number means its
// default.
type Options struct {
	Duration  time.Duration // of each phase, at least 1 s
	Envoys    int           // 1..20
	Endpoints int           // 2..200
	Load      float64       // offered work as a share of what all servers together can do, above 0 and at most 2
	Seed      uint64        // of the load

	RoundRobin bool // the first phase is Envoy's ROUND_ROBIN; else its LEAST_REQUEST

	Keep     bool   // continue the load until the context ends
	Trouble  bool   // then make a server and an Envoy fail
	JSONFile string // where the figures go as JSON; none when empty

	Out          io.Writer    // progress and results; redrawn in place if it is a terminal
	ControlPlane ControlPlane // required
}

func (o Options) withDefaults() (Options, error) {
	o.Duration = cmp.Or(o.Duration, DefaultDuration)
	o.Envoys = cmp.Or(o.Envoys, DefaultEnvoys)
	o.Endpoints = cmp.Or(o.Endpoints, DefaultEndpoints)
	o.Load = cmp.Or(o.Load, DefaultLoad)
	if o.Out == nil {
		o.Out = io.Discard
	}
	return o, o.validate()
}

// validate names the flags, because that is where the values come from.
func (o Options) validate() error {
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(o.Duration < time.Second, "--duration %s: want at least 1s", o.Duration)
	refuse(o.Envoys < 1 || o.Envoys > 20, "--envoys %d: want 1 to 20", o.Envoys)
	refuse(o.Endpoints < 2 || o.Endpoints > 200, "--endpoints %d: want 2 to 200", o.Endpoints)
	refuse(!(o.Load > 0 && o.Load <= 2), "--load %v: want a share of the total capacity, above 0 and at most 2", o.Load)
	refuse(o.ControlPlane == nil, "no control plane given")
	if o.JSONFile != "" {
		// Better now than after the last phase.
		if _, err := os.Stat(filepath.Dir(o.JSONFile)); err != nil {
			errs = append(errs, fmt.Errorf("--json %s: %w", o.JSONFile, err))
		}
	}
	return errors.Join(errs...)
}
