package main

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"steelyard/e2e/bench/placement/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAShortBench has all rows, and every request is answered. Its figures say nothing.
func TestAShortBench(t *testing.T) {
	o := Default()
	o.Bodies, o.Requests, o.WarmUp, o.Place.Dir = []int{200, 200 << 10}, 30, 5, t.TempDir()
	o.Flood.Slices, o.Flood.Slice = 2, 100*time.Millisecond
	d, err := o.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Rows) != 10 || len(d.Targets) != 12 {
		t.Errorf("%d rows and %d targets, want 10 and 12", len(d.Rows), len(d.Targets))
	}
	if len(d.Throughput) != 6 {
		t.Errorf("the throughput of %d rows, want 6", len(d.Throughput))
	}
	for _, r := range d.Throughput {
		if !(r.PerSecond > 0 && r.Relative > 0 && r.RelativeCI[1] >= r.RelativeCI[0]) {
			t.Errorf("%+v", r)
		}
	}
	for _, r := range d.Rows {
		if !(r.P50 > 0 && r.P99 >= r.P50 && r.EnvoyCPU > 0) {
			t.Errorf("%+v", r)
		}
	}
	var table bytes.Buffer
	if err := d.Write(&table); err != nil || !strings.Contains(table.String(), "module, by prompt") {
		t.Errorf("error %v in\n%s", err, table.String())
	}
}

func TestWhatIsAddedIsComparedWithItsTarget(t *testing.T) {
	plain, added := make([]float64, 100), make([]float64, 100)
	for i := range plain {
		plain[i], added[i] = 1e-3, 1.05e-3
	}
	d := &document{}
	d.add(&measured{size: 200, names: []string{weights, rowModule, rowPicker},
		seconds: [][]float64{plain, added, added}, cpu: []float64{1, 2, 3}}, 1)
	d.add(&measured{size: 48 << 10, names: []string{rowPickerPrefix, weights},
		seconds: [][]float64{slowed(plain, 5e-3), plain}, cpu: []float64{1, 2}}, 1)
	want := []bool{true, true, true, false}
	if len(d.Targets) != len(want) {
		t.Fatalf("targets %+v", d.Targets)
	}
	for i, target := range d.Targets {
		if target.Holds != want[i] {
			t.Errorf("%+v", target)
		}
	}
	if r := d.Rows[1]; float64(r.AddedP50-0.05e-3) > 1e-9 || r.AddedP50CI != (report.CI{r.AddedP50, r.AddedP50}) {
		t.Errorf("added %v, %v", r.AddedP50, r.AddedP50CI)
	}
	d.judge(2)
	if !d.Valid {
		t.Errorf("not a result: %v", d.Reasons)
	}
	d.Rows[0].P99 = 1
	d.judge(2)
	if d.Valid || len(d.Reasons) != 1 {
		t.Error("a busy machine has a result")
	}
}

// TestACeilingByTheSizeOfTheBodyMissesItsTarget, and a lower throughput that does not depend on the size does not.
func TestACeilingByTheSizeOfTheBodyMissesItsTarget(t *testing.T) {
	names := []string{weights, rowModule, rowPicker}
	var all []throughput
	for _, m := range []struct {
		size  int
		rates [][]float64
	}{
		{200, [][]float64{{1000, 1010, 990}, {900, 900, 900}, {500, 500, 500}}},
		{48 << 10, [][]float64{{800, 800, 800}, {720, 720, 720}, {390, 390, 390}}},
		{200 << 10, [][]float64{{400, 400, 400}, {300, 300, 300}, {100, 120, 80}}},
	} {
		all = append(all, throughputs(names, m.rates, m.size, 1)...)
	}
	if r := all[2]; r.PerSecond != 500 || r.Relative != 0.5 || r.Policy != rowPicker || r.Body != 200 {
		t.Errorf("%+v", r)
	}
	var holds []bool
	for _, target := range ceilings(all) {
		holds = append(holds, target.Holds)
	}
	if want := []bool{true, true, false, false}; !slices.Equal(holds, want) {
		t.Errorf("the targets hold: %v, want %v", holds, want)
	}
}

func slowed(seconds []float64, by float64) []float64 {
	out := make([]float64, len(seconds))
	for i, s := range seconds {
		out[i] = s + by
	}
	return out
}

func TestABodyHasItsSize(t *testing.T) {
	texts := rand.New(rand.NewPCG(1, 1))
	for _, size := range Default().Bodies {
		if got := len(chat(size, texts)); got != size {
			t.Errorf("%d bytes, want %d", got, size)
		}
	}
	if Default().Gap <= 0 || Default().Gap > time.Second {
		t.Errorf("a gap of %v", Default().Gap)
	}
}
