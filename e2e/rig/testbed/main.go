package testbed

import (
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package, and fails if they leave a goroutine behind.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Connections that net/http keeps for the next request of the admin API.
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
	)
}
