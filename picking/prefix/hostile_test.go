package prefix

import (
	"strings"
	"testing"
	"time"
)

// TestHostileBodiesAreReadInOnePass, whatever is nested or left open. Something quadratic would take some ten thousand
// times as long as a text of the same size; one pass takes up to fifty times.
func TestHostileBodiesAreReadInOnePass(t *testing.T) {
	// The least time of some readings counts, for up to a second while it is too long, as the machine may be busy.
	best := func(body []byte, enough time.Duration) time.Duration {
		least, first := time.Hour, time.Now()
		for i := 0; i < 5 || least > enough && time.Since(first) < time.Second; i++ {
			began := time.Now()
			if p := read(body); len(p.Steps) > MaxSteps {
				t.Errorf("%d steps", len(p.Steps))
			}
			least = min(least, time.Since(began))
		}
		return least
	}
	fill := func(before, one, after string) []byte {
		return []byte(before + strings.Repeat(one, (MaxBody-len(before)-len(after))/len(one)) + after)
	}
	plain := best(fill(`{"prompt":"`, "text ", `"}`), time.Hour)
	for name, body := range map[string][]byte{
		"open objects":      fill("", `{"messages":[`, ""),
		"open arrays":       fill(`{"prompt":`, "[", ""),
		"arrays of arrays":  fill(`{"prompt":[`, "[1],", "]}"),
		"members":           fill(`{`, `"a":1,`, `"b":2}`),
		"backslashes":       fill(`{"prompt":"`, `\`, `"}`),
		"escaped quotes":    fill(`{"prompt":"`, `\"`, `"}`),
		"quotes":            fill(`{"messages":[`, `"`, `]}`),
		"empty messages":    fill(`{"messages":[`, `{},`, `{}]}`),
		"white space":       fill(`{"messages":[`, " ", `]}`),
		"commas and colons": fill(`{"prompt":[`, `,:`, `]}`),
		"markers":           fill(`{"prompt":[`, `128006,`, `1]}`),
		"zeros":             fill("", "\x00", ""),
	} {
		if got := best(body, 1000*plain); got > 1000*plain {
			t.Errorf("%s: %v, and %v for a text of the same size", name, got, plain)
		}
	}
}
