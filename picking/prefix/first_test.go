package prefix

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheFirstPartIsTheSameInAnyPieces(t *testing.T) {
	body := chat(t, said("user", text("a", 40)), said("assistant", text("b", 40)), said("user", text("c", 40)))
	const most = 4000
	for _, c := range []struct {
		name      string
		pieces    [][]byte
		announced int64
		whole     bool
		size      int64
	}{
		{"whole, in one", [][]byte{body}, -1, true, int64(len(body))},
		{"whole, in three", [][]byte{body[:1], nil, body[1:]}, -1, true, int64(len(body))},
		{"whole, and something else announced", [][]byte{body}, 5, true, int64(len(body))},
		{"a part", [][]byte{body[:3000], body[3000:5000]}, int64(len(body)), false, int64(len(body))},
		{"a part without its length", [][]byte{body[:5000]}, -1, false, 5000},
	} {
		t.Run(c.name, func(t *testing.T) {
			var f First
			f.Add([]byte("of another body"), most)
			f.Reset()
			for _, piece := range c.pieces {
				f.Add(piece, most)
			}
			got, size := f.Read(new(Reader), "", c.announced, c.whole)
			want := new(Reader).Read("", body[:most], c.size)
			if size != c.size || got.Whole != want.Whole || !slices.Equal(got.Steps, want.Steps) {
				t.Errorf("%d bytes, %+v, want %d bytes, %+v", size, got, c.size, want)
			}
		})
	}
}

// FuzzFirst is all that a proxy does with a body: whatever strangers send, in whatever pieces, the prompt is that of
// the first part in one piece, and what is learned of it is found again.
func FuzzFirst(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":"`+text("x", 20)+`"},{"a":[1,{"b":"\\\""}]}]}`),
		uint16(7), uint16(1000), int64(-1), true)
	f.Add([]byte(`{"input_ids":[`+strings.Repeat("151644,1,22,333,", 40)+`]}`), uint16(1), uint16(200), int64(1<<62),
		false)
	f.Add([]byte(`{"prompt":["`+text("y", 3)+`",[1,2]]}`), uint16(100), uint16(0), int64(9), false)
	f.Fuzz(func(t *testing.T, body []byte, piece, most uint16, announced int64, whole bool) {
		var first First
		for p := range slices.Chunk(body, int(piece)+1) {
			first.Add(p, int(most))
		}
		prompt, size := first.Read(new(Reader), "", announced, whole)
		if size < int64(len(body)) || whole && size != int64(len(body)) {
			t.Fatalf("%d bytes came, the size is %d", len(body), size)
		}
		if want := new(Reader).Read("", body[:min(len(body), int(most))], size); prompt.Whole != want.Whole ||
			!slices.Equal(prompt.Steps, want.Steps) {
			t.Fatalf("in pieces %+v, want %+v", prompt, want)
		}
		if !bytes.Equal(first.text, body[:len(first.text)]) {
			t.Fatal("the first part is another one")
		}
		routes, now := NewTable(Limits{Routes: MaxSteps}), time.Unix(0, 0)
		routes.Learn(&prompt, "10.0.0.1:80", Own, now)
		var m Matches
		routes.Match(&prompt, &m)
		if n := len(prompt.Steps); n > 0 {
			if deepest := prompt.Steps[n-1].Blocks; len(m.All) != 1 || m.All[0].Blocks != deepest {
				t.Fatalf("matches %+v, want one of %d blocks", m.All, deepest)
			}
			if share := prompt.Share(m.All[0].Blocks); !(share > 0 && share <= 1) {
				t.Fatalf("a share of %v", share)
			}
		} else if len(m.All) > 0 || prompt.Key(0) != 0 {
			t.Fatalf("of no prompt %+v, key %d", m.All, prompt.Key(0))
		}
	})
}
