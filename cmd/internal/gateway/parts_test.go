package gateway

import (
	"fmt"
	"testing"
)

func TestPartsAreRenderedAgainWhenWhatTheyDependOnChanges(t *testing.T) {
	c := cache{known: map[rendering]madeFor{}}
	get := func(cluster, member string, chosen choice, xds string) parts {
		t.Helper()
		p, err := c.partsOf(cluster, []string{member}, chosen, xds)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := get("a", "10.0.0.1:1", byWeight, "")
	if again := get("a", "10.0.0.1:1", byWeight, ""); again.clusters[0] != first.clusters[0] {
		t.Error("nothing has changed, and it is rendered again")
	}
	for name, other := range map[string]parts{
		"module":  get("a", "10.0.0.1:1", byWeight, "127.0.0.1:18000"),
		"choice":  get("a", "10.0.0.1:1", byPrompt, "127.0.0.1:18000"),
		"cluster": get("b", "10.0.0.1:1", byWeight, ""),
		"members": get("a", "10.0.0.2:1", byWeight, ""),
	} {
		if other.clusters[0] == first.clusters[0] {
			t.Errorf("another %s, and the parts are the same", name)
		}
	}
	for i := range maxParts {
		c.known[rendering{cluster: fmt.Sprint(i)}] = madeFor{}
	}
	if get("c", "10.0.0.1:1", byWeight, ""); len(c.known) > maxParts {
		t.Errorf("it has %d", len(c.known))
	}
}
