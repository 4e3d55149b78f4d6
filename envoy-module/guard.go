package main

import (
	"log/slog"
	"os"
	"sync/atomic"
)

// mostPanics is the number of panics after which the filter steps aside for good.
const mostPanics = 3

// panics are all, and uncounted those that no counter of Envoy has yet.
var panics, uncounted atomic.Int64

// aside reports whether the filter has stepped aside.
func aside() bool { return panics.Load() >= mostPanics }

// guard recovers from a panic of the entry that defers it, and counts it.
func guard() {
	if r := recover(); r != nil {
		n := panics.Add(1)
		uncounted.Add(1)
		logger().Error("panic recovered, which is a defect; after the third, a filter steps aside, and "+
			"requests follow the weights; a router goes on", "panic", r, "count", n)
	}
}

var (
	textLog  = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("module", "steelyard")
	jsonLog  = slog.New(slog.NewJSONHandler(os.Stderr, nil)).With("module", "steelyard")
	logsJSON atomic.Bool // as a router asks for it
)

// logger is the log of the module.
func logger() *slog.Logger {
	if logsJSON.Load() {
		return jsonLog
	}
	return textLog
}
