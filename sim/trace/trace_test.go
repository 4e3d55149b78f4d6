package trace

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// The published forms, and the requests in them.
var published = []struct {
	name, text string
	requests   []Request
	leftOut    int
}{
	{"Azure 2023", "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n" +
		"2023-11-16 18:15:50.9951690,396,109",
		[]Request{{0, 374, 44}, {4314579 * time.Microsecond, 396, 109}}, 0},
	{"Azure 2024", "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n" +
		"2024-05-10 00:00:01.009930+00:00,2399,6\n",
		[]Request{{0, 2162, 5}, {time.Second, 2399, 6}}, 0},
	{"BurstGPT", "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" +
		"5,ChatGPT,472,18,490,Conversation log\n1106,ChatGPT,0,0,0,Conversation log\n" +
		"1107.5,GPT-4,417,276,693,API log\n",
		[]Request{{0, 472, 18}, {1102500 * time.Millisecond, 417, 276}}, 1},
	{"BurstGPT with sessions",
		"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n" +
			"5,a,1.5,ChatGPT,472,18,490,Conversation log\n\n6,b,,GPT-4,1,1,2,Conversation log\n",
		[]Request{{0, 472, 18}, {time.Second, 1, 1}}, 0},
	{"Mooncake", "{\"timestamp\": 0, \"input_length\": 6758, \"output_length\": 500, \"hash_ids\": [0, 1, 2]}\n" +
		"{\"timestamp\": 3000, \"input_length\": 7322, \"output_length\": 490, \"hash_ids\": []}\n",
		[]Request{{0, 6758, 500}, {3 * time.Second, 7322, 490}}, 0},
}

func TestPublishedFormsAreRead(t *testing.T) {
	for _, p := range published {
		for _, compressed := range []bool{false, true} {
			text := []byte(p.text)
			if compressed {
				text = zipped(t, text)
			}
			got, err := Read("a trace", bytes.NewReader(text))
			if err != nil {
				t.Errorf("%s: %v", p.name, err)
				continue
			}
			wanted := &Trace{Name: "a trace", Requests: p.requests, LeftOut: p.leftOut}
			if !reflect.DeepEqual(got, wanted) {
				t.Errorf("%s is read as %+v, want %+v", p.name, got, wanted)
			}
		}
	}
}

