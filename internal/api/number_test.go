package api

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

func TestNumberIsNullWhenJSONCannotHoldIt(t *testing.T) {
	for name, tc := range map[string]struct {
		in   Number
		want string
	}{
		"zero value":        {Number{}, "null"},
		"zero":              {Num(0), "0"},
		"not a number":      {Num(math.NaN()), "null"},
		"infinite":          {Num(math.Inf(1)), "null"},
		"negative infinite": {Num(math.Inf(-1)), "null"},
		"weight":            {Num(1e6), "1000000"},
		"fraction":          {Num(0.125), "0.125"},
		"largest":           {Num(math.MaxFloat64), "1.7976931348623157e+308"},
		"duration":          {Seconds(250 * time.Millisecond), "0.25"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(tc.in)
			if err != nil || string(got) != tc.want {
				t.Fatalf("got %s, %v, want %s", got, err, tc.want)
			}
			var back Number
			if err := json.Unmarshal(got, &back); err != nil || back != tc.in {
				t.Fatalf("read back %+v, %v, want %+v", back, err, tc.in)
			}
		})
	}
}

func TestTimeIsUTCOrNull(t *testing.T) {
	berlin := time.FixedZone("CET", 3600)
	for name, tc := range map[string]struct {
		in   Time
		want string
	}{
		"never":         {At(time.Time{}), "null"},
		"zero value":    {Time{}, "null"},
		"other zone":    {At(time.Date(2026, 1, 2, 4, 4, 5, 60, berlin)), `"2026-01-02T03:04:05.00000006Z"`},
		"made by hand":  {Time{time.Date(2026, 1, 2, 4, 4, 5, 0, berlin)}, `"2026-01-02T03:04:05Z"`},
		"beyond format": {At(time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC)), "null"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := json.Marshal(tc.in); err != nil || string(got) != tc.want {
				t.Fatalf("got %s, %v, want %s", got, err, tc.want)
			}
		})
	}
}
