package config

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"steelyard/internal/engines"
	"steelyard/internal/spelling"
)

// The checks of one value against another, and of texts with a special form. They
// skip what the decoder has reported: one mistake, one message.

// check completes what follows from other keys and then checks the whole.
func (d *decoder) check(cfg *Config) {
	d.checkXDS(&cfg.XDS)
	d.checkAdmin(&cfg.Admin)
	d.checkSameListen(cfg)
	if cfg.Redis != nil {
		d.checkRedis(cfg.Redis)
	}
	if cfg.Replicas != nil {
		d.checkReplicas(cfg)
	}
	if g := cfg.EnvoyGateway; g != nil {
		d.checkEnvoyGateway(g, cfg.Clusters)
		if len(cfg.Clusters) > 0 && cfg.Pools == nil && !slices.ContainsFunc(cfg.Clusters, ofPool) {
			d.fail(&cfg.EnvoyGateway, "no cluster is of an InferencePool, so every question about one would be "+
				"answered with an error: add pools:, or inferencePool: to a cluster, or remove this section")
		}
	}
	if len(cfg.Clusters) == 0 && cfg.Pools == nil {
		d.fail(&cfg.Clusters, "missing: write a list with at least one cluster, e.g. clusters: [{name: llama, engine: "+
			"vllm, endpoints: {static: [{address: 10.0.0.1:8000}]}}], or pools: for InferencePools")
	}
	lines := map[string]int{}
	for i := range cfg.Clusters {
		c := &cfg.Clusters[i]
		if first, twice := lines[c.Name]; twice {
			d.refuse(&c.Name, "is also the name of the cluster on line %d: give each cluster its own", first)
		} else if c.Name != "" {
			lines[c.Name] = d.places[&c.Name].node.Line
		}
		d.checkCluster(c, cfg)
	}
	d.checkSets(cfg.Clusters)
	d.checkPods(cfg)
}

func ofPool(c Cluster) bool { return c.Endpoints.InferencePool != nil }

// checkPods warns of what is to be written about Pods where no endpoint is one.
func (d *decoder) checkPods(cfg *Config) {
	found := func(c Cluster) bool { return c.Endpoints.InKubernetes() }
	if cfg.Pools != nil || slices.ContainsFunc(cfg.Clusters, found) {
		return
	}
	k := &cfg.Kubernetes
	for _, on := range []*bool{&k.Wedged.Event, &k.Wedged.Condition, &k.Wedged.Evict, &k.DeletionCost} {
		if *on {
			(*Checker)(d).Warn(on, "it has no effect: no cluster finds its Pods in Kubernetes, so write endpoints: "+
				"{kubernetes: …} or {inferencePool: …} in one, or pools:, or remove this line")
		}
	}
}

func (d *decoder) checkXDS(x *XDS) {
	d.checkListen(&x.Listen)
	if a := &x.AccessLog; a.ReportsAbove <= a.BatchAbove {
		d.conflict(&a.ReportsAbove, &a.BatchAbove, "reports_above, %s, is not above batch_above, %s: an Envoy first "+
			"sends its entries in batches and then none, so write a larger reports_above or a smaller batch_above",
			d.value(&a.ReportsAbove), d.value(&a.BatchAbove))
	}
	d.checkLimits(&x.Limits)
	d.checkExposure(x)
}

// checkLimits also makes three quarters of the connections a limit per address that is not written.
func (d *decoder) checkLimits(l *XDSLimits) {
	if !d.written(&l.ConnectionsPerAddress) {
		l.ConnectionsPerAddress = min(l.ConnectionsPerAddress, l.Connections*3/4)
	}
	if l.ConnectionsPerAddress > l.Connections {
		d.conflict(&l.ConnectionsPerAddress, &l.Connections, "connections_per_address, %s, is more than connections, "+
			"%s: write at most that, and less if others than one address are to get in",
			d.value(&l.ConnectionsPerAddress), d.value(&l.Connections))
	}
}

