package view

import (
	"time"

	"steelyard/internal/stat"
)

// The numbers and times of a view, and of what other parts count, are those of package stat.
type (
	Number = stat.Number
	Time   = stat.Time
)

// Num is v, or unknown where v is NaN or infinite.
func Num(v float64) Number { return stat.Num(v) }

// Seconds is a duration in seconds.
func Seconds(d time.Duration) Number { return stat.Seconds(d) }

// At is the moment t, in UTC.
func At(t time.Time) Time { return stat.At(t) }
