package gateway

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(asReplica) != "" {
		serveReplica()
		return
	}
	goleak.VerifyTestMain(m)
}