func (d *decoder) checkRedis(r *Redis) {
	lines := map[string]int{}
	for i := range r.Addresses {
		d.checkHostPort(&r.Addresses[i])
		d.checkTwice(&r.Addresses[i], r.Addresses[i], lines, "address")
	}
	ofSentinels := func(field *string) {
		d.conflict(field, &r.Mode, "%s is used by mode: sentinel only, and mode is %s: change the mode, or remove "+
			"this line", shown(*field), d.value(&r.Mode))
	}
	switch {
	case r.Mode == RedisSingle && len(r.Addresses) > 1:
		d.conflict(&r.Mode, &r.Addresses, "mode %s takes one address and there are %d: write mode: cluster or mode: "+
			"sentinel, or leave one address", d.value(&r.Mode), len(r.Addresses))
	case r.Mode == RedisSentinel && r.MasterName == "":
		d.conflict(&r.Mode, &r.MasterName, "mode sentinel needs the name of the primary: add master_name:")
	case r.Mode != RedisSentinel && r.MasterName != "":
		ofSentinels(&r.MasterName)
	}
	if r.Mode != RedisSentinel && r.SentinelPasswordFile != "" {
		ofSentinels(&r.SentinelPasswordFile)
	}
	needsPassword := func(user, file *string, key string) {
		if *user != "" && *file == "" {
			d.conflict(user, file, "the user %s needs a password: add %s:", shown(*user), key)
		}
	}
	needsPassword(&r.Username, &r.PasswordFile, "password_file")
	needsPassword(&r.SentinelUsername, &r.SentinelPasswordFile, "sentinel_password_file")
	if r.Mode == RedisCluster && r.DB != 0 {
		d.conflict(&r.DB, &r.Mode, "%d does not exist in a Redis Cluster, which has database 0 only: remove this line",
			r.DB)
	}
	if r.TLS != nil {
		d.checkPair(&r.TLS.CertFile, &r.TLS.KeyFile)
	}
	d.checkTimeout(&r.Timeout, &r.Interval)
}

func (d *decoder) checkCluster(c *Cluster, cfg *Config) {
	d.checkName(&c.Name)
	d.checkEngine(c)
	d.checkEndpoints(c)
	d.checkScrape(c)
	d.checkInflight(c, cfg)
	d.checkPolicy(c, cfg)
	d.checkWeighting(&c.Weighting)
	d.checkOverload(&c.Overload)
	d.checkPush(&c.Push)
	if c.Queue != nil {
		d.checkQueue(c)
	}
	for i := range c.Prefix.Markers {
		if m := &c.Prefix.Markers[i]; *m < 0 || *m > largestToken {
			d.fail(m, "%d is not a valid token id: write 0 to %d", *m, largestToken)
		}
	}
}

const largestToken = 999_999_999 // that is read in a prompt

const longestName = 256 // bytes

func (d *decoder) checkName(name *string) {
	d.checkWord(name, longestName, "the EDS service name of Envoy's cluster, such as llama-70b")
	if strings.Contains(*name, "/") {
		d.refuse(name, "has a slash in it, which sets the variants of a cluster apart (llama/failsafe, "+
			"llama/fallback): write a name without")
	}
}

func (d *decoder) checkEngine(c *Cluster) {
	if c.Engine == "" && !c.Scrape.Disabled {
		d.fail(&c.Engine, "missing: write the model server's, one of %s", strings.Join(engines.Names(), ", "))
	}
	if c.Custom != nil {
		d.checkCustom(c)
	}
	used := []*string{&c.Engine}
	for i := range c.Endpoints.Static {
		used = append(used, &c.Endpoints.Static[i].Engine)
	}
	for _, e := range used {
		if *e == engines.Custom && c.Custom == nil {
			d.conflict(e, &c.Custom, "custom needs the names of its series: add custom: {queue: NAME, running: NAME} "+
				"to the cluster")
		}
	}
	named := slices.ContainsFunc(used, func(e *string) bool { return *e == engines.Custom })
	if c.Custom != nil && !named && c.Endpoints.File == "" {
		d.conflict(&c.Custom, &c.Engine, "series are named, but the engine is %s: write engine: custom, or remove "+
			"this section", shown(c.Engine))
	}
}

var seriesName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)

