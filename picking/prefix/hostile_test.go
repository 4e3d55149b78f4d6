package prefix

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestHostileBodiesAreReadInOnePass, whatever is nested or left open. Something quadratic would take tens of
// thousands of times as long as a text of the same size; one pass takes up to two hundred times, and a sort three times
// that.
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
	plain := best(fill(`{"prompt":"`, "text ", `"}`), time.Hour)
	for name, body := range hostile() {
		if got := best(body, 5000*plain); got > 5000*plain {
			t.Errorf("%s: %v, and %v for a text of the same size", name, got, plain)
		}
	}
}

func fill(before, one, after string) []byte {
	return []byte(before + strings.Repeat(one, (MaxBody-len(before)-len(after))/len(one)) + after)
}

// hostile are bodies that could make a careless reader slow, or large.
func hostile() map[string][]byte {
	shuffled := func(form string) []byte {
		var b strings.Builder
		for i := range MaxBody / 16 {
			fmt.Fprintf(&b, form, i*40503%65536)
		}
		return []byte(`{"messages":[{` + b.String() + `"x":1}]}`)
	}
	nested := func(before, after string) []byte {
		const levels = maxDepth/2 - 2 // of an object and an array
		return fill(`{"messages":[`+strings.Repeat(before, levels), "1,", "1"+strings.Repeat(after, levels)+`]}`)
	}
	behind := append(fill(`{"messages":[`, `{}`, ``), bytes.Repeat([]byte(`{}`), (MaxKeyBody-MaxBody)/2)...)
	return map[string][]byte{
		"open objects":                    fill("", `{"messages":[`, ""),
		"open arrays":                     fill(`{"prompt":`, "[", ""),
		"arrays of arrays":                fill(`{"prompt":[`, "[1],", "]}"),
		"members":                         fill(`{`, `"a":1,`, `"b":2}`),
		"backslashes":                     fill(`{"prompt":"`, `\`, `"}`),
		"escaped quotes":                  fill(`{"prompt":"`, `\"`, `"}`),
		"quotes":                          fill(`{"messages":[`, `"`, `]}`),
		"empty messages":                  fill(`{"messages":[`, `{},`, `{}]}`),
		"white space":                     fill(`{"messages":[`, " ", `]}`),
		"commas and colons":               fill(`{"prompt":[`, `,:`, `]}`),
		"markers":                         fill(`{"prompt":[`, `128006,`, `1]}`),
		"zeros":                           fill("", "\x00", ""),
		"empty texts":                     fill(`{"messages":[`, `""`, `]}`),
		"open objects in objects":         fill(`{"messages":[`, `{"a":`, ""),
		"deep objects, large inside":      nested(`{"b":1,"a":[`, `]}`),
		"deep contents":                   nested(`{"content":[`, `]}`),
		"escapes":                         fill(`{"prompt":"`, `\u0041`, `"}`),
		"escapes of slashes":              fill(`{"prompt":"`, `\/`, `"}`),
		"backslashes and u":               fill(`{"prompt":"`, `\\u`, `"}`),
		"a long run of backslashes":       fill(`{"prompt":"\n`, `\\`, `\u0041"}`),
		"names in no order":               shuffled(`"%d":1,`),
		"names with escapes":              shuffled(`"\u0041%d":1,`),
		"the same name":                   fill(`{"messages":[{`, `"a":1,`, `"b":2}]}`),
		"the same part":                   fill(`{"messages":[{"content":[{`, `"text":"",`, `"b":2}]}]}`),
		"a long number":                   fill(`{"prompt":[`, `1`, `]}`),
		"floats":                          fill(`{"prompt":[`, `1e1,`, `1]}`),
		"values behind what is read":      behind,
		"arrays of numbers that are none": fill(`{"prompt":`, `[1,`, ``),
	}
}

// TestTheMemoryForABodyIsBounded, whatever is in it.
func TestTheMemoryForABodyIsBounded(t *testing.T) {
	for name, body := range hostile() {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		read(body)
		runtime.ReadMemStats(&after)
		if got, most := after.TotalAlloc-before.TotalAlloc, 64*uint64(len(body)); got > most {
			t.Errorf("%s: %d bytes of memory, want at most %d", name, got, most)
		}
	}
}
