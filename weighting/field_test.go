package weighting

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"
)

const second = time.Second

// The ages at which a field changes its state, on both sides of each border.
var ages = []struct {
	name  string
	age   time.Duration
	state FieldState
	own   float64 // how much of the value is still its own
}{
	{"from a clock a little ahead", -second, StateFresh, 1},
	{"now", 0, StateFresh, 1},
	{"at the end of fresh", second, StateFresh, 1},
	{"just after fresh", second + 1, StateHold, 1},
	{"at the end of hold", 3 * second, StateHold, 1},
	{"just after hold", 3*second + 1, StateDecay, 1},
	{"a quarter decayed", 4750 * time.Millisecond, StateDecay, 0.75},
	{"half decayed", 6500 * time.Millisecond, StateDecay, 0.5},
	{"at the end of decay", 10 * second, StateDecay, 0},
	{"just after decay", 10*second + 1, StateNeutral, 0},
	{"an hour", time.Hour, StateNeutral, 0},
}

func TestEachFieldAgesByItsOwnClock(t *testing.T) {
	now := epoch.Add(time.Hour)
	reasonOf := map[FieldState]Reason{
		StateFresh: ReasonFill, StateHold: ReasonFill, StateDecay: ReasonDecay, StateNeutral: ReasonNeutral,
	}
	// x is aging in one field; a, b and c are fresh and equal, so theirs is the
	// median: 1 waiting and 4 running, or 5 in flight, with 4 slots each.
	for _, field := range []struct {
		field   Field
		others  func(address string) Endpoint
		x       func(at time.Time) Endpoint
		stays   float64 // load of x that does not age
		own     float64 // load of x that does
		median  float64 // what that fades into
		source  LoadSource
		matters bool // to the load
	}{
		{
			FieldQueue, func(a string) Endpoint { return scraped(a, 4, 1, 4, now) },
			func(at time.Time) Endpoint {
				e := scraped("x", 4, 0, 3, now)
				e.Server.Queue = known(0.2, at)
				return e
			},
			3, 0.2, 1, LoadScraped, true,
		}, {
			FieldRunning, func(a string) Endpoint { return scraped(a, 4, 1, 4, now) },
			func(at time.Time) Endpoint {
				e := scraped("x", 4, 0.5, 0, now)
				e.Server.Running = known(2, at)
				return e
			},
			0.5, 2, 4, LoadScraped, true,
		}, {
			FieldInFlight, func(a string) Endpoint { return counted(a, 4, 5, now) },
			func(at time.Time) Endpoint { return counted("x", 4, 3, at) },
			0, 3, 5, LoadInFlight, true,
		}, {
			FieldUtilization, func(a string) Endpoint { return scraped(a, 4, 1, 4, now) },
			func(at time.Time) Endpoint {
				e := scraped("x", 4, 0, 3, now)
				e.Server.Utilization = known(0.4, at)
				return e
			},
			3, 0.4, 0, LoadScraped, false,
		},
	} {
		for _, c := range ages {
			t.Run(fmt.Sprintf("%s/%s", field.field, c.name), func(t *testing.T) {
				at := now.Add(-c.age)
				d := NewLaw(DefaultParams()).Step(now, Snapshot{Endpoints: []Endpoint{
					field.x(at), field.others("a"), field.others("b"), field.others("c"),
				}})
				x := of(t, d, "x")
				load, reason := field.stays, ReasonFill
				if field.matters {
					load += c.own*field.own + (1-c.own)*field.median
					reason = reasonOf[c.state]
				}
				in := input(t, x, field.field)
				want(t, "state", in.State, c.state)
				want(t, "age", in.Age, max(0, c.age))
				want(t, "value", in.Value, field.own)
				wantNear(t, "load", x.Load, load, 1e-8)
				want(t, "load source", x.LoadSource, field.source)
				want(t, "reason", x.Reason, reason)
			})
		}
		t.Run(fmt.Sprintf("%s/never known", field.field), func(t *testing.T) {
			d := NewLaw(DefaultParams()).Step(now, Snapshot{Endpoints: []Endpoint{
				field.x(time.Time{}), field.others("a"), field.others("b"), field.others("c"),
			}})
			x := of(t, d, "x")
			load, source, reason := field.stays, field.source, ReasonFill
			switch field.field {
			case FieldInFlight:
				load, source, reason = 5, LoadMedian, ReasonNeutral
			case FieldQueue:
				load, reason = load+field.median, ReasonNeutral // the others report it
			case FieldRunning:
				load += 4 // requests wait, so all slots are taken
			}
			in := input(t, x, field.field)
			want(t, "state", in.State, StateUnknown)
			want(t, "age", in.Age, 0)
			want(t, "value is unknown", math.IsNaN(in.Value), true)
			wantNear(t, "load", x.Load, load, 1e-12)
			want(t, "load source", x.LoadSource, source)
			want(t, "reason", x.Reason, reason)
		})
	}
}

