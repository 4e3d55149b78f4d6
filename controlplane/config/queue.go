package config

import (
	"regexp"
	"slices"
	"time"

	"steelyard/internal/engines"
)

func (d *decoder) checkQueue(c *Cluster) {
	q := c.Queue
	d.checkPlaces(c)
	for _, name := range []*string{&q.ClassHeader, &q.TenantHeader} {
		if !headerName.MatchString(*name) {
			d.refuse(name, "is not the name of a header: write it in lower case, such as x-steelyard-class")
		}
	}
	if q.ClassHeader == q.TenantHeader {
		d.conflict(&q.TenantHeader, &q.ClassHeader, "a header names either the class or the tenant: write another one")
	}
	lines := map[string]int{}
	for i := range q.Classes {
		d.checkClass(&q.Classes[i])
		name := &q.Classes[i].Name
		d.checkWord(name, longestClass, "a name such as interactive")
		d.checkTwice(name, *name, lines, "class")
	}
}

// headerName matches the name of an HTTP header, as Envoy writes it.
var headerName = regexp.MustCompile(`^[a-z0-9!#$%&'*+.^_|~-]{1,128}$`)

const longestClass = 128 // bytes

// longestWait is the stream idle timeout of the bootstrap: Envoy ends a request that waits for longer.
const longestWait = 10 * time.Minute

// checkPlaces complains of a queue without a number of places: it would hold no request.
func (d *decoder) checkPlaces(c *Cluster) {
	field := &c.Queue.MaxInFlight
	if *field != 0 {
		return
	}
	static := c.Endpoints.Static
	unknown := func(e StaticEndpoint) bool { return e.Capacity == 0 }
	batches := func(e StaticEndpoint) bool { return engines.Batches(e.Engine) }
	switch {
	case engines.Batches(c.Engine):
		d.fail(field, "missing: engine %s has no slots: write how many requests an endpoint may have in flight, e.g. "+
			"max_in_flight: 8", c.Engine)
	case slices.ContainsFunc(static, batches):
		i := slices.IndexFunc(static, batches)
		d.fail(field, "missing: engine %s of %s has no slots: write how many requests an endpoint may have in flight, "+
			"e.g. max_in_flight: 8", static[i].Engine, shown(static[i].Address))
	case c.Scrape.Disabled && c.Capacity == 0 && len(static) > 0 && slices.ContainsFunc(static, unknown):
		d.fail(field, "missing: the slots of %s are not known without scraping: write capacity: of the cluster or the "+
			"endpoint, or how many requests an endpoint may have in flight, e.g. max_in_flight: 8",
			shown(static[slices.IndexFunc(static, unknown)].Address))
	}
}

func (d *decoder) checkClass(c *QueueClass) {
	if c.Strict && d.written(&c.Weight) {
		(*Checker)(d).Warn(&c.Weight, "a strict class is sent first, whatever its weight: remove one of the two")
	}
	if c.MaxWait >= longestWait {
		(*Checker)(d).Warn(&c.MaxWait, "Envoy ends a stream without a byte after its idle timeout, which is %s unless "+
			"bootstrap --idle-timeout has another: write less, or set a longer one", DurationText(longestWait))
	}
}
