package chaos

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	logging.Disable() // of the Redis client: a Redis that is away is meant to be
	BeServer()
	goleak.VerifyTestMain(m)
}