// A median endpoint of a quarter of the size carries a quarter of the load.
func TestStaleFieldFadesIntoAMedianOfTheEndpointsOwnSize(t *testing.T) {
	now := epoch.Add(time.Hour)
	d := NewLaw(DefaultParams()).Step(now, Snapshot{Endpoints: []Endpoint{
		scraped("a", 16, 8, 16, now), scraped("b", 16, 8, 16, now), scraped("x", 4, 0, 0, epoch),
		{Address: "y", Capacity: 4},
	}})
	for _, address := range []string{"x", "y"} {
		e := of(t, d, address)
		wantNear(t, "load of "+address, e.Load, 6, 1e-12)
		wantNear(t, "share of "+address, e.Share, 4.0/40, 1e-12)
		want(t, "reason of "+address, e.Reason, ReasonNeutral)
	}
}

func TestUnusableNumbersAreNoReadings(t *testing.T) {
	for name, r := range map[string]Reading{
		"NaN":                    known(math.NaN(), epoch),
		"infinite":               known(math.Inf(1), epoch),
		"minus infinite":         known(math.Inf(-1), epoch),
		"negative":               known(-1, epoch),
		"more than a second off": known(1, epoch.Add(second+1)),
		"from the year 9999":     known(1, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)),
		"without a time":         {Value: 1},
	} {
		t.Run(name, func(t *testing.T) {
			law := NewLaw(DefaultParams())
			x := Endpoint{Address: "x", Server: ServerReport{
				Queue: r, Running: r, Utilization: r, Completions: r, QueueSeconds: r, BusySeconds: r,
			}, InFlight: r}
			d := of(t, law.Step(epoch, Snapshot{Endpoints: []Endpoint{x}}), "x")
			for _, in := range d.Inputs {
				want(t, string(in.Field)+" state", in.State, StateUnknown)
			}
			want(t, "load source", d.LoadSource, LoadMedian)
			// And it keeps no true reading out.
			later := epoch.Add(second)
			d = of(t, law.Step(later, Snapshot{Endpoints: []Endpoint{scraped("x", 4, 3, 4, later)}}), "x")
			want(t, "load afterwards", d.Load, 7)
		})
	}
}

func TestReportThatLeavesAFieldOutKeepsItsLastValue(t *testing.T) {
	law := NewLaw(DefaultParams())
	law.Step(epoch, Snapshot{Endpoints: []Endpoint{scraped("x", 4, 3, 4, epoch)}})
	now := epoch.Add(2 * second)
	partial := Endpoint{Address: "x", Capacity: 4, Server: ServerReport{Running: known(2, now)}}
	x := of(t, law.Step(now, Snapshot{Endpoints: []Endpoint{partial}}), "x")
	want(t, "load", x.Load, 5)
	want(t, "queue state", input(t, x, FieldQueue).State, StateHold)
	want(t, "running state", input(t, x, FieldRunning).State, StateFresh)
}

