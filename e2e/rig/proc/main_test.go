package proc_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"steelyard/e2e/rig/proc"
)

// asParent makes the test binary start a child, say its process id, and wait to
// be killed.
const asParent = "STEELYARD_PROC_TEST_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asParent); dir != "" {
		p, err := proc.Start(proc.Spec{Path: "/bin/sleep", Args: []string{"600"}, Dir: dir})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(p.Pid())
		<-p.Done()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
