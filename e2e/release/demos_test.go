package release

import (
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/testbed"
)

// demo returns what a demo prints.
func demo(t *testing.T, args ...string) string {
	t.Helper()
	binary, err := proc.BuildDemo()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// numbers are those at the end of the last line of a demo that begins with the title.
func numbers(t *testing.T, out, title, pattern string) (all []float64) {
	t.Helper()
	lines := regexp.MustCompile(`(?m)^`+title+` +`+pattern+`$`).FindAllStringSubmatch(out, -1)
	if len(lines) == 0 {
		t.Fatalf("no line %q:\n%s", title, out)
	}
	for _, text := range lines[len(lines)-1][1:] {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

func TestTheDemoOfTheQueueShowsTheClasses(t *testing.T) {
	t.Parallel()
	testbed.WithModule(t)
	out := demo(t, "queue", "--duration", "3s")
	if !regexp.MustCompile(`(?m)^Page:  http://127.0.0.1:\d+/#/c/demo\?range=5m$`).MatchString(out) {
		t.Errorf("no page of the cluster:\n%s", out)
	}
	for _, class := range []string{"interactive", "batch"} {
		if n := numbers(t, out, class, `(\d+) .* (\d+)`); n[0] == 0 || n[1] != 0 {
			t.Errorf("class %s has %v answers and %v failures:\n%s", class, n[0], n[1], out)
		}
	}
}

func TestTheDemoOfTheRouterComparesItWithRoundRobin(t *testing.T) {
	t.Parallel()
	testbed.WithModule(t)
	out := demo(t, "router", "--duration", "4s")
	if n := numbers(t, out, "failed", `(\d+) +(\d+)`); n[0] != 0 || n[1] != 0 {
		t.Errorf("%v requests failed:\n%s", n, out)
	}
	if n := numbers(t, out, "answered by new replicas", `(\d+) of (\d+) +(\d+) of (\d+)`); n[0] == 0 || n[2] == 0 ||
		n[1] != n[3] {
		t.Errorf("answers of new replicas: %v of %v, and %v of %v:\n%s", n[0], n[1], n[2], n[3], out)
	}
}

func TestTheDemoOfThePrefixesFindsMoreInTheCaches(t *testing.T) {
	t.Parallel()
	testbed.WithModule(t)
	out := demo(t, "prefix", "--duration", "8s")
	if n := numbers(t, out, "failed", `(\d+) +(\d+) +(\d+)`); n[0] != 0 || n[1] != 0 || n[2] != 0 {
		t.Errorf("%v requests failed:\n%s", n, out)
	}
	if n := numbers(t, out, "prompt tokens in caches", `(\d+) % +(\d+) % +(\d+) %`); n[1] <= n[0] || n[2] <= n[0] {
		t.Errorf("of the prompts, %v %% are in caches by weights, by header and by prompt:\n%s", n, out)
	}
	if n := numbers(t, out, "requests", `(\d+) +(\d+) +(\d+)`); n[0] == 0 || n[1] != n[0] || n[2] != n[0] {
		t.Errorf("the ways have %v requests, want as many:\n%s", n, out)
	}
}
