package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"steelyard/e2e/rig/certs"
)

// A reader is a command that reads a file which others write, and does little else.
type reader struct {
	file string                     // its name
	size int                        // things in the file: about the most that it takes
	text func(size int) string      // of a file with so many
	args func(file string) []string // of the command
	says string                     // what it prints of three of them
}

// repeated joins n texts, of which each has its number.
func repeated(n int, separator string, text func(i int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = text(i)
	}
	return strings.Join(all, separator)
}

func address(i int) string { return fmt.Sprintf("10.%d.%d.%d:8000", i>>16, i>>8&255, i&255) }

// readers are all readers of files, by their names.
func readers(t testing.TB) map[string]reader {
	all := otherReaders(t)
	maps.Copy(all, traceReaders())
	maps.Copy(all, pageReaders())
	maps.Copy(all, brokenReaders(t, "lines", "\n"))
	maps.Copy(all, brokenReaders(t, "one line", " "))
	return all
}

// naming returns the command that checks a configuration, next to the file, that names it.
func naming(t testing.TB, config string) func(file string) []string {
	return func(file string) []string {
		path := filepath.Join(filepath.Dir(file), "steelyard.yaml")
		text := strings.ReplaceAll(config, "FILE", filepath.Base(file))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return checking(path)
	}
}

func checking(file string) []string { return []string{"check", "-c", file} }

// brokenReaders read what can be broken into lines, or be one.
func brokenReaders(t testing.TB, how, newline string) map[string]reader {
	many := func(n int, text func(i int) string) string { return repeated(n, ","+newline, text) }
	list := func(addressOf func(i int) string) func(int) string {
		return func(n int) string {
			return "[" + many(n, func(i int) string {
				return fmt.Sprintf(`{"targets": ["%s"],%s"labels": {"zone": "é"}}`, addressOf(i), newline)
			}) + "]\n"
		}
	}
	portless := func(int) string { return "10.0.0.1" }
	targets := func(n int) string {
		return `[{"targets": [` + many(n, func(i int) string { return `"` + address(i) + `"` }) + "]}]\n"
	}
	static := func(n int) string {
		return `{"clusters": [{"name": "llama", "engine": "vllm", "endpoints": {"static": [` +
			many(n, func(i int) string { return `{"address": "` + address(i) + `"}` }) + "]}}]}\n"
	}
	pods := func(n int) string {
		return "{duration: 10m, pods: [" + many(n, func(int) string { return "{count: 1, slots: 1}" }) + "]}\n"
	}
	listed := naming(t, "clusters: [{name: llama, engine: vllm, endpoints: {file: FILE}}]\n")
	shown := func(file string) []string { return []string{"simulate", "--scenario", file, "--print"} }
	const good = "ok, 1 cluster"
	return map[string]reader{
		"endpoints, JSON, " + how: {"list.json", 10_000, list(address), listed, good},
		"endpoints, JSON, faults, " + how: {"list.json", 10_000, list(portless), listed,
			"group 2, target 0: address"},
		"endpoints, JSON, a long group, " + how: {"list.json", 10_000, targets, listed, good},
		"endpoints, YAML, " + how:               {"list.yaml", 10_000, list(address), listed, good},
		"endpoints, YAML, a long group, " + how: {"list.yaml", 10_000, targets, listed, good},
		"configuration, " + how:                 {"steelyard.yaml", 10_000, static, checking, good},
		"scenario, " + how:                      {"scenario.yaml", 1000, pods, shown, "pods:"},
	}
}

func otherReaders(t testing.TB) map[string]reader {
	block := func(n int) string {
		return repeated(n, "", func(i int) string {
			return fmt.Sprintf("- targets:\n  - %s\n  labels:\n    zone: a\n", address(i))
		})
	}
	faults := func(n int) string {
		return "clusters: [{name: llama, engine: vllm, endpoints: {static: [" +
			repeated(n, ", ", func(int) string { return "{addr: 10.0.0.1}" }) + "]}}]\n"
	}
	contexts := func(n int) string {
		return "{current-context: a, contexts: [{name: a, context: {cluster: a0}}], clusters: [" +
			repeated(n, ", ", func(i int) string {
				return fmt.Sprintf("{name: a%d, cluster: {server: 'https://127.0.0.1:%d'}}", i, i)
			}) + "]}\n"
	}
	authority := string(certs.New("authority", nil).CertPEM())
	authorities := func(n int) string { return strings.Repeat(authority, n) }
	endless := func(n int) string { return strings.Repeat("-----BEGIN CERTIFICATE-----\n", n) }
	const static = "endpoints: {static: [{address: 10.0.0.1:80}]}"
	listed := naming(t, "clusters: [{name: llama, engine: vllm, endpoints: {file: FILE}}]\n")
	connecting := naming(t, "kubernetes: {kubeconfig: FILE}\nclusters: [{name: a, engine: vllm, "+static+"}]\n")
	trusting := naming(t, "redis: {addresses: [127.0.0.1:6379], tls: {ca_file: FILE}}\n"+
		"clusters: [{name: llama, engine: vllm, inflight: {redis_key: a}, "+static+"}]\n")
	return map[string]reader{
		"endpoints, YAML, block":     {"list.yaml", 10_000, block, listed, "ok, 1 cluster"},
		"configuration, faults":      {"steelyard.yaml", 10_000, faults, checking, `static[2]: unknown key "addr"`},
		"kubeconfig":                 {"kubeconfig", 5000, contexts, connecting, "ok, 1 cluster"},
		"authorities":                {"ca.pem", 1200, authorities, trusting, "ok, 1 cluster"},
		"authorities without an end": {"ca.pem", 30_000, endless, trusting, "ends within a PEM block"},
	}
}

