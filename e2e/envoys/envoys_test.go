package envoys

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"steelyard/e2e/rig/golden"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/testbed"
)

// A capability is a row of the table: what has to work, and the tests that show it, by their folder.
type capability struct {
	name   string
	module bool // the tests need an Envoy that loads the module
	tests  map[string][]string
}

const (
	bootstraps = "envoy-bootstrap"
	weights    = "e2e/weights"
	health     = "e2e/health"
	signals    = "e2e/signals"
	faults     = "e2e/faults"
	picking    = "e2e/picking"
	queue      = "e2e/queue"
)

var capabilities = []capability{
	{name: "it accepts what `bootstrap` prints, in every form", tests: map[string][]string{
		bootstraps: {"TestEnvoyAcceptsTheShippedFiles", "TestEnvoyAcceptsWhatIsAttachedToAnotherConfiguration",
			"TestEnvoyAcceptsEveryCombinationOfOptions", "TestEnvoyAcceptsAffinityInEveryForm"}}},
	{name: "requests follow the weights, over EDS, delta and ADS", tests: map[string][]string{
		weights: {"TestTrafficFollowsTheWeights", "TestAQueueThatGrowsLosesTrafficWithinASecond",
			"TestRealEnvoysFollowOnEveryTransport"}}},
	{name: "an overloaded or failing endpoint is flagged", tests: map[string][]string{
		bootstraps: {"TestOverloadFlagsMoveNoTrafficPastTheWeights"},
		weights:    {"TestAnOverloadedEndpointIsDegradedAndDrainedWithoutAnError"},
		health:     {"TestAServerThatFailsFastIsFlagged"}}},
	{name: "each request is reported, in every form of the log", tests: map[string][]string{
		signals: {"TestARequestIsInFlightUntilItEndsHoweverItEnds", "TestTheFormOfTheLogChangesUnderLoad",
			"TestEveryWorkerHasItsOwnStreamAndNothingIsLost", "TestTheSizeOfARequestComesWithItsBeginning"}}},
	{name: "load reports", tests: map[string][]string{
		signals: {"TestLoadReportsCountTheRequestsInProgress"}}},
	{name: "retries, also while weights change", tests: map[string][]string{
		bootstraps: {"TestServersThatRefuseCostNoRequestHoweverLongTheOthersTake",
			"TestWeightsThatComeAndGoCostNoRequestThatIsRetried"},
		signals: {"TestARefusedConnectionMovesNoCountAndItsRetryIsCounted"}}},
	{name: "Steelyard dies: fallback and back, no request fails", tests: map[string][]string{
		bootstraps: {"TestFailsafeFollowsTheWeightsAndOutlivesTheControlPlane"},
		weights:    {"TestFailsafeEnvoysFallBackWhenTheWeightsAreStaleAndReturn"},
		faults:     {"TestAKilledControlPlaneCostsNoRequestAndItsSuccessorKeepsGoodWeights"}}},
	{name: "shedding", tests: map[string][]string{
		bootstraps: {"TestSheddingRefusesTheShareOfTheAssignment"},
		weights:    {"TestSheddingEnvoysRefuseAShareOfASaturatedPoolUntilTheControllerLeaves"}}},
	{name: "zones, affinity", tests: map[string][]string{
		bootstraps: {"TestAnEnvoyThatKnowsZonesFollowsTheWeightsOfAll", "TestAConversationStaysAtItsEndpoint"}}},
	{name: "TLS to Steelyard", tests: map[string][]string{
		bootstraps: {"TestEnvoyAndSteelyardAuthenticateEachOther"}, signals: {"TestSignalsGoThroughTLS"}}},
	{name: "a picker as a process", tests: map[string][]string{
		picking: {"TestEnvoyFollowsThePickerAndNotTheWeights", "TestNoRequestFailsWhateverDiesOfPickerAndControlPlane",
			"TestThePickerLearnsWhereAPromptWasAnswered"}}},
	{name: "the [module](picker.md), with `--prefix` and queue", module: true, tests: map[string][]string{
		picking: {"TestTheModuleNamesTheEndpointInsideEnvoy", "TestBodiesPassTheModuleWhole",
			"TestTheModuleLearnsWhereAPromptWasAnswered", "TestAnswersOfEndpointsThatWereNotNamedAreCounted",
			"TestNoRequestFailsWithTheModuleWhenTheControlPlaneDiesOrHangs"},
		queue: {"TestTheQueueKeepsTheOrderOfArrivalAcrossEnvoys", "TestARequestThatMayNotWaitIsRefused"}}},
	{name: "the module's gauge `picker_prefix_routes`", module: true, tests: map[string][]string{
		picking: {"TestEnvoyShowsTheNumberOfRoutesOfTheModule"}}},
}

// limit is for all tests of a folder on one version.
const limit = 10 * time.Minute

