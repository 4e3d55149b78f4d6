package console

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"steelyard/cmd/internal/table"
	"steelyard/internal/api"
)

// A Top shows the endpoints of a cluster in a terminal, live, and does what keys ask for.
type Top struct {
	Client   *Client
	Cluster  string    // empty: the first
	Limit    int       // most endpoints, the worst; 0: all
	Keys     io.Reader // what is typed, byte by byte: a terminal in raw mode; nil: none
	Screen   io.Writer
	Size     func() (columns, rows int) // of the screen
	Interval time.Duration

	cluster *api.Cluster // the latest answer; nil: none yet
	at      time.Time    // of that answer
	why     *Explanation // instead of the table; nil: the table
	failure error        // of the latest question

	sort     int // the column, counted from 1; 0: the worst first
	reverse  bool
	filter   string
	typing   bool // letters go into the filter
	paused   bool
	help     bool
	chosen   string // address of the row with the cursor
	top      int    // the first row that is shown
	explains string // address that is explained; empty: none
}

// topKeys are the keys and what they do, as the help shows them.
var topKeys = [][2]string{
	{"q, Ctrl-C", "quit"}, {"?", "this help"}, {"/", "filter by address, zone or state; Esc shows all again"},
	{"< >", "sort by the column to the left or right; the first is the worst first"}, {"r", "reverse the order"},
	{"j k, arrows", "move the cursor, PgUp and PgDn by a screen, g and G to the ends"},
	{"Enter", "why the endpoint under the cursor has its share; Esc goes back"},
	{"Tab, n, p", "the next cluster, the one before"}, {"space", "pause, go on"},
}

// A topAnswer is what was asked for in one go.
type topAnswer struct {
	cluster *api.Cluster
	why     *Explanation
	err     error
}

// The control sequences of terminals that are used: another screen without a cursor and back, home, the rest of a line
// and of the screen, reverse and normal.
const (
	enter     = "\x1b[?1049h\x1b[?25l"
	leave     = "\x1b[?25h\x1b[?1049l"
	home      = "\x1b[H"
	clearLine = "\x1b[K"
	clearRest = "\x1b[J"
	inverse   = "\x1b[7m"
	normal    = "\x1b[0m"
)

// Run shows the cluster until a key ends it, ctx is done, or Steelyard refuses. The goroutine that reads Keys ends with
// its next key.
func (t *Top) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys, answers := make(chan string), make(chan topAnswer, 1)
	if t.Keys != nil {
		go readKeys(ctx, t.Keys, keys)
	}
	fmt.Fprint(t.Screen, enter)
	defer fmt.Fprint(t.Screen, leave)
	tick := time.NewTicker(t.Interval)
	defer tick.Stop()
	asking := false
	for step, due := 0, true; ; {
		if due && !asking {
			asking, due = true, false
			go func(cluster, explains string, step int) {
				answers <- t.ask(ctx, cluster, explains, step)
			}(t.Cluster, t.explains, step)
			step = 0
		}
		select {
		case <-ctx.Done():
			return nil
		case k, open := <-keys:
			if !open {
				return nil
			}
			quit, moved := t.press(k)
			if quit {
				return nil
			}
			if step = moved; step != 0 || k == "enter" {
				due = true
			}
		case <-tick.C:
			due = due || !t.paused
		case a := <-answers:
			asking = false
			if err := t.take(a); err != nil {
				return err
			}
		}
		t.draw(time.Now())
	}
}