// pageReaders read pages of metrics.
func pageReaders() map[string]reader {
	const load, waiting = "vllm:num_requests_running 5\n", "vllm:num_requests_waiting"
	inspecting := func(file string) []string { return []string{"inspect", file} }
	lines := func(n int) string {
		return load + repeated(n, "", func(i int) string { return fmt.Sprintf("%s{model=\"m%d\"} 1\n", waiting, i) })
	}
	long := func(n int) string { return load + waiting + `{model="` + strings.Repeat("m", n) + "\"} 1\n" }
	labels := func(n int) string {
		labels := repeated(n, ",", func(i int) string { return fmt.Sprintf(`l%d="a"`, i) })
		return load + waiting + "{" + labels + "} 1\n"
	}
	return map[string]reader{
		"metrics":                   {"page", 20_000, lines, inspecting, waiting},
		"metrics, one line":         {"page", 1_000_000, long, inspecting, waiting},
		"metrics, labels of a line": {"page", 8000, labels, inspecting, waiting},
	}
}

// traceReaders read traces whose last line has a fault, so that nothing is simulated.
func traceReaders() map[string]reader {
	const azure, mooncake = "2023-11-16 18:17:03,374,44\n",
		`{"timestamp": 1, "input_length": 9, "output_length": 5, "hash_ids": [`
	traced := func(file string) []string { return []string{"simulate", "--scenario", "llm", "--trace", file} }
	const header = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	return map[string]reader{
		"trace, Azure": {"trace.csv", 100_000, func(n int) string { return header + strings.Repeat(azure, n) + "x\n" },
			traced, ".csv:5: "},
		"trace, Azure, columns": {"trace.csv", 200_000, func(n int) string {
			return strings.Repeat("a,", n) + header + strings.Repeat("1,", n) + "x\n"
		}, traced, ".csv:2: "},
		"trace, Mooncake": {"trace.jsonl", 40_000, func(n int) string {
			return strings.Repeat(mooncake+"46]}\n", n) + "x\n"
		}, traced, ".jsonl:4: "},
		"trace, Mooncake, one line": {"trace.jsonl", 200_000, func(n int) string {
			return mooncake + strings.Repeat("46, ", n) + "4]}\nx\n"
		}, traced, ".jsonl:2: "},
	}
}

// prepare writes a file of a size, and returns the command that reads it, and the file's bytes.
func (r reader) prepare(t testing.TB, size int) (read func(), length int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), r.file)
	text := r.text(size)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := r.args(file)
	return func() {
		c := root()
		c.SetArgs(args)
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		execute(c)
	}, len(text)
}

func BenchmarkReaders(b *testing.B) {
	all := readers(b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, part := range []int{16, 4, 1} {
			r := all[name]
			b.Run(fmt.Sprintf("%s/%d", name, r.size/part), func(b *testing.B) {
				read, length := r.prepare(b, r.size/part)
				b.SetBytes(int64(length))
				for b.Loop() {
					read()
				}
			})
		}
	}
}

// TestTheReadersReadTheirFiles: each command of the table gets as far as the end of its file.
func TestTheReadersReadTheirFiles(t *testing.T) {
	for name, r := range readers(t) {
		file := filepath.Join(t.TempDir(), r.file)
		if err := os.WriteFile(file, []byte(r.text(3)), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		c := root()
		c.SetArgs(r.args(file))
		c.SetOut(&out)
		c.SetErr(&out)
		execute(c)
		if !strings.Contains(out.String(), r.says) {
			t.Errorf("%s: it says %s, want %q", name, out.String(), r.says)
		}
	}
}