func TestEveryEnvoyThatIsInUse(t *testing.T) {
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	envoys, err := filepath.Glob(filepath.Join(root, ".tools/envoys/*/envoy"))
	if err != nil || len(envoys) == 0 {
		t.Fatalf("there is no Envoy (%v): make tools-envoys", err)
	}
	module, err := proc.BuildModule()
	if err != nil {
		t.Fatal(err)
	}
	binaries := build(t, root)
	var versions []string
	cells := make([][]string, len(capabilities)) // by version
	for _, envoy := range envoys {
		version := filepath.Base(filepath.Dir(envoy))
		t.Setenv("ENVOY", envoy)
		refused := refuses(t, module)
		passed := run(t, root, binaries, refused)
		versions = append(versions, version)
		for i, c := range capabilities {
			cells[i] = append(cells[i], c.cell(passed, refused))
			t.Logf("%s, %s: %s", version, c.name, cells[i][len(cells[i])-1])
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "| works with | %s |\n|---|---|\n", strings.Join(versions, ", "))
	for i, c := range capabilities {
		fmt.Fprintf(&table, "| %s | %s |\n", c.name, summary(versions, cells[i]))
	}
	golden.CheckBlock(t, filepath.Join(root, "docs/attach-envoy.md"), "versions", table.String())
}

// summary is "all", or the versions with each outcome.
func summary(versions, cells []string) string {
	var parts []string
	for i, cell := range cells {
		if slices.Contains(cells[:i], cell) {
			continue
		}
		var with []string
		for k, version := range versions {
			if cells[k] == cell {
				with = append(with, version)
			}
		}
		if len(with) == len(versions) && cell == works {
			return "all"
		}
		parts = append(parts, strings.Join(with, ", ")+": "+cell)
	}
	return strings.Join(parts, "; ")
}

const works = "works"

// cell says what became of the tests of a capability.
func (c capability) cell(passed map[string]bool, refused bool) string {
	if c.module && refused {
		return "Envoy does not start with it"
	}
	for _, names := range c.tests {
		for _, name := range names {
			if !passed[name] {
				return "no"
			}
		}
	}
	return works
}

// refuses reports whether the Envoy refuses the module, which has to say then what to do.
func refuses(t *testing.T, module string) bool {
	t.Helper()
	out, err := testbed.ValidateModule(t, module)
	for _, want := range []string{"made for Envoy " + proc.EnvoyVersion, "or use steelyard picker"} {
		if err != nil && !strings.Contains(string(out), want) {
			t.Errorf("%s refuses the module without the words %q:\n%s", os.Getenv("ENVOY"), want, out)
		}
	}
	return err != nil
}

// folders lists the folders of all tests.
func folders() []string {
	all := map[string]bool{}
	for _, c := range capabilities {
		for folder := range c.tests {
			all[folder] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// build compiles the tests once, and returns the folder of their binaries.
func build(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"test", "-c", "-o", dir + "/"}
	for _, folder := range folders() {
		args = append(args, "./"+folder)
	}
	compile := exec.CommandContext(t.Context(), "go", args...)
	compile.Dir = root
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("building the tests: %v\n%s", err, out)
	}
	return dir
}

// run runs the tests of all capabilities on one Envoy, and returns those that passed. They wait more than they compute,
// so several folders run at once.
func run(t *testing.T, root, binaries string, refused bool) map[string]bool {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(3)
	results := make([]map[string]bool, len(folders()))
	for i, folder := range folders() {
		var names []string
		for _, c := range capabilities {
			if !c.module || !refused {
				names = append(names, c.tests[folder]...)
			}
		}
		group.Go(func() error {
			results[i] = twice(t, filepath.Join(root, folder), binaries, names)
			return nil
		})
	}
	_ = group.Wait() // none fails
	passed := map[string]bool{}
	for _, of := range results {
		maps.Copy(passed, of)
	}
	return passed
}

// twice runs tests of a folder, and once more those that failed.
func twice(t *testing.T, folder, binaries string, names []string) map[string]bool {
	t.Helper()
	passed := map[string]bool{}
	for range 2 {
		names = slices.DeleteFunc(names, func(name string) bool { return passed[name] })
		if len(names) > 0 {
			maps.Copy(passed, try(t, folder, binaries, names))
		}
	}
	return passed
}

var pass = regexp.MustCompile(`(?m)^--- PASS: (\w+) `)

// try runs tests of a folder, and returns those that passed. What the others say is logged.
func try(t *testing.T, folder, binaries string, names []string) map[string]bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	test := exec.CommandContext(ctx, filepath.Join(binaries, filepath.Base(folder)+".test"), "-test.v",
		"-test.parallel=2", "-test.run=^("+strings.Join(names, "|")+")$")
	test.Dir = folder
	out, err := test.CombinedOutput()
	if err != nil {
		t.Logf("ENVOY=%s, in %s: %v\n%s", os.Getenv("ENVOY"), folder, err, out)
	}
	passed := map[string]bool{}
	for _, found := range pass.FindAllStringSubmatch(string(out), -1) {
		passed[found[1]] = true
	}
	return passed
}
