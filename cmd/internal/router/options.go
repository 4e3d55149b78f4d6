package router

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"strconv"
	"time"

	"steelyard/internal/customrouter/leastlatency"
)

// The environment variables of the contract, with their defaults.
const (
	EnvPort         = "CUSTOM_ROUTER_PORT"               // 3000
	EnvThreshold    = "CUSTOM_ROUTER_LATENCY_THRESHOLD"  // 3.0 s
	EnvAlpha        = "CUSTOM_ROUTER_EWMA_ALPHA"         // 0.3
	EnvQueueMax     = "CUSTOM_ROUTER_QUEUE_MAX_SIZE"     // 1000 requests
	EnvQueueTimeout = "CUSTOM_ROUTER_QUEUE_TIMEOUT"      // 1200 s
	EnvLogInterval  = "CUSTOM_ROUTER_STATE_LOG_INTERVAL" // 30 s
)

// mostRequests bounds the queue.
const mostRequests = math.MaxInt32

// Options of Run.
type Options struct {
	Host        string // where clients connect, with Port
	Port        int
	Queue       leastlatency.Options
	LogInterval time.Duration // between two lines with the state of the backends; 0: none
	Envoy       string        // the program
	EnvoyLog    io.Writer     // of Envoy and of the module
	JSON        bool          // the form of that log
	Log         *slog.Logger
}

// FromEnvironment reads the variables of the contract. Its error names each variable that cannot be used. A time may be
// inf: without an end.
func FromEnvironment(getenv func(string) string) (Options, error) {
	var errs []error
	number := func(name string, value, least, most float64) float64 {
		text := getenv(name)
		if text == "" {
			return value
		}
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(x) || x < least || x > most {
			errs = append(errs, fmt.Errorf("%s=%q: want a number from %v%s", name, text, least, upTo(most)))
			return value
		}
		return x
	}
	seconds := func(name string, value float64) time.Duration {
		if x := number(name, value, 0, math.Inf(1)) * float64(time.Second); x < math.MaxInt64 {
			return time.Duration(x)
		}
		return math.MaxInt64
	}
	whole := func(name string, value, least, most int) int {
		x := number(name, float64(value), float64(least), float64(most))
		if x != math.Trunc(x) {
			errs = append(errs, fmt.Errorf("%s=%q: want a whole number", name, getenv(name)))
		}
		return int(x)
	}
	o := Options{
		Port: whole(EnvPort, 3000, 1, 65535),
		Queue: leastlatency.Options{
			Threshold:    seconds(EnvThreshold, 3),
			Alpha:        number(EnvAlpha, 0.3, 0, 1),
			QueueMax:     whole(EnvQueueMax, 1000, 0, mostRequests),
			QueueTimeout: seconds(EnvQueueTimeout, 1200),
		},
		LogInterval: seconds(EnvLogInterval, 30),
	}
	return o, errors.Join(errs...)
}

// upTo is the end of a range, for an error.
func upTo(most float64) string {
	if math.IsInf(most, 1) {
		return " on"
	}
	return fmt.Sprintf(" to %.f", most)
}

// address is where clients connect.
func (o Options) address() string { return net.JoinHostPort(o.Host, strconv.Itoa(o.Port)) }
