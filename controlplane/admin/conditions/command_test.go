package conditions

import "testing"

func TestACommandToCopyIsOneThatRunsWhereSteelyardIsReached(t *testing.T) {
	const pod = "kubectl -n models exec steelyard-7c9d4-fghij -- /steelyard"
	for _, c := range []struct{ program, command, want string }{
		{"steelyard", "steelyard top llama", "steelyard top llama"},
		{"", "steelyard top llama", "steelyard top llama"},
		{pod, "steelyard top llama", pod + " top llama"},
		{pod, "kubectl get --raw /api", "kubectl get --raw /api"},
		{pod, "", ""},
	} {
		if got := asRun(c.program, c.command); got != c.want {
			t.Errorf("%q by %q is %q, want %q", c.command, c.program, got, c.want)
		}
	}
}
