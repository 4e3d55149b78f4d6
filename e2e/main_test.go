package e2e

import (
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// asBackend has this program, started again, answer all requests at once at the address that the variable names.
const asBackend = "STEELYARD_TEST_BACKEND"

func TestMain(m *testing.M) {
	if address := os.Getenv(asBackend); address != "" {
		panic(http.ListenAndServe(address, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	}
	goleak.VerifyTestMain(m,
		// Connections that net/http keeps for the next request of the admin API.
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
	)
}