func zipped(t testing.TB, text []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(text)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestMistakesAreNamedWithTheirLine(t *testing.T) {
	const azure, burst = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,374,44\n",
		"Timestamp,Model,Request tokens,Response tokens\n5,m,1,1\n"
	const mooncake = "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}\n"
	for _, c := range []struct{ name, text, says string }{
		{"nothing", "\n\n", "t.csv:2: an empty file: want a trace"},
		{"no header", "2023-11-16 18:15:46,374,44\n",
			`t.csv:1: "2023-11-16 18:15:46,374,44" is no header of a trace: ` +
				"want TIMESTAMP,ContextTokens,GeneratedTokens (Azure)"},
		{"no date", azure + "18:15:46,374,44\n", `t.csv:3: TIMESTAMP: "18:15:46": want a date and a time, such as`},
		{"a date of old", azure + "1066-10-14 18:15:46,374,44\n", "t.csv:3: TIMESTAMP"},
		{"a column too few", azure + "2023-11-16 18:15:47,374\n", "t.csv:3: 2 columns: want 3, as in the header"},
		{"tokens that are none", azure + "2023-11-16 18:15:47,many,44\n",
			`t.csv:3: ContextTokens: "many": want a number of tokens`},
		{"fewer tokens than none", azure + "2023-11-16 18:15:47,374,-1\n",
			`t.csv:3: GeneratedTokens: "-1": want a number`},
		{"too many tokens", azure + "2023-11-16 18:15:47,1000001,1\n",
			"t.csv:3: 1000001 and 1 tokens: want 0 to 1000000"},
		{"back in time", azure + "\n2023-11-16 18:15:45.5,374,44\n",
			"t.csv:4: 500ms before the line above: sort the lines by time"},
		{"ages", azure + "2043-11-16 18:15:46,374,44\n", "after the first request: want at most"},
		{"one moment", azure + "2023-11-16 18:15:46,1,1\n", "t.csv:3: all requests arrive at the same moment"},
		{"one request", azure, "t.csv:2: all requests arrive at the same moment"},
		{"no seconds", burst + "soon,m,1,1\n", `t.csv:3: Timestamp: "soon": want seconds since the start`},
		{"no number of seconds", burst + "NaN,m,1,1\n", `t.csv:3: Timestamp: "NaN"`},
		{"only failures", "Timestamp,Request tokens,Response tokens\n5,0,0\n6,9,0\n",
			"t.csv:3: there is no request with a prompt and an answer"},
		{"no object", mooncake + "[]\n", `t.csv:2: json: cannot unmarshal array`},
		{"a key too many", mooncake + `{"timestamp": 1, "input_length": 1, "output_length": 1, "model": 1}`,
			`t.csv:2: json: unknown field "model": want {"timestamp"`},
		{"a key too few", mooncake + `{"timestamp": 1, "input_length": 1}`,
			`t.csv:2: a key is missing: want {"timestamp"`},
		{"two objects", mooncake + `{"timestamp": 1, "input_length": 1, "output_length": 1} {}`,
			"t.csv:2: more than one object"},
		{"time before the start", `{"timestamp": -1, "input_length": 1, "output_length": 1}`,
			"t.csv:1: timestamp -1: want milliseconds"},
		{"fewer tokens than none in JSON", mooncake + `{"timestamp": 1, "input_length": -1, "output_length": 1}`,
			"t.csv:2: -1 and 1 tokens"},
		{"a line without end", azure + strings.Repeat("x", longestLine+1), "t.csv:3: longer than 1048576 bytes"},
		{"cut off", string(zipped(t, []byte(azure))[:60]), "t.csv:2: reading the next line: unexpected EOF"},
		{"no gzip", "\x1f\x8bxxxxxxxxxxxxxxxxxxx", "t.csv: it begins like gzip: gzip: invalid header"},
	} {
		_, err := Read("t.csv", strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want it to say %q", c.name, err, c.says)
		}
	}
}

func TestTheTraceOfAzure(t *testing.T) {
	got := Azure()
	want(t, "requests", len(got.Requests), 19366)
	want(t, "left out", got.LeftOut, 0)
	want(t, "span", got.Span().Round(time.Second), 58*time.Minute+22*time.Second)
	prompt, output := got.Means()
	want(t, "mean prompt and output", fmt.Sprintf("%.1f %.1f", prompt, output), "1154.7 211.1")
	want(t, "prompt of the largest", got.Largest().Prompt, 14050)
	want(t, "gap", got.Gap().Round(time.Millisecond), 181*time.Millisecond)
	want(t, "rounded to", got.Rounded(), 0)
	licence, err := os.ReadFile(filepath.Join("testdata", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"CC-BY 4.0", "github.com/Azure/AzurePublicDataset"} {
		if !strings.Contains(AzureSource, word) || !bytes.Contains(licence, []byte(word)) {
			t.Errorf("the source and the README next to the trace have to name %s", word)
		}
	}
}

func TestRoundedTimesAreReportedAndSpread(t *testing.T) {
	at := func(all ...time.Duration) *Trace {
		t := &Trace{Name: "rounded"}
		for _, a := range all {
			t.Requests = append(t.Requests, Request{At: a, Prompt: 1, Output: 1})
		}
		return t
	}
	const s, ms = time.Second, time.Millisecond
	for _, c := range []struct {
		trace *Trace
		step  time.Duration
	}{
		{at(0, 0, 3*s, 9*s), 3 * s}, {at(0, 2*s, 5*s), s}, {at(0, 2*s, 5*s+6*ms), 0}, {at(0, 1500*ms), 0},
		{at(0, 2999*ms, 6001*ms, 9003*ms, 9003*ms), 3 * s}, // as Mooncake's conversations
		{at(0, 2*ms, 4*ms), 0},
	} {
		want(t, fmt.Sprint("rounded to, of ", c.trace.Requests), c.trace.Rounded(), c.step)
	}

	random := rand.New(rand.NewPCG(1, 1))
	fine := at(0, time.Millisecond)
	want(t, "a trace that is not rounded stays as it is", fine.Spread(random) == fine, true)
	var all []time.Duration
	for i := range 1000 {
		all = append(all, time.Duration(i/100)*3*s)
	}
	rounded := at(all...)
	got := rounded.Spread(random)
	want(t, "rounded to, when spread", got.Rounded(), 0)
	want(t, "the trace itself is as before", rounded.Rounded(), 3*s)
	want(t, "first", got.Requests[0].At, 0)
	want(t, "in order", slices.IsSortedFunc(got.Requests, func(a, b Request) int { return int(a.At - b.At) }), true)
	for i, r := range got.Requests {
		if late := r.At - rounded.Requests[i].At; late < -s || late >= 3*s {
			t.Fatalf("request %d is %v late", i, late)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, p := range published {
		f.Add([]byte(p.text))
		f.Add(zipped(f, []byte(p.text)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := Read("fuzz", bytes.NewReader(text))
		if (got == nil) != (err != nil) {
			t.Fatalf("%v and error %v", got, err)
		}
		if err != nil {
			return
		}
		last := time.Duration(0)
		for _, r := range got.Requests {
			if r.At < last || r.Prompt < 1 || r.Output < 1 {
				t.Fatalf("%+v after %v", r, last)
			}
			last = r.At
		}
		prompt, output := got.Means()
		if got.Gap() < 0 || got.Span() <= 0 || !(prompt > 0.99 && output > 0.99) || got.Rounded() < 0 {
			t.Fatalf("%+v", got)
		}
		spread := got.Spread(rand.New(rand.NewPCG(1, 1)))
		if len(spread.Requests) != len(got.Requests) || spread.Requests[0].At != 0 {
			t.Fatalf("spread: %+v", spread)
		}
	})
}
