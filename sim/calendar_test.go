package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestCalendarReturnsWhatIsNext(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 2, 3, 17, 64} {
		c := newCalendar(n)
		plain := make([]instant, n)
		for i := range plain {
			plain[i] = never
		}
		for range 2000 {
			l := lane(random.IntN(n))
			plain[l] = instant(random.IntN(50)) // often equal to another
			if random.IntN(10) == 0 {
				plain[l] = never
			}
			c.set(l, plain[l])
			first := lane(slices.Index(plain, slices.Min(plain))) // of one time the lowest lane
			if got, at := c.next(); got != first || at != plain[first] {
				t.Fatalf("next of %v = lane %d at %v, want lane %d", plain, got, at, first)
			}
		}
	}
}

func TestRingKeepsOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var r ring[int]
	var plain []int
	for i := range 10_000 {
		if random.IntN(100) < 52 {
			r.push(i)
			plain = append(plain, i)
		} else if len(plain) > 0 {
			if got := r.pop(); got != plain[0] {
				t.Fatalf("pop = %d, want %d", got, plain[0])
			}
			plain = plain[1:]
		}
		if r.len() != len(plain) || r.len() > 0 && (*r.first() != plain[0] || *r.last() != plain[len(plain)-1]) {
			t.Fatalf("ring of %d, want %d", r.len(), len(plain))
		}
	}
}