func (d *decoder) checkCustom(c *Cluster) {
	names := []*string{&c.Custom.Queue, &c.Custom.Running, &c.Custom.Utilization, &c.Custom.Completions}
	some := false
	for _, name := range names {
		some = some || d.written(name)
		bare, _, labels := strings.Cut(*name, "{")
		switch {
		case *name == "" || seriesName.MatchString(*name):
		case labels && seriesName.MatchString(bare):
			d.refuse(name, "has labels: write %s; all its series are taken together", bare)
		default:
			d.refuse(name, "is not the name of a series: write letters, digits, _ and : only")
		}
	}
	if !some {
		d.fail(&c.Custom, "no series is named: write at least one of queue, running, utilization, completions")
	}
}

func (d *decoder) checkInflight(c *Cluster, cfg *Config) {
	key := &c.Inflight.RedisKey
	if c.Inflight.SyncMembers {
		d.checkSync(&c.Inflight)
	} else if c.Inflight.AddCounts {
		d.conflict(&c.Inflight.AddCounts, &c.Inflight.SyncMembers, "counts are added only to a set that has the "+
			"endpoints as its members: add sync_members: true, or remove this line")
	}
	if *key == "" {
		if c.Scrape.Disabled && cfg.XDS.AccessLog.Disabled && cfg.XDS.LoadReports.Disabled {
			d.fail(&c.Scrape.Disabled, "true leaves the cluster without any report of load: write false, or add "+
				"inflight: {redis_key: KEY}, or use what Envoys report (xds.access_log, xds.load_reports)")
		}
		return
	}
	if cfg.Redis == nil {
		d.conflict(key, &cfg.Redis, "%s is to be read from Redis, and there is no redis section: add redis: "+
			"{addresses: [127.0.0.1:6379]} at the top level, or remove this line", shown(*key))
	} else if cfg.Redis.Interval > c.Weighting.Hold {
		d.conflict(&c.Weighting.Hold, &cfg.Redis.Interval, "weighting.hold of cluster %s, %s, is less than "+
			"redis.interval, %s, so counts would be stale between two reads: write a hold of at least %s, or a "+
			"shorter redis.interval", shown(c.Name), d.value(&c.Weighting.Hold), d.value(&cfg.Redis.Interval),
			DurationText(cfg.Redis.Interval))
	}
	for _, word := range placeholder.FindAllStringSubmatch(*key, -1) {
		if meant := spelling.Nearest(word[1], []string{"cluster"}); meant != "" && word[0] != clusterPlaceholder {
			d.fail(key, "%s in %s stands for nothing: did you mean %s?", word[0], shown(*key), clusterPlaceholder)
		}
	}
}

// checkSync wants a set whose companion can be in its slot of a Redis Cluster: braces make a hash tag, or there are
// none.
func (d *decoder) checkSync(i *Inflight) {
	_, tagged, _ := strings.Cut(i.RedisKey, "{")
	switch tag, _, _ := strings.Cut(tagged, "}"); {
	case i.RedisKey == "":
		d.conflict(&i.SyncMembers, &i.RedisKey, "there is no set to synchronise: add redis_key: KEY, or remove this "+
			"line")
	case strings.ContainsAny(i.RedisKey, "{}") && (tag == "" || !strings.Contains(tagged, "}")):
		d.conflict(&i.SyncMembers, &i.RedisKey, "the key %s has a brace that is no hash tag, so nothing can be kept "+
			"next to it: write a key without braces, or with a tag such as {llama}:inflight", shown(i.RedisKey))
	}
}

// checkSets wants a set that is synchronised with the endpoints of a cluster to be of no other cluster.
func (d *decoder) checkSets(clusters []Cluster) {
	users := make(map[string]*Cluster) // of each key, the first
	for i := range clusters {
		c := &clusters[i]
		key := c.Inflight.Key(c.Name)
		first := users[key]
		switch {
		case key == "":
		case first == nil:
			users[key] = c
		case first.Name != c.Name && (first.Inflight.SyncMembers || c.Inflight.SyncMembers):
			d.conflict(&c.Inflight.RedisKey, &first.Inflight.RedisKey, "%s is also the key of cluster %s on line %d, "+
				"and sync_members would delete the members of one that are not endpoints of the other: write a key "+
				"for each, such as inflight:{cluster}, or remove sync_members", shown(key), shown(first.Name),
				d.places[&first.Inflight.RedisKey].node.Line)
		}
	}
}

