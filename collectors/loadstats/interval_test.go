package loadstats

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestIntervals(t *testing.T) {
	const mib, ms = 1 << 20, time.Millisecond
	cases := []struct {
		name             string
		fleet            Fleet
		least            time.Duration
		budget, size     float64
		withLog, without time.Duration
	}{
		{"ten with an access log", Fleet{WithAccessLog: 10}, 0, 2 * mib, ReportBytes, time.Second, 100 * ms},
		{"ten with reports only, paid for", Fleet{ReportsOnly: 10}, 0, 10 * mib, ReportBytes, time.Second, 100 * ms},
		{"nine with an access log and one without", Fleet{9, 1}, 0, 2 * mib, ReportBytes, time.Second, 100 * ms},
		{"ten with reports only, on a small budget", Fleet{ReportsOnly: 10}, 0, 2 * mib, ReportBytes, 2908706665,
			290870666},
		{"five of each, on a small budget", Fleet{5, 5}, 0, 1 * mib, ReportBytes, 3199577331, 319957733},
		{"a hundred with reports only", Fleet{ReportsOnly: 100}, 0, 2 * mib, ReportBytes, 29087066650, 2908706665},
		{"a thousand with an access log", Fleet{WithAccessLog: 1000}, 0, 2 * mib, ReportBytes, 29087066650, 2908706665},
		{"a hundred with reports only, of ten thousand endpoints", Fleet{ReportsOnly: 100}, 0, 10 * mib, 344_000,
			32_806_396_484, 3_280_639_648},
		{"so many that the others get the rest", Fleet{2050, 10}, 0, 2 * mib, ReportBytes, time.Minute, 46_976 * ms},
		{"more than the budget is for", Fleet{100_000, 10}, 0, 2 * mib, ReportBytes, time.Minute, time.Minute},
		{"a least of one's own", Fleet{10, 10}, 50 * ms, 100 * mib, ReportBytes, 50 * ms, 50 * ms},
		{"a long least", Fleet{WithAccessLog: 10}, 2 * time.Minute, 100 * mib, ReportBytes, 2 * time.Minute,
			2 * time.Minute},
		{"no budget", Fleet{1000, 1000}, 0, 0, ReportBytes, time.Second, 100 * ms},
		{"no Envoy", Fleet{}, 0, 2 * mib, ReportBytes, time.Second, 100 * ms},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			withLog, without := c.fleet.Intervals(c.least, c.budget, c.size)
			if (withLog-c.withLog).Abs() > ms || (without-c.without).Abs() > ms {
				t.Errorf("%v and %v, want %v and %v", withLog, without, c.withLog, c.without)
			}
		})
	}
}

// TestReportsKeepToTheirBudget: of whatever kind they are, unless all report at the longest interval.
func TestReportsKeepToTheirBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := Fleet{rapid.IntRange(0, 5000).Draw(t, "withLog"), rapid.IntRange(0, 5000).Draw(t, "without")}
		budget := rapid.Float64Range(64<<10, 1<<30).Draw(t, "budget")
		size := rapid.Float64Range(100, maxMessage).Draw(t, "size")
		withLog, without := f.Intervals(0, budget, size)
		if without > withLog || withLog < withAccessLog || without < reportsOnly || withLog > longest {
			t.Fatalf("%v with the log, %v without", withLog, without)
		}
		spent := size * (float64(f.WithAccessLog)/withLog.Seconds() + float64(f.ReportsOnly)/without.Seconds())
		if spent > budget*1.001 && (f.ReportsOnly > 0 && without < longest || f.ReportsOnly == 0 && withLog < longest) {
			t.Fatalf("%v bytes a second, every %v and %v; the budget is %v", spent, withLog, without, budget)
		}
	})
}
