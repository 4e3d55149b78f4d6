//go:build long

package chaos

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
)

var (
	length = flag.Duration("length", time.Minute, "how long faults are made")
	seed   = flag.Uint64("seed", 1, "of the schedule of faults and of the load; 0: another one in each run")
	dir    = flag.String("dir", "", "an existing folder that keeps the files of all processes; none: they are removed")
	skip   = flag.String("skip", "", "kinds of faults to leave out, separated by commas")
)

func TestRequestsFailOnlyWhereAServerOrAnEnvoyDiedWithThem(t *testing.T) {
	storm(t, Options{Length: *length})
}

// TestNoRequestThatWaitsFailsElse: the same where requests wait in a queue, in half of the time.
func TestNoRequestThatWaitsFailsElse(t *testing.T) {
	folder, err := proc.BuildModule()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(proc.ModulePath, folder)
	storm(t, Options{Length: *length / 2, Queue: true})
}

func storm(t *testing.T, o Options) {
	t.Helper()
	o.Seed, o.Dir, o.Skip, o.Log = *seed, *dir, kinds(t, *skip), func(line string) { t.Log(line) }
	if o.Dir == "" {
		o.Dir = proctest.Dir(t)
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64N(1e6) + 1
	}
	again := fmt.Sprintf(`make chaos ARGS="--length %v --seed %d --skip=%s"`, *length, o.Seed, *skip)
	t.Logf("seed %d; the same faults again: %s", o.Seed, again)
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Errorf("the run could not be made: %v", err)
	}
	for _, wrong := range report.Wrong {
		t.Error(wrong)
	}
	t.Logf("%d faults; %v; the same faults again: %s", report.Faults, report.Account, again)
}

// kinds reads a list of kinds of faults.
func kinds(t *testing.T, list string) []Kind {
	t.Helper()
	var all []Kind
	for _, word := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		if !slices.Contains(Kinds(), Kind(word)) {
			t.Fatalf("--skip %s: there is no such kind of fault, write some of %v", word, Kinds())
		}
		all = append(all, Kind(word))
	}
	return all
}
