package conditions

import (
	"testing"

	"steelyard/internal/api"
)

func TestSharesThatAreNotNothingAreNotZero(t *testing.T) {
	for want, n := range map[string]api.Number{"–": {}, "0.0 %": api.Num(0), "< 0.1 %": api.Num(0.0001),
		"12.3 %": api.Num(0.1234)} {
		if got := FormatPercent(n); got != want {
			t.Errorf("%v: %q, want %q", n, got, want)
		}
	}
}

func TestReportingNamesTheMissingEnvoys(t *testing.T) {
	for want, r := range map[string]api.Reporting{
		"":               {},
		"0 of 0":         {Expected: api.Num(0), Reporting: api.Num(0)},
		"3 of 3":         {Expected: api.Num(3), Reporting: api.Num(3)},
		"1 of 3, 2 idle": {Expected: api.Num(3), Reporting: api.Num(1), Idle: api.Num(2)},
		"1 of 3, without a, b": {Expected: api.Num(3), Reporting: api.Num(1),
			Missing: []string{"a", "b"}},
		"7 of 20, without a, b and 11 more": {Expected: api.Num(20), Reporting: api.Num(7),
			Missing: []string{"a", "b"}},
	} {
		if got := formatReporting(r); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
}

func TestFormats(t *testing.T) {
	for in, want := range map[float64]string{
		0.0004: "0.4 ms", 0.0412: "41.2 ms", 0.25: "250 ms", 0.9996: "1.0 s", 14: "14.0 s", 90: "2 min",
		7100: "118 min", 7300: "2 h", 3 * 86400: "3 d",
	} {
		if got := FormatSeconds(in); got != want {
			t.Errorf("%v s: %q, want %q", in, got, want)
		}
	}
}
