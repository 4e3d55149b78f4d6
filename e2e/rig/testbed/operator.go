package testbed

import (
	"os"
	"path/filepath"
	"testing"
)

// An Operator may drain and pin.
type Operator struct {
	t             *testing.T
	token, tokens string // files: the operator's own, and that of Steelyard
}

// NewOperator returns one with files of its own.
func NewOperator(t *testing.T) *Operator {
	t.Helper()
	dir := t.TempDir()
	o := &Operator{t, filepath.Join(dir, "token"), filepath.Join(dir, "tokens")}
	for path, text := range map[string]string{o.token: "0123456789abcdef\n",
		o.tokens: "operate anna 0123456789abcdef\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// Asked is what of Steelyard's admin section accepts the operator.
func (o *Operator) Asked() string { return ", anonymous_view: true, tokens_file: " + o.tokens }

// Ask runs a command about an endpoint of the tests' cluster.
func (o *Operator) Ask(f *Fleet, command, endpoint string, args ...string) {
	o.t.Helper()
	Run(o.t, append([]string{command, Cluster, endpoint, "--admin", "http://" + f.Admin, "--token-file", o.token},
		args...)...)
}
