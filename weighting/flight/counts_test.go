package flight

import (
	"testing"
	"time"

	"steelyard/weighting"
)

func TestSumsThatAreNotReportedAreUnknownNotZero(t *testing.T) {
	s := Sums{
		Issued: 1, Hashed: 12, Ended: 2, Failed: 3, Errors: 4, Succeeded: 5, Answered: 6, Latency: 7.5, Sized: 8,
		Bytes: 9.5, Refused: 10, RefusedBytes: 11.5,
	}
	now := time.Unix(1_700_000_000, 0)
	read := func(value float64) weighting.Reading { return weighting.Reading{Value: value, At: now} }
	byReports := weighting.ProxyReport{
		Issued: read(1), Hashed: read(12), Ended: read(2), Errors: read(4), Succeeded: read(5), Sized: read(8),
		SizedBytes: read(9.5),
		Refused:    read(10), RefusedBytes: read(11.5),
	}
	byLogs := byReports
	byLogs.Failed, byLogs.Answered, byLogs.LatencySeconds = read(3), read(6), read(7.5)
	for name, tt := range map[string]struct {
		at, logged time.Time
		want       weighting.ProxyReport
	}{
		"nothing reports":   {},
		"load reports only": {at: now, want: byReports},
		"access logs":       {at: now, logged: now, want: byLogs},
	} {
		if got := s.Report(tt.at, tt.logged); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