// readKeys sends the names of keys: a character, or a word for what has none.
func readKeys(ctx context.Context, r io.Reader, keys chan<- string) {
	defer close(keys)
	buf := make([]byte, 64)
	for {
		n, err := r.Read(buf)
		for _, k := range keysOf(string(buf[:n])) {
			select {
			case keys <- k:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// sequences are what terminals send for keys without a character.
var sequences = map[string]string{
	"\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down", "\x1b[5~": "pgup", "\x1b[6~": "pgdn",
	"\x1b[H": "home", "\x1b[F": "end", "\x1bOH": "home", "\x1bOF": "end", "\x1b[1~": "home", "\x1b[4~": "end",
	"\x1b[Z": "backtab",
}

var controls = map[rune]string{
	'\x03': "q!", '\r': "enter", '\n': "enter", '\t': "tab", '\x1b': "esc", '\x7f': "backspace", '\b': "backspace",
}

// keysOf splits what was read at once. A sequence that is not known is none.
func keysOf(text string) (out []string) {
	for text != "" {
		if len(text) > 1 && text[0] == '\x1b' {
			end := 2 + strings.IndexFunc(text[2:], func(r rune) bool { return r >= '@' && r <= '~' }) + 1
			if end <= 2 {
				end = len(text)
			}
			if k := sequences[text[:end]]; k != "" {
				out = append(out, k)
			}
			text = text[end:]
			continue
		}
		r := []rune(text)[0]
		text = text[len(string(r)):]
		out = append(out, cmp.Or(controls[r], string(r)))
	}
	return out
}

// ask gets the cluster that is step away from the one named in the order of their names, and an explanation.
func (t *Top) ask(ctx context.Context, cluster, explains string, step int) (a topAnswer) {
	a.cluster, a.err = t.Client.ClusterFrom(ctx, cluster, step, t.Limit)
	if a.err == nil && explains != "" {
		a.why, a.err = t.Client.Explain(ctx, a.cluster.Name, explains, "")
	}
	return a
}

// take shows an answer. A fault that may pass by itself is shown, and no error.
func (t *Top) take(a topAnswer) error {
	t.failure = a.err
	if a.err != nil {
		if t.cluster == nil || !Unanswered(a.err) {
			return a.err
		}
		return nil
	}
	if t.Cluster != a.cluster.Name {
		t.Cluster, t.chosen, t.explains, t.top = a.cluster.Name, "", "", 0
	}
	t.cluster, t.why, t.at = a.cluster, a.why, time.Now()
	if t.explains == "" {
		t.why = nil
	}
	return nil
}

// press does what a key asks for. step is how many clusters to go on.
func (t *Top) press(k string) (quit bool, step int) {
	if k == "q!" {
		return true, 0
	}
	if t.typing {
		t.typed(k)
		return false, 0
	}
	if t.help {
		t.help = false
		return k == "q", 0
	}
	switch k {
	case "q":
		return true, 0
	case "?", "h":
		t.help = true
	case "/":
		t.typing, t.filter = true, ""
	case "esc", "u":
		if t.explains == "" {
			t.filter = ""
		}
		t.explains, t.why = "", nil
	case "<", ">":
		n := len(topColumns(t.cluster)) + 1
		t.sort = (t.sort + map[string]int{"<": n - 1, ">": 1}[k]) % n
	case "r", "R":
		t.reverse = !t.reverse
	case "tab", "n":
		return false, 1
	case "backtab", "p":
		return false, -1
	case " ":
		t.paused = !t.paused
	case "enter":
		if rows := t.rows(); len(rows) > 0 {
			t.explains = rows[t.cursor(rows)].Address
		}
	default:
		t.move(k)
	}
	return false, 0
}

// typed takes a key of the filter.
func (t *Top) typed(k string) {
	switch r := []rune(t.filter); {
	case k == "enter":
		t.typing = false
	case k == "esc":
		t.typing, t.filter = false, ""
	case k == "backspace":
		t.filter = string(r[:max(0, len(r)-1)])
	case len([]rune(k)) == 1:
		t.filter += k
	}
}

// move moves the cursor.
func (t *Top) move(k string) {
	rows := t.rows()
	if len(rows) == 0 {
		return
	}
	_, height := t.Size()
	at := t.cursor(rows)
	switch k {
	case "j", "down":
		at++
	case "k", "up":
		at--
	case "pgdn":
		at += height / 2
	case "pgup":
		at -= height / 2
	case "g", "home":
		at = 0
	case "G", "end":
		at = len(rows) - 1
	}
	t.chosen = rows[min(max(at, 0), len(rows)-1)].Address
}

// cursor is the row under it: the chosen one, or the first where that has gone.
func (t *Top) cursor(rows []api.Endpoint) int {
	return max(0, slices.IndexFunc(rows, func(e api.Endpoint) bool { return e.Address == t.chosen }))
}

// rows are the endpoints that pass the filter, in order.
func (t *Top) rows() []api.Endpoint {
	if t.cluster == nil {
		return nil
	}
	words := strings.ToLower(t.filter)
	rows := slices.DeleteFunc(slices.Clone(t.cluster.Endpoints), func(e api.Endpoint) bool {
		return !strings.Contains(strings.ToLower(e.Address+" "+e.Zone+" "+stateText(&e)), words)
	})
	if t.sort > 0 {
		c := topColumns(t.cluster)[t.sort-1]
		slices.SortStableFunc(rows, func(a, b api.Endpoint) int { return c.compare(&a, &b) })
	}
	if t.reverse {
		slices.Reverse(rows)
	}
	return rows
}

// draw writes the whole screen: what is above the hint is cut to its height.
func (t *Top) draw(now time.Time) {
	width, height := t.Size()
	var out bytes.Buffer
	lines, chosen := t.lines(width, height-1, now)
	out.WriteString(home)
	for i, line := range lines {
		if i == chosen {
			line = inverse + line + strings.Repeat(" ", max(0, width-len([]rune(line)))) + normal
		}
		out.WriteString(line + clearLine + "\r\n")
	}
	out.WriteString(clearRest + table.Fit(t.hint(now), width))
	_, _ = t.Screen.Write(out.Bytes()) // a terminal that has gone ends the keys, too
}

// lines are at most height of them, and the one under the cursor, or -1.
func (t *Top) lines(width, height int, now time.Time) (lines []string, chosen int) {
	var text bytes.Buffer
	switch {
	case t.help:
		for _, k := range topKeys {
			fmt.Fprintln(&text, table.Fit(fmt.Sprintf("%-12s %s", k[0], k[1]), width))
		}
	case t.cluster == nil:
		fmt.Fprintln(&text, table.Fit("asking "+t.Client.String(), width))
	case t.why != nil:
		t.why.text(&text, width)
	default:
		return t.table(width, height, now)
	}
	lines = strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	return lines[:min(len(lines), height)], -1
}

// table is the view of the cluster, scrolled to the cursor.
func (t *Top) table(width, height int, now time.Time) (lines []string, chosen int) {
	var head, body bytes.Buffer
	printHead(&head, t.cluster, now, width)
	rows := t.rows()
	topTable(t.cluster, rows, t.sort, t.reverse).Write(&body, width)
	lines = strings.Split(strings.TrimRight(head.String()+body.String(), "\n"), "\n")
	fixed := len(lines) - len(rows) // and the heading of the table
	room := max(1, height-fixed)
	if len(rows) == 0 {
		return append(lines, "no endpoint matches")[:min(len(lines)+1, height)], -1
	}
	at := t.cursor(rows)
	t.top = min(max(t.top, at-room+1), at, max(0, len(rows)-room))
	shown := slices.Concat(lines[:fixed], lines[fixed+t.top:fixed+min(len(rows), t.top+room)])
	return shown[:min(len(shown), height)], fixed + at - t.top
}

// hint is the last line.
func (t *Top) hint(now time.Time) string {
	switch {
	case t.typing:
		return "filter: " + t.filter + "_  (Enter: keep, Esc: all)"
	case t.failure != nil:
		return fmt.Sprintf("last update %s ago: %v; retrying", seconds(api.Seconds(now.Sub(t.at))), t.failure)
	case t.help:
		return "any key goes back"
	}
	parts := []string{"? help", "q quit", "/ filter", "< > sort", "Enter why", "Tab next cluster"}
	if t.explains != "" {
		parts = []string{"Esc back", "? help", "q quit"}
	}
	if t.filter != "" {
		parts = append([]string{"filter: " + t.filter}, parts...)
	}
	if t.paused {
		parts = append([]string{"PAUSED, " + seconds(api.Seconds(now.Sub(t.at))) + " old"}, parts...)
	}
	return strings.Join(parts, "   ")
}
