package xds

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestHandshakesThatAreRefusedAgainAndAgainAreSummedUpOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		h := NewHandshakes(slog.New(slog.NewTextHandler(&out, nil)))
		const refused = 150 // one a second
		for i := range refused {
			h.failed(fmt.Sprint("10.0.0.1:", i), errors.New("tls: client didn't provide a certificate"))
			time.Sleep(time.Second)
		}
		h.failed("10.0.0.2:1", errors.New(strings.Repeat("x", 1000)))
		time.Sleep(10 * time.Minute) // nothing comes
		synctest.Wait()

		counted := map[string][]int{}
		lines := regexp.MustCompile(`(?m)^.* level=WARN msg="TLS handshakes with clients refused" ` +
			`reason=(\S+) last_peer=.* last_error=.* count=(\d+)$`)
		for _, m := range lines.FindAllStringSubmatch(out.String(), -1) {
			n, _ := strconv.Atoi(m[2])
			counted[m[1]] = append(counted[m[1]], n)
		}
		none, other := counted["no_certificate"], counted["other"]
		if len(none) != 4 || none[0] != 1 || none[0]+none[1]+none[2]+none[3] != refused || len(other) != 1 ||
			strings.Count(out.String(), "\n") != 5 {
			t.Errorf("counts of the lines %v, want no_certificate [1 60 60 29] and other [1]:\n%s", counted,
				out.String())
		}
		for _, r := range h.Refused() {
			if r.Reason == "other" && (r.Count != 1 || len(r.LastError) != maxHandshakeError ||
				r.LastPeer != "10.0.0.2:1") {
				t.Errorf("%+v", r)
			}
		}
	})
}