func TestEntriesOfOneAddressAreUnited(t *testing.T) {
	later := epoch.Add(second)
	a := scraped("x", 0, 3, 4, epoch)
	b := Endpoint{Address: "x", Zone: "z", Capacity: 8, Server: ServerReport{Running: known(2, later)},
		InFlight: known(5, epoch)}
	d := NewLaw(DefaultParams()).Step(later, Snapshot{Endpoints: []Endpoint{a, b, a}})
	want(t, "endpoints", len(d.Endpoints), 1)
	x := of(t, d, "x")
	want(t, "share", x.Share, 1)
	want(t, "zone", x.Zone, "z")
	want(t, "slots", x.Slots, 8)
	want(t, "queue", input(t, x, FieldQueue).Value, 3)
	want(t, "running", input(t, x, FieldRunning).Value, 2)
	want(t, "in flight", input(t, x, FieldInFlight).Value, 5)
}

// When a source dies for all, every load fades into the common median and
// the traffic into the capacity shares: slowly, without a jump at any border, and
// at no time as if the last loads were news.
func TestWholeSourceAwayFadesSmoothlyIntoCapacityShares(t *testing.T) {
	const (
		largestJump = 0.02 // of the traffic, per 100 ms: what a growing horizon spreads
		n           = 10
	)
	server := func(address string, capacity, load float64, at time.Time) Endpoint {
		e := scraped(address, capacity, max(0, load-capacity), min(load, capacity), at)
		e.Server.Completions = known(e.Server.Running.Value*at.Sub(epoch).Seconds(), at)
		return e
	}
	for name, in := range map[string]func(address string, capacity, load float64, at time.Time) Endpoint{
		"scrapes": server,
		"in-flight counts": func(address string, capacity, load float64, at time.Time) Endpoint {
			// One comes or goes between two readings.
			return counted(address, capacity, load+float64(at.Sub(epoch)/(300*time.Millisecond)%2), at)
		},
		"both": func(address string, capacity, load float64, at time.Time) Endpoint {
			e := server(address, capacity, load, at)
			e.InFlight = known(load+2, at) // two have leaked
			return e
		},
	} {
		t.Run(name, func(t *testing.T) {
			law := NewLaw(DefaultParams())
			var before Decision
			var total float64
			worst, lastHorizon := 0.0, time.Duration(0)
			for tick := range 250 {
				now := epoch.Add(time.Duration(tick) * 100 * time.Millisecond)
				s := Snapshot{PushPeriod: 250 * time.Millisecond}
				for i := range n {
					// Read every 300 ms, each at its own time, until the fifth second.
					at := epoch.Add(time.Duration(min(tick, 50)/3*300+i*20) * time.Millisecond)
					capacity := float64(4 + 4*(i%3))
					s.Endpoints = append(s.Endpoints, in(fmt.Sprint(i), capacity, capacity*(0.5+0.2*float64(i)), at))
				}
				d := law.Step(now, s)
				if tick > 60 {
					for i, e := range d.Endpoints {
						worst = max(worst, math.Abs(e.Share-before.Endpoints[i].Share))
					}
					if now.Sub(epoch) < 14*second && d.Horizon < lastHorizon {
						t.Errorf("%v: horizon falls from %v to %v while nothing is heard", now.Sub(epoch), lastHorizon,
							d.Horizon)
					}
				}
				before, lastHorizon = d, d.Horizon
			}
			t.Logf("largest jump %.4f of the traffic", worst)
			if worst > largestJump {
				t.Errorf("a share jumps by %v in 100 ms, more than %v", worst, largestJump)
			}
			for _, e := range before.Endpoints {
				total += e.Capacity
			}
			for _, e := range before.Endpoints {
				wantNear(t, "share of "+e.Address, e.Share, e.Capacity/total, 1e-9)
				want(t, "reason of "+e.Address, e.Reason, ReasonNeutral)
			}
		})
	}
}