func (d *decoder) checkPolicy(c *Cluster, cfg *Config) {
	if c.Policy == PolicyLeastLatency && cfg.XDS.AccessLog.Disabled {
		d.conflict(&c.Policy, &cfg.XDS.AccessLog.Disabled, "policy least-latency of cluster %s needs Envoys' access "+
			"logs, and xds.access_log is disabled: enable it, or write policy: load", shown(c.Name))
	}
}

// placeholder is a word in braces. Others than {cluster} are Redis' hash tags.
var placeholder = regexp.MustCompile(`\{([A-Za-z_-]+)\}`)

func (d *decoder) checkWeighting(w *Weighting) {
	rising := func(low, high *time.Duration, lowName, highName string) {
		if *low > *high {
			d.conflict(high, low, "%s is %s and %s is %s: write %s ≤ %s; readings are fresh, then held, then fade",
				lowName, d.value(low), highName, d.value(high), lowName, highName)
		}
	}
	rising(&w.Fresh, &w.Hold, "fresh", "hold")
	rising(&w.Hold, &w.Decay, "hold", "decay")
}

func (d *decoder) checkOverload(o *Overload) {
	checkThresholds(d, &o.QueueEnter, &o.QueueLeave, "queue_enter")
	checkThresholds(d, &o.UtilizationEnter, &o.UtilizationLeave, "utilization_enter")
	d.checkQueueTime(&o.QueueTimeEnter, &o.QueueTimeLeave)
}

// checkQueueTime also makes half of the enter threshold a leave threshold that is not written.
func (d *decoder) checkQueueTime(enter, leave *time.Duration) {
	if !d.written(leave) {
		*leave = *enter / 2
	}
	if *enter == 0 && *leave > 0 {
		d.conflict(leave, enter, "the leave threshold, %s, is without queue_time_enter, which is off: write "+
			"queue_time_enter too, or remove this line", d.value(leave))
		return
	}
	checkThresholds(d, enter, leave, "queue_time_enter")
}

func checkThresholds[T cmp.Ordered](d *decoder, enter, leave *T, enterName string) {
	if *leave > *enter {
		d.conflict(leave, enter, "the leave threshold, %s, is above %s, %s, so the flag would flap: write at most %s",
			d.value(leave), enterName, d.value(enter), shownValue(reflect.ValueOf(*enter)))
	}
}

// beatsPerStale is how many heartbeats fit in endpoint_stale_after: two may be
// lost or late before Envoy drops an assignment that is alive.
const beatsPerStale = 3

func (d *decoder) checkPush(p *Push) {
	if p.Heartbeat > 0 && p.Heartbeat < p.MinInterval {
		d.conflict(&p.Heartbeat, &p.MinInterval, "heartbeat, %s, is less than min_interval, %s: write a longer "+
			"heartbeat, or 0s for none", d.value(&p.Heartbeat), d.value(&p.MinInterval))
	}
	stale := d.value(&p.EndpointStaleAfter)
	switch {
	case p.EndpointStaleAfter == 0:
	case p.Heartbeat == 0:
		d.conflict(&p.EndpointStaleAfter, &p.Heartbeat, "endpoint_stale_after, %s, needs a heartbeat, or Envoy drops "+
			"the endpoints whenever the load does not change: write heartbeat: %s", stale,
			DurationText((p.EndpointStaleAfter / (2 * beatsPerStale)).Round(time.Millisecond)))
	case p.Heartbeat*beatsPerStale >= p.EndpointStaleAfter:
		d.conflict(&p.EndpointStaleAfter, &p.Heartbeat, "endpoint_stale_after, %s, is not more than three heartbeats "+
			"of %s, so one late heartbeat could empty the cluster: write more than %s, or a shorter heartbeat", stale,
			d.value(&p.Heartbeat), DurationText(p.Heartbeat*beatsPerStale))
	}
}
