package access

import (
	"strings"
	"testing"
	"time"

	"steelyard/internal/credentials"
)

func TestARuleIsAboutTheNamesThatItsPatternMatches(t *testing.T) {
	for _, c := range []struct {
		san   string
		names []string
		want  bool
	}{
		{"spiffe://prod/ns/*/sa/envoy", []string{"spiffe://prod/ns/edge/sa/envoy"}, true},
		{"spiffe://prod/ns/*/sa/envoy", []string{"spiffe://prod/ns/edge/sa/envoy2"}, false},
		{"spiffe://prod/ns/*/sa/envoy", []string{"spiffe://prod/ns/edge/more/sa/envoy"}, false},
		{"spiffe://prod/ns/*/sa/envoy", []string{"spiffe://prod/ns//sa/envoy"}, false},
		{"spiffe://prod/ns/*/sa/envoy", []string{"spiffe://test/ns/edge/sa/envoy"}, false},
		{"spiffe://prod/ns/*/sa/envoy", []string{"spiffe://prod/ns/edge/sa/envoy/"}, false},
		{"spiffe://prod/ns/*/sa/envoy", []string{"spiffe://prod/ns/edge/sa"}, false},
		{"spiffe://prod/ns/a*b/sa/*", []string{"spiffe://prod/ns/axxb/sa/x"}, true},
		{"spiffe://prod/ns/a*b/sa/*", []string{"spiffe://prod/ns/axxbc/sa/x"}, false},
		{"spiffe://prod/ns/a", []string{"x.example.com", "spiffe://prod/ns/a"}, true},
		{"*.envoys.example.com", []string{"a.envoys.example.com"}, true},
		{"*.envoys.example.com", []string{"A.Envoys.Example.com"}, true},
		{"*.envoys.example.com", []string{"a.b.envoys.example.com"}, false},
		{"*.envoys.example.com", []string{"envoys.example.com"}, false},
		{"edge-*.Example.com", []string{"edge-7.example.com"}, true},
		{"edge-*.example.com", []string{"spiffe://edge-7.example.com"}, false},
		{"edge", nil, false},
	} {
		var id credentials.Identity
		for _, n := range c.names {
			if strings.Contains(n, "://") {
				id.URIs = append(id.URIs, n)
			} else {
				id.DNS = append(id.DNS, strings.ToLower(n))
			}
		}
		if got := (Rule{SAN: c.san}).names(id); got != c.want {
			t.Errorf("%s is about %v: %t, want %t", c.san, c.names, got, c.want)
		}
	}
}

func TestAClientMayUseTheClustersOfAllItsRules(t *testing.T) {
	rules := []Rule{{"a.example.com", []string{"llama"}}, {"b.example.com", []string{"*"}},
		{"*.example.com", []string{"embed-*"}}}
	id := credentials.Identity{DNS: []string{"a.example.com"}}
	patterns := granted(rules, id)
	for name, want := range map[string]bool{"llama": true, "llama/failsafe": true, "llama/fallback": true,
		"embed-1": true, "embed-": true, "embed": false, "llama2": false, "mixtral": false, "": false} {
		if got := allows(patterns, name); got != want {
			t.Errorf("%q: %t, want %t", name, got, want)
		}
	}
	if granted(rules, credentials.Identity{DNS: []string{"a.example.org"}}) != nil {
		t.Error("a client that no rule names may use something")
	}
}

func TestMatchingCostsLittleWhateverThePattern(t *testing.T) {
	began := time.Now()
	if match(strings.Repeat("a*", 500)+"b", strings.Repeat("a", 2000)) {
		t.Error("it matches")
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v", took)
	}
}
