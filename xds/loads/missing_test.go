package loads

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"steelyard/xds/loads/loadsv1"
)

// configured returns settings of clusters.
func configured(names ...string) map[string]Settings {
	all := make(map[string]Settings)
	for _, n := range names {
		all[n] = Settings{}
	}
	return all
}

func TestAPickerOfAnUnknownClusterIsRefusedWithWhatThereIs(t *testing.T) {
	many := []string{"lima"}
	for i := range 40 {
		many = append(many, fmt.Sprintf("model-%02d", i))
	}
	for what, c := range map[string]struct {
		configured map[string]Settings
		follows    []string
		says       string // empty: it is served
	}{
		"a name that is near": {configured(many...), []string{"lama"},
			`no cluster "lama" is configured: did you mean lima?`},
		"a name that is not": {configured("b", "a"), []string{"mixtral"},
			`no cluster "mixtral" is configured; there are: a, b`},
		"of many": {configured(many...), []string{"qqqqqqqqqq"}, `no cluster "qqqqqqqqqq" is configured; there are: ` +
			"lima, model-00, model-01, model-02, model-03, model-04, model-05, model-06 and 33 more"},
		"a long name": {configured("a"), []string{strings.Repeat("x", 5000)},
			`no cluster "` + strings.Repeat("x", longestName) + `" is configured; there are: a`},
		"without any cluster":          {configured(), []string{"lama"}, `no cluster "lama" is configured`},
		"one of two":                   {configured("llama"), []string{"lama", "llama"}, ""},
		"all":                          {configured("llama"), nil, ""},
		"before a configuration":       {nil, []string{"lama"}, ""},
		"a cluster without a decision": {configured("llama"), []string{"llama"}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, w := New(slog.New(slog.DiscardHandler)), &wire{}
				if c.configured != nil {
					s.Configure(c.configured)
				}
				followers := 0
				r := &loadsv1.FollowRequest{Clusters: c.follows}
				got := status.Convert(follow(s, w, r, func() { followers = len(s.Followers()) }))
				if served := c.says == ""; served != (followers == 1) {
					t.Errorf("%d followers, want that it is served: %t", followers, served)
				} else if !served && (got.Code() != codes.NotFound || got.Message() != c.says) {
					t.Errorf("%v, want NOT_FOUND: %s", got, c.says)
				}
			})
		})
	}
}

func TestAnUnknownClusterIsLoggedOnceHoweverOftenItsPickerTriesAgain(t *testing.T) {
	var log bytes.Buffer
	s := New(slog.New(slog.NewTextHandler(&log, nil)))
	s.Configure(configured("llama"))
	try := func(cluster string) {
		_ = s.Follow(&loadsv1.FollowRequest{Picker: "envoy-1", Clusters: []string{cluster}}, &wire{ctx: t.Context()})
	}
	lines := func(want int) {
		t.Helper()
		if got := strings.Count(log.String(), "\n"); got != want {
			t.Errorf("%d lines, want %d, in\n%s", got, want, log.String())
		}
	}
	for range 3 {
		try("lama")
	}
	lines(1)
	if !strings.Contains(log.String(), "envoy-1") || !strings.Contains(log.String(), "did you mean llama?") {
		t.Errorf("the log has\n%s", log.String())
	}
	try("qwen")
	lines(2)
	s.Configure(configured("llama"))
	try("lama")
	lines(3)
	for i := range 2 * maxMissed {
		try(fmt.Sprint("cluster-", i))
	}
	lines(3 + maxMissed - 1)
}

// TestAClusterThatIsConfiguredLaterIsServed, as its picker tries again.
func TestAClusterThatIsConfiguredLaterIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := New(slog.New(slog.DiscardHandler)), &wire{}
		s.Configure(configured("llama"))
		r := &loadsv1.FollowRequest{Clusters: []string{"qwen"}}
		if err := follow(s, w, r, func() {}); status.Code(err) != codes.NotFound {
			t.Errorf("before: %v", err)
		}
		s.Configure(configured("llama", "qwen"))
		_ = follow(s, w, r, func() {
			s.Publish("qwen", decision(1))
			time.Sleep(2 * MinInterval)
		})
		if len(w.sent) != 1 || w.sent[0].GetCluster() != "qwen" {
			t.Errorf("sent %v", w.sent)
		}
	})
}
