package console

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"steelyard/internal/api"
)

func TestKeysAreThoseOfWhatTerminalsSend(t *testing.T) {
	for text, want := range map[string][]string{
		"jé":           {"j", "é"},
		"\x1b":         {"esc"},
		"\x1b[A\x1bOB": {"up", "down"},
		"\x1b[5~q":     {"pgup", "q"},
		"\x1b[1;5Cx":   {"x"}, // a sequence that does nothing here
		"\x1b[":        nil,
		"\x03\r\t\x7f": {"q!", "enter", "tab", "backspace"},
	} {
		if got := keysOf(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// aTop shows a cluster of twenty endpoints on a screen of ten lines.
func aTop() (*Top, *bytes.Buffer) {
	c := someCluster()
	c.Endpoints = nil
	for i := range 20 {
		c.Endpoints = append(c.Endpoints, api.Endpoint{Address: fmt.Sprintf("10.0.0.%d:80", i+1),
			State: api.EndpointOK, LoadPerSlot: api.Num(float64(i % 7)), ServedShare1m: api.Num(0.05)})
	}
	c.Endpoints[4].LoadPerSlot = api.Number{}
	var screen bytes.Buffer
	return &Top{Screen: &screen, Size: func() (int, int) { return 80, 10 }, Cluster: c.Name, cluster: c}, &screen
}

func TestTopStaysOnItsScreenAndShowsItsCursor(t *testing.T) {
	top, screen := aTop()
	for _, k := range []string{"", "j", "G", "k", "g", "pgdn", "pgdn", "home", "end", "?", "x"} {
		top.press(k)
		screen.Reset()
		top.draw(noon)
		lines := strings.Split(screen.String(), "\r\n")
		if len(lines) > 10 {
			t.Errorf("after %q: %d lines", k, len(lines))
		}
		if rows := top.rows(); k != "?" {
			under := rows[top.cursor(rows)].Address
			if !strings.Contains(screen.String(), inverse+under) {
				t.Errorf("after %q: %s is not marked:\n%s", k, under, screen)
			}
		}
	}
	if top.chosen != "10.0.0.20:80" {
		t.Errorf("the cursor is at %s", top.chosen)
	}
}

func TestTopSortsWhatIsNotKnownLast(t *testing.T) {
	top, _ := aTop()
	for top.sort != 6 { // LOAD
		top.press(">")
	}
	rows := top.rows()
	if first, last := rows[0], rows[len(rows)-1]; first.LoadPerSlot.Or(-1) != 6 || last.Address != "10.0.0.5:80" {
		t.Errorf("%s … %s", first.Address, last.Address)
	}
	top.press("/")
	for _, k := range []string{"0", ".", "5", ":", "enter"} {
		top.press(k)
	}
	if rows := top.rows(); len(rows) != 1 || rows[0].Address != "10.0.0.5:80" {
		t.Errorf("%d rows pass the filter", len(rows))
	}
	if quit, _ := top.press("q"); !quit {
		t.Error("q does not quit")
	}
}