func TestTwoEntriesOfOneAddressAreTheNewestOfEachWhicheverComesFirst(t *testing.T) {
	now := epoch.Add(time.Hour)
	older, newer := now.Add(-second), now
	a, b := Endpoint{Address: "a", InFlight: known(3, older)}, Endpoint{Address: "a", InFlight: known(5, newer)}
	a.Proxies = ProxyReport{Issued: known(10, newer), Ended: known(7, older), Failed: known(2, newer),
		Errors: known(1, older), Succeeded: known(5, newer)}
	b.Proxies = ProxyReport{Issued: known(9, older), Ended: known(8, newer), Errors: known(3, newer),
		Succeeded: known(4, older), Answered: known(6, newer), LatencySeconds: known(4, newer), Partial: true}
	a.Exact, b.Exact = true, true
	want := ProxyReport{
		Issued: known(10, newer), Ended: known(8, newer), Failed: known(2, newer), Errors: known(3, newer),
		Succeeded: known(5, newer),
		Answered:  known(6, newer), LatencySeconds: known(4, newer), Partial: true,
	}
	for _, got := range []*Endpoint{unite(&a, &b, now), unite(&b, &a, now)} {
		if got.Proxies != want || got.InFlight != known(5, newer) || !got.Exact {
			t.Errorf("proxies %+v, in flight %+v, exact %t; want %+v, 5 and true", got.Proxies, got.InFlight, got.Exact,
				want)
		}
	}
	b.Exact = false
	if unite(&a, &b, now).Exact {
		t.Error("a count is exact only where both are")
	}
}

// TestEveryFieldOfAReportIsCheckedAndMerged: also those that come later. It fails for one that validReport or merge
// leaves out.
func TestEveryFieldOfAReportIsCheckedAndMerged(t *testing.T) {
	now := epoch.Add(time.Hour)
	var report, wrong ServerReport
	setAll(t, reflect.ValueOf(&report).Elem(), 1, now)
	setAll(t, reflect.ValueOf(&wrong).Elem(), math.NaN(), now)
	if got := validReport(report, now); got != report {
		t.Errorf("of %+v there is %+v", report, got)
	}
	wrong.Restarts, wrong.Implausible = 0, 0
	if got := validReport(wrong, now); got != (ServerReport{}) {
		t.Errorf("of a report that is not a number there is %+v", got)
	}
	if got := merge(&ServerReport{}, &report); got != report {
		t.Errorf("of nothing and %+v there is %+v", report, got)
	}
}

// setAll sets every number, time and bool in v.
func setAll(t *testing.T, v reflect.Value, number float64, at time.Time) {
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.Type() == reflect.TypeFor[time.Time]():
			f.Set(reflect.ValueOf(at))
		case f.Kind() == reflect.Float64:
			f.SetFloat(number)
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.Kind() == reflect.Int:
			f.SetInt(1)
		case f.Kind() == reflect.Struct:
			setAll(t, f, number, at)
		default:
			t.Fatalf("%s is of a kind that no test knows: %s", v.Type().Field(i).Name, f.Kind())
		}
	}
}

func TestTheAgeOfALoadIsThatOfItsOldestReading(t *testing.T) {
	ago := func(d time.Duration) time.Time { return epoch.Add(-d) }
	gauges := scraped("gauges", 4, 1, 4, ago(200*time.Millisecond))
	gauges.Server.Queue.At = ago(300 * time.Millisecond)
	both := scraped("both", 4, 1, 4, ago(200*time.Millisecond))
	both.InFlight = known(5, epoch)
	d := NewLaw(DefaultParams()).Step(epoch, Snapshot{Endpoints: []Endpoint{gauges, both,
		counted("counted", 4, 5, ago(50*time.Millisecond)), {Address: "unknown", Capacity: 4}}})
	for address, want := range map[string]time.Duration{
		"gauges": 300 * time.Millisecond, "both": 0, "counted": 50 * time.Millisecond, "unknown": 0,
	} {
		if e := of(t, d, address); e.LoadAge != want {
			t.Errorf("%s: %v old, from %s, want %v", address, e.LoadAge, e.LoadSource, want)
		}
	}
}
