package api

import (
	"bytes"
	"encoding/json"
	"math"
	"time"
)

// A Number is a measured or computed quantity that may be unknown. The zero
// Number is unknown, so that a field that was not set reads null and not 0.
type Number struct {
	value float64
	known bool
}

// Num is v, or unknown where v is NaN or infinite: package weighting uses these for
// unknown values, and JSON cannot hold them.
func Num(v float64) Number {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return Number{}
	}
	return Number{value: v, known: true}
}

// Seconds is a duration in seconds.
func Seconds(d time.Duration) Number { return Num(d.Seconds()) }

// Value is the number, and whether it is known.
func (n Number) Value() (float64, bool) { return n.value, n.known }

// Or is the number, or v while it is unknown.
func (n Number) Or(v float64) float64 {
	if n.known {
		return n.value
	}
	return v
}

// MarshalJSON writes null for unknown.
func (n Number) MarshalJSON() ([]byte, error) {
	if !n.known {
		return []byte("null"), nil
	}
	return json.Marshal(n.value)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (n *Number) UnmarshalJSON(b []byte) error {
	*n = Number{}
	if bytes.Equal(b, []byte("null")) {
		return nil
	}
	if err := json.Unmarshal(b, &n.value); err != nil {
		return err
	}
	n.known = true
	return nil
}

// A Time is a time that may not have come yet: the zero Time reads null.
type Time struct{ time.Time }

// At is the moment t, in UTC.
func At(t time.Time) Time {
	if t.IsZero() {
		return Time{}
	}
	return Time{t.UTC()}
}

// MarshalJSON writes RFC 3339 with nanoseconds in UTC, or null for the zero
// Time and for years that RFC 3339 cannot write.
func (t Time) MarshalJSON() ([]byte, error) {
	u := t.UTC()
	if t.IsZero() || u.Year() < 0 || u.Year() > 9999 {
		return []byte("null"), nil
	}
	return u.MarshalJSON()
}

// Age is how long ago t was: unknown for the zero Time, and never negative.
func (t Time) Age(now time.Time) Number {
	if t.IsZero() {
		return Number{}
	}
	return Seconds(max(0, now.Sub(t.Time)))
}
