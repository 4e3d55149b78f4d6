package table

import (
	"strings"
	"testing"
)

func TestNumbersAreShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 4.3e-26: "<0.001", 0.0043: "0.0043", 0.05: "0.05", 12: "12",
		52.14: "52.1", 1234.6: "1235"} {
		if got := Number(v); got != want {
			t.Errorf("%g: %q, want %q", v, got, want)
		}
	}
}

// Where a terminal is too narrow, columns of numbers are left out first, and then the last text is cut.
func TestATableFitsItsTerminal(t *testing.T) {
	for width, want := range map[int]string{
		0:  "NAME   WHAT  N  MORE\nllama  one   1    22\n",
		13: "NAME   WHAT\nllama  one\n",
		9:  "NAME   W…\nllama  o…\n",
	} {
		table := New("NAME", "WHAT", ">N", ">MORE")
		table.Add("llama", "one", "1", "22")
		var out strings.Builder
		if table.Write(&out, width); out.String() != want {
			t.Errorf("width %d: %q, want %q", width, out.String(), want)
		}
	}
}

func TestWhatATerminalWouldExecuteIsReplaced(t *testing.T) {
	if got := Printable("a\x1b[2Jb\nc"); got != "a\ufffd[2Jb c" {
		t.Errorf("%q", got)
	}
}
