package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Connections that net/http keeps for the next request of the admin API.
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
	)
}

func TestFlagsThatWouldMeasureSomethingElseAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		o    options
		want string // in the error
	}{
		"no run":               {options{}, "--repeat 0"},
		"a soak into the past": {options{repeat: 1, soak: -time.Minute}, "--soak -1m0s"},
		"a quick soak":         {options{repeat: 1, soak: time.Minute, quick: true}, "leave out --quick"},
		"a soak of another":    {options{repeat: 1, soak: time.Minute, only: "endpoints-20"}, "and --only"},
		"no such setting":      {options{repeat: 1, only: "endpoint-20"}, "endpoint-20"},
	} {
		if err := c.o.validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want one with %q", name, err, c.want)
		}
	}
	for _, o := range []options{{repeat: 1}, {repeat: 3, only: "streams-", quick: true},
		{repeat: 1, soak: time.Minute}} {
		if err := o.validate(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
