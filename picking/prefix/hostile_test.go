package prefix

import (
	"strings"
	"testing"
	"time"
)

// TestHostileBodiesTakeNoLongerThanOthers: each of them is read in one pass, whatever is nested or left open.
func TestHostileBodiesTakeNoLongerThanOthers(t *testing.T) {
	fill := func(before, one, after string) []byte {
		return []byte(before + strings.Repeat(one, (MaxBody-len(before)-len(after))/len(one)) + after)
	}
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
		best := time.Hour // of some, as the machine may be busy
		for range 5 {
			began := time.Now()
			if p := read(body); len(p.Steps) > MaxSteps {
				t.Errorf("%s: %d steps", name, len(p.Steps))
			}
			best = min(best, time.Since(began))
		}
		if best > 100*time.Millisecond {
			t.Errorf("%s: %v for %d bytes", name, best, len(body))
		}
		t.Logf("%s: %v", name, best)
	}
}
