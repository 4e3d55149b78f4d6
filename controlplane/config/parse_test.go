package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"steelyard/weighting"
)

func mustParse(t testing.TB, name, text string) *Config {
	t.Helper()
	cfg, err := Parse(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestDefaultsFillWhatIsNotWritten(t *testing.T) {
	cfg := mustParse(t, "/etc/steelyard/steelyard.yaml", `
redis: {addresses: ["redis:6379"]}
clusters:
  - name: llama
    engine: vllm
    endpoints: {dns: {name: llama.svc, port: 8000}}
`)
	want := &Config{
		XDS: XDS{
			Listen: "127.0.0.1:18000", PushBudget: 10 << 20,
			AccessLog:   AccessLog{BatchAbove: 200, ReportsAbove: 500},
			LoadReports: LoadReports{Budget: 10 << 20},
			Limits: XDSLimits{Connections: 32_768, ConnectionsPerAddress: 24_576, Streams: 131_072,
				Subscriptions: 262_144},
		},
		Admin: Admin{Listen: "127.0.0.1:19000"},
		Redis: &Redis{
			Addresses: []string{"redis:6379"},
			Mode:      RedisSingle,
			Interval:  50 * time.Millisecond,
			Timeout:   40 * time.Millisecond,
		},
		Clusters: []Cluster{{
			Name:      "llama",
			Engine:    "vllm",
			Policy:    PolicyLoad,
			Latency:   Latency{Alpha: 0.3, Threshold: 3 * time.Second},
			Endpoints: Endpoints{DNS: &DNS{Name: "llama.svc", Type: "A", Port: 8000, Interval: 5 * time.Second}},
			Scrape: Scrape{
				Interval:  250 * time.Millisecond,
				Timeout:   200 * time.Millisecond,
				Scheme:    "http",
				Path:      "/metrics",
				BodyLimit: 4 << 20,
			},
			Weighting: Weighting{
				Fresh: time.Second, Hold: 3 * time.Second, Decay: 10 * time.Second,
				Blackout: time.Second, Ramp: 10 * time.Second, Floor: 0.001,
			},
			Overload: Overload{
				QueueEnter: 4, QueueLeave: 2, UtilizationEnter: 0.98, UtilizationLeave: 0.9,
				StalledAfter: 2 * time.Second, MinDwell: 2 * time.Second, MaxShare: 0.5,
			},
			Shedding: Shedding{TargetWait: 2 * time.Second, MaxDrop: 0.95},
			Prefix:   Prefix{Choice: "least-work", Routes: 100_000, TTL: time.Hour},
			Push: Push{MinInterval: 5 * time.Millisecond, EnvoyCPU: 0.02, Deadband: 0.01,
				Heartbeat: 500 * time.Millisecond, EndpointStaleAfter: 3 * time.Second},
			WarmUp: 5 * time.Second,
		}},
	}
	if diff := cmp.Diff(want, cfg); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(weighting.DefaultParams(), cfg.Clusters[0].Params()); diff != "" {
		t.Errorf("the law's defaults differ from the file's (-law +file):\n%s", diff)
	}
}

func TestAQueueWithoutClassesHasOneWithTheirDefaults(t *testing.T) {
	const text = "clusters: [{name: a, engine: vllm, endpoints: {file: a.yaml}, queue: {max_in_flight: 2, " +
		"classes: [{name: default}]}}]"
	cfg, err := Parse("a.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(cfg.Clusters[0].Queue.Classes, new(Queue).All()); diff != "" {
		t.Errorf("the class that is there where none is written differs (-written +own):\n%s", diff)
	}
}

func TestEveryKeyReachesItsField(t *testing.T) {
	cfg, err := Load("testdata/good/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tls := ClientTLS{CAFile: "/ca.pem", CertFile: "testdata/good/cert.pem", KeyFile: "testdata/good/sub/key.pem",
		ServerName: "name"}
	want := &Config{
		XDS: XDS{
			Listen: "0.0.0.0:1", TLS: &ServerTLS{CertFile: "/cert.pem", KeyFile: "testdata/key.pem",
				ClientCAFile: "testdata/good/client-ca.pem"},
			PushBudget:  1 << 20,
			AccessLog:   AccessLog{Disabled: true, BatchAbove: 11, ReportsAbove: 12},
			LoadReports: LoadReports{Disabled: true, Interval: 13 * time.Second, Budget: 2 << 20},
			Limits:      XDSLimits{Connections: 200, ConnectionsPerAddress: 100, Streams: 1000, Subscriptions: 2000},
		},
		Admin: Admin{Listen: "[::1]:2"},
		Redis: &Redis{
			Addresses: []string{"a:1", "[::1]:2"}, Mode: RedisSentinel, MasterName: "primary", Username: "user",
			PasswordFile: "testdata/good/password", SentinelUsername: "other",
			SentinelPasswordFile: "testdata/good/sentinels", DB: 3, TLS: &tls, Interval: 4 * time.Second,
			Timeout: 3 * time.Second,
		},
		Clusters: []Cluster{{
			Name: "first", Engine: "custom",
			Custom: &Custom{Queue: "a:queue", Running: "running", Utilization: "utilization",
				Completions: "completions_total"},
			Endpoints: Endpoints{Static: []StaticEndpoint{
				{Address: "10.0.0.1:8000", Zone: "a", Capacity: 8.5, Engine: "triton", MetricsPort: 8002,
					MetricsPath: "/m?x=1"},
				{Address: "[2001:db8::1]:8000"},
			}},
			Capacity: 16,
			Policy:   PolicyLoad,
			Latency:  Latency{Alpha: 0.4, Threshold: 5 * time.Second},
			Scrape: Scrape{
				Disabled: true, Interval: 5 * time.Second, Timeout: 5 * time.Second, Scheme: "https", Port: 9,
				Path: "/p", BodyLimit: 2 << 10,
				TLS: &ScrapeTLS{ClientTLS: tls, InsecureSkipVerify: true}, BearerTokenFile: "testdata/good/token",
			},
			Inflight: Inflight{RedisKey: "{cluster}:x:{cluster}"},
			Weighting: Weighting{
				Fresh: 6 * time.Second, Hold: 7 * time.Second, Decay: 90 * time.Second, Blackout: 0,
				Ramp: 1500 * time.Millisecond, Floor: 0.5,
			},
			Overload: Overload{
				QueueEnter: 6, QueueLeave: 5, UtilizationEnter: 0.7, UtilizationLeave: 0.6,
				QueueTimeEnter: 9 * time.Second, QueueTimeLeave: 8 * time.Second, StalledAfter: 7 * time.Second,
				MinDwell: time.Minute, MaxShare: 1,
			},
			Shedding: Shedding{Enabled: true, TargetWait: 6 * time.Second, MaxDrop: 0.5},
			Prefix:   Prefix{Choice: PrefixLongestMatch, Routes: 2000, TTL: 2 * time.Minute, Markers: []int{7, 128006}},
			Queue: &Queue{MaxInFlight: 8, ClassHeader: "x-class", TenantHeader: "x-tenant", Classes: []QueueClass{
				{Name: "a", Weight: 3, Strict: true, MaxWait: 5 * time.Second},
				{Name: "b", Weight: 1, MaxWaiting: 1000, MaxWait: 30 * time.Second}}},
			Push:   Push{MinInterval: 20 * time.Millisecond, EnvoyCPU: 0.03, Deadband: 0.02, Heartbeat: 0},
			WarmUp: 0,
		}, {
			Name: "second", Engine: "tgi",
			Endpoints: Endpoints{File: "testdata/good/second.yaml"},
			Policy:    PolicyLoad,
			Latency:   Latency{Alpha: 0.3, Threshold: 3 * time.Second},
			Scrape: Scrape{Interval: 50 * time.Millisecond, Timeout: 40 * time.Millisecond, Scheme: "http",
				Path: "/metrics", BodyLimit: 4 << 20},
			Weighting: Weighting{
				Fresh: 6 * time.Second, Hold: 7 * time.Second, Decay: 90 * time.Second, Blackout: 0,
				Ramp: 20 * time.Second, Floor: 0.5,
			},
			Overload: Overload{
				QueueEnter: 4, QueueLeave: 2, UtilizationEnter: 0.98, UtilizationLeave: 0.9,
				StalledAfter: 2 * time.Second, MinDwell: 2 * time.Second, MaxShare: 0.5,
			},
			Shedding: Shedding{TargetWait: 2 * time.Second, MaxDrop: 0.95},
			Prefix:   Prefix{Choice: "least-work", Routes: 100_000, TTL: time.Hour},
			Push: Push{
				MinInterval: 20 * time.Millisecond, EnvoyCPU: 0.03, Deadband: 0.02, Heartbeat: 3 * time.Second,
				EndpointStaleAfter: 10 * time.Second,
			},
			WarmUp: 5 * time.Second,
		}},
	}
	if diff := cmp.Diff(want, cfg); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestGoodFilesLoad(t *testing.T) {
	files, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("testdata/good/*.yaml: %d files, error %v", len(files), err)
	}
	for _, path := range files {
		if _, err := Load(path); err != nil {
			t.Errorf("%v", err)
		}
	}
}

func TestTimeoutFollowsAShortIntervalUnlessItIsWritten(t *testing.T) {
	for _, c := range []struct {
		name, scrape string
		want         time.Duration
	}{
		{"both are defaults", "{}", 200 * time.Millisecond},
		{"a short interval", "{interval: 100ms}", 80 * time.Millisecond},
		{"a long interval", "{interval: 2s}", 200 * time.Millisecond},
		{"a timeout of its own", "{interval: 100ms, timeout: 100ms}", 100 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := mustParse(t, "c.yaml", "clusters: [{name: a, engine: vllm, endpoints: {file: f}, scrape: "+c.scrape+
				"}]")
			if got := cfg.Clusters[0].Scrape.Timeout; got != c.want {
				t.Errorf("timeout %v, want %v", got, c.want)
			}
		})
	}
}

func TestRedisKeyNamesTheCluster(t *testing.T) {
	for _, c := range []struct{ pattern, want string }{
		{"", ""},
		{"inflight", "inflight"},
		{"{cluster}:x:{cluster}", "llama:x:llama"},
		{"{tag}:{cluster}", "{tag}:llama"},
	} {
		if got := (Inflight{RedisKey: c.pattern}).Key("llama"); got != c.want {
			t.Errorf("%q: %q, want %q", c.pattern, got, c.want)
		}
	}
}

func TestDiffNamesWhatAReloadHasToDo(t *testing.T) {
	base := `
redis: {addresses: ["a:1"]}
clusters:
  - {name: same, engine: vllm, endpoints: {static: [{address: 10.0.0.1:1}]}}
  - {name: gone, engine: vllm, endpoints: {file: f}}
  - {name: other, engine: vllm, endpoints: {file: f}}
`
	running := mustParse(t, "c.yaml", base)
	for _, c := range []struct {
		name, old, new string
		want           Change
		equal          bool
	}{
		{"nothing", "", "", Change{}, true},
		{"a default written out", "redis: {", "xds: {listen: 127.0.0.1:18000}\nredis: {", Change{}, true},
		{"xds", "redis: {", "xds: {listen: 127.0.0.1:1}\nredis: {", Change{XDS: true}, false},
		{"admin", "redis: {", "admin: {listen: 127.0.0.1:1}\nredis: {", Change{Admin: true}, false},
		{"redis", "a:1", "a:2", Change{Redis: true}, false},
		{"no redis", `redis: {addresses: ["a:1"]}`, "", Change{Redis: true}, false},
		{"a cluster changed", "10.0.0.1:1", "10.0.0.1:2", Change{Changed: []string{"same"}}, false},
		{"a cluster renamed", "gone", "came", Change{Added: []string{"came"}, Removed: []string{"gone"}}, false},
		{"two clusters changed", "{file: f}", "{file: g}", Change{Changed: []string{"gone", "other"}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			next := mustParse(t, "c.yaml", strings.ReplaceAll(base, c.old, c.new))
			if c.old == "" {
				next = mustParse(t, "c.yaml", base)
			}
			if diff := cmp.Diff(c.want, Diff(running, next)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got := reflect.DeepEqual(running, next); got != c.equal {
				t.Errorf("they are the same: %v", got)
			}
		})
	}
}

func TestLargeFileIsRefused(t *testing.T) {
	text := page("a") + strings.Repeat("# filler\n", largestFile/9)
	_, err := Parse("large.yaml", []byte(text))
	if err == nil || !strings.HasPrefix(err.Error(), "large.yaml:1:1: the file is larger than 1MiB") {
		t.Errorf("one byte too many: %v", err)
	}
	if _, err := Parse("large.yaml", []byte(text[:largestFile])); err != nil {
		t.Errorf("just as large as allowed: %v", err)
	}
	path := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(path, []byte(strings.Repeat(text, 3)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "larger than 1MiB") {
		t.Errorf("loaded: %v", err)
	}
}

func TestLoadKeepsTheSystemsError(t *testing.T) {
	if _, err := Load("testdata/none.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	_, err := Load("testdata")
	if err == nil || !strings.Contains(err.Error(), "reading the configuration, a YAML file: ") {
		t.Errorf("a folder: %v", err)
	}
}

func TestPasswordsAreNotRepeated(t *testing.T) {
	for _, text := range []string{
		"redis: {addresses: ['redis://user:hunter2@h:1']}",
		"redis: {addresses: ['user:hunter2@h:1']}",
		"redis: {addresses: ['a:1'], password: hunter2}",
		"redis:\n  password: \"hunter2\n",
	} {
		_, err := Parse("c.yaml", []byte(text+"\n"))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestSizeIsWrittenInItsLargestUnit(t *testing.T) {
	for size, want := range map[Size]string{0: "0B", 1: "1B", 1023: "1023B", 1024: "1KiB", 1536: "1536B",
		4 << 20: "4MiB", 3 << 30: "3GiB"} {
		if got := size.String(); got != want {
			t.Errorf("%d: %s, want %s", int64(size), got, want)
		}
		if back, err := parseSize(want); err != nil || back != size {
			t.Errorf("%s reads as %d, %v", want, back, err)
		}
	}
}

func TestWarningsAreOfWhatIsAllowedAndProbablyAMistake(t *testing.T) {
	text := `redis: {addresses: ["10.0.0.1:6379"], username: "${USER}", password_file: pw}
clusters:
- name: ${CLUSTER}
  engine: vllm
  inflight: {redis_key: "inflight:{cluster}"}
  endpoints: {file: list.yaml}
`
	missing := func(cfg *Config, c *Checker) {
		c.Warn(&cfg.Clusters[0].Endpoints.File, "%s is not there yet", cfg.Clusters[0].Endpoints.File)
	}
	cfg, warnings, err := Examine("x.yaml", []byte(text), missing)
	if err != nil || cfg.Clusters[0].Name != "${CLUSTER}" {
		t.Errorf("%+v, %v", cfg, err)
	}
	var got []string
	for _, w := range warnings {
		got = append(got, w.Error())
	}
	const unexpanded = " is used as it is written, because Steelyard expands no variables: fill it in before"
	want := []string{
		"x.yaml:1:49: redis.username: ${USER}" + unexpanded,
		"x.yaml:3:9: clusters[0].name: ${CLUSTER}" + unexpanded,
		"x.yaml:6:15: clusters[0].endpoints.file: list.yaml is not there yet",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if _, warnings, err := Examine("x.yaml", []byte("clusters: [{name: \"${A}\"}]")); err == nil || len(warnings) != 1 {
		t.Errorf("of a file with an error: %v, %v", warnings, err)
	}
}

func TestAQueueOfEndpointsWithSlotsNeedsNoNumberOfPlaces(t *testing.T) {
	for _, text := range []string{
		"engine: triton, endpoints: {file: a.yaml}",
		"scrape: {disabled: true}, capacity: 2, endpoints: {static: [{address: \"10.0.0.1:80\"}]}",
		"scrape: {disabled: true}, endpoints: {static: [{address: \"10.0.0.1:80\", capacity: 2}]}",
	} {
		if _, err := Parse("a.yaml", []byte("clusters: [{name: a, queue: {}, "+text+"}]")); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestAQueueWarnsOfWhatHasNoEffect(t *testing.T) {
	const text = `clusters:
- name: a
  engine: triton
  endpoints: {file: list.yaml}
  queue:
    classes:
    - {name: first, strict: true, weight: 2}
    - {name: second, strict: true, max_wait: 599s}
    - {name: last, weight: 2, max_wait: 10m}
`
	_, warnings, err := Examine("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range warnings {
		got = append(got, w.Error())
	}
	want := []string{
		"x.yaml:7:35: clusters[a].queue.classes[first].weight: a strict class is sent first, whatever its weight: " +
			"remove one of the two",
		"x.yaml:9:31: clusters[a].queue.classes[last].max_wait: Envoy ends a stream without a byte after its idle " +
			"timeout, which is 10m unless bootstrap --idle-timeout has another: write less, or set a longer one",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// used is the CPU time that this process has used.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestHostileFilesAreRefusedSoon has a limit of CPU time a hundred times of what is needed, to catch what grows with
// the square of the size.
func TestHostileFilesAreRefusedSoon(t *testing.T) {
	const limit = 20 * time.Second
	manyKeys := func() string {
		var b strings.Builder
		for i := 0; b.Len() < largestFile/4; i++ {
			fmt.Fprintf(&b, "key_%d: 1\n", i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"a quarter of a megabyte of unknown keys": manyKeys(),
		"a quarter of a megabyte of one key":      strings.Repeat("a:\n", largestFile/12),
		"a quarter of a megabyte of merges": "xds: &x {a: 1}\nadmin: {<<: [" +
			strings.Repeat("*x,", largestFile/12) + "]}\n",
		"nested lists in one row": strings.Repeat("[", 60<<10),
		"nested lists in rows":    strings.Repeat("[\n", 30<<10),
		"nested sections":         strings.Repeat("{a: ", 15<<10),
		"nested items":            strings.Repeat("- ", 30<<10) + "]",
		"deeper than YAML allows": strings.Repeat("- ", 500<<10),
		"a long quote":            "a: '" + strings.Repeat("''", 30<<10),
		"aliases of aliases":      string(readFile(t, "testdata/bad/aliases_bomb.yaml")),
	} {
		t.Run(name, func(t *testing.T) {
			before := used()
			cfg, err := Parse("hostile.yaml", []byte(text))
			if took := used() - before; took > limit {
				t.Errorf("took %v of CPU time", took)
			}
			if cfg != nil || err == nil {
				t.Fatalf("accepted: %v", cfg)
			}
			checkProblems(t, err)
		})
	}
}

func TestErrorKeepsEachProblemAndCountsTheRest(t *testing.T) {
	_, err := Parse("many.yaml", []byte("b: 1\n"+strings.Repeat("x", 70)+": 1\nxds: {tls: {}}\n"))
	var first *Problem
	want := Problem{File: "many.yaml", Line: 1, Column: 1, Text: `unknown key "b": the keys here are xds, admin, ` +
		`redis, kubernetes, replicas, pools, envoy_gateway, clusters`}
	if !errors.As(err, &first) || *first != want {
		t.Errorf("first problem %+v of %v", first, err)
	}
	var rows []string
	for i := range keptProblems + 50 {
		rows = append(rows, fmt.Sprintf("key_%d: 1\n", i))
	}
	_, err = Parse("many.yaml", []byte(strings.Join(rows, "")))
	var all *Error
	if !errors.As(err, &all) || len(all.Problems) != keptProblems {
		t.Fatalf("%d problems kept", len(all.Problems))
	}
	// One more, found last, is that there are no clusters.
	lines := strings.Split(err.Error(), "\n")
	last := fmt.Sprintf("many.yaml:21:1: and %d more from here on", keptProblems+51-shownProblems)
	if len(lines) != shownProblems+1 || lines[shownProblems] != last {
		t.Errorf("%d lines, the last is %q, want %q", len(lines), lines[len(lines)-1], last)
	}
}

func TestConnectionsPerAddressFollowFewConnectionsUnlessTheyAreWritten(t *testing.T) {
	for _, c := range []struct {
		limits string
		want   int
	}{
		{"connections: 40000", 24_576},
		{"connections: 100", 75},
		{"connections: 100, connections_per_address: 100", 100},
		{"connections_per_address: 7", 7},
	} {
		cfg := mustParse(t, "x.yaml", "xds: {limits: {"+c.limits+"}}\nclusters: [{name: a, engine: vllm, endpoints: "+
			"{file: a.yaml}}]\n")
		if got := cfg.XDS.Limits.ConnectionsPerAddress; got != c.want {
			t.Errorf("%s: %d of one address, want %d", c.limits, got, c.want)
		}
	}
}

func TestAFieldMayHaveATypeOfItsOwn(t *testing.T) {
	type word string
	type ratio float64
	var got struct {
		Mode   word   `yaml:"mode" default:"fast" oneof:"fast slow"`
		Other  word   `yaml:"other" default:"fast" oneof:"fast slow"`
		Folder word   `yaml:"folder" kind:"path"`
		Names  []word `yaml:"names" max:"2"`
		Part   ratio  `yaml:"part" default:"0.5" range:"0..1"`
	}
	err := Decode("/etc/x.yaml", []byte("mode: slow\nfolder: data\nnames: [a, b]\n"), &got, func(*Checker) {})
	if err != nil || got.Mode != "slow" || got.Other != "fast" || got.Folder != "/etc/data" ||
		!slices.Equal(got.Names, []word{"a", "b"}) || got.Part != 0.5 {
		t.Errorf("%+v, %v", got, err)
	}
}
