package images

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/proc"
)

const (
	version = "0.1.0-test"
	limit   = time.Minute
	// envoyLibC is the C library of Envoy's image, which is made from Ubuntu 22.04 (envoyproxy/envoy,
	// distribution/docker/Dockerfile-envoy).
	envoyLibC = 35 // 2.35
)

// images builds both images, and returns the folders that stand for their bases.
func images(t *testing.T) (serve, router image, bases map[string]string) {
	t.Helper()
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	envoy, err := proc.Find(proc.ProgramEnvoy)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(root, ".tools/rootfs")
	if _, err := os.Stat(folder); err != nil {
		t.Fatalf("%v: make tools-rootfs", err)
	}
	withEnvoy := filepath.Join(t.TempDir(), "envoy")
	bases = map[string]string{"golang:": "", "gcr.io/distroless/static": filepath.Join(folder, "static"),
		"envoyproxy/envoy:": withEnvoy}
	b := &builder{t: t, context: root, bases: bases, env: platform(version), built: make(map[string]image)}
	b.command("", "cp", "-a", filepath.Join(folder, "envoy"), withEnvoy)
	b.command("", "mkdir", "-p", filepath.Join(withEnvoy, "usr/local/bin"))
	b.command("", "cp", "-L", envoy, filepath.Join(withEnvoy, "usr/local/bin/envoy"))
	b.stages = parse(t, string(text), make(map[string]string))
	return b.build(""), b.build("router"), bases
}

// entered has /proc and /dev in an image, as with a container engine, and nothing else of this machine. once runs a
// command to its end, and served until the standard input ends.
const (
	entered = `mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" || exit 90
shift
`
	once   = entered + `exec env -i "$@"`
	served = entered + `exec 3<&0
env -i "$@" & pid=$!
(cat <&3 >/dev/null; kill $pid) & wait $pid`
)

// in is a command in an image.
func (i image) in(ctx context.Context, script string, env []string, words ...string) *exec.Cmd {
	args := []string{"unshare", "--mount", "--", "sh", "-c", script, "sh", i.root,
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	args = append(args, env...)
	args = append(args, "chroot", "--userspec="+i.user, i.root)
	if os.Geteuid() != 0 { // sudo says so where it may not
		args = append([]string{"sudo", "-n"}, args...)
	}
	args = append(args, words...)
	return exec.CommandContext(ctx, args[0], args[1:]...)
}

// serve runs an image by its own command until the test ends, and waits until the address answers.
func (i image) serve(t *testing.T, env []string, url string) {
	t.Helper()
	c := i.in(context.WithoutCancel(t.Context()), served, env, slices.Concat(i.entrypoint, i.command)...)
	var out bytes.Buffer
	c.Stdout, c.Stderr, c.WaitDelay = &out, &out, time.Second
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		in.Close()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("after SIGTERM: %v\n%s", err, &out)
			}
		case <-time.After(limit):
			t.Errorf("it does not end within %v after SIGTERM", limit)
		}
	})
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if resp, err := http.Get(url); err == nil {
			resp.Body.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("it ended: %v\n%s", err, &out)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not answer within %v", url, limit)
		}
	}
}

// TestTheImagesAreMadeByTheDockerfileAndRun as their user, by their command, on what their base has.
func TestTheImagesAreMadeByTheDockerfileAndRun(t *testing.T) {
	serve, router, bases := images(t)
	for name, c := range map[string]struct {
		image
		base, ports, program string
		added                []string
	}{
		"serve": {serve, bases["gcr.io/distroless/static"], "18000 19000", "/steelyard",
			[]string{"/THIRD_PARTY_NOTICES.txt", "/steelyard"}},
		"router": {router, bases["envoyproxy/envoy:"], "3000", "steelyard",
			[]string{"/usr/local/bin/libsteelyard.so", "/usr/local/bin/steelyard",
				"/usr/share/doc/steelyard/THIRD_PARTY_NOTICES.txt"}},
	} {
		if got := c.image.added(t, c.base); !slices.Equal(got, c.added) {
			t.Errorf("%s adds %q to its base, want %q", name, got, c.added)
		}
		if c.user != "65532:65532" || c.image.ports != c.ports || !slices.Equal(c.entrypoint, []string{c.program}) {
			t.Errorf("%s runs %q as %s, with the ports %s", name, c.entrypoint, c.user, c.image.ports)
		}
		out, err := c.in(t.Context(), once, nil, c.program, "--version").CombinedOutput()
		if err != nil || !strings.Contains(string(out), version) {
			t.Errorf("%s, which root has to enter: --version prints %q, %v, want %s", name, out, err, version)
		}
	}
	t.Run("serve", func(t *testing.T) { serves(t, serve) })
	t.Run("router", func(t *testing.T) { routes(t, router) })
}

func serves(t *testing.T, i image) {
	free, err := proc.FreeAddresses(2)
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("xds: {listen: %q}\nadmin: {listen: %q}\nclusters:\n- name: llama\n  engine: vllm\n"+
		"  endpoints: {static: [{address: \"127.0.0.1:1\"}]}\n", free[0], free[1])
	folder := filepath.Join(i.root, "etc/steelyard")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "steelyard.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	i.serve(t, nil, "http://"+free[1]+"/healthz")
	resp, err := http.Get("http://" + free[1] + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("/healthz answers %s", resp.Status)
	}
}

// routes sends a request by the router, whose Envoy has loaded the module.
func routes(t *testing.T, i image) {
	if got := newestLibC(t, filepath.Join(i.root, "usr/local/bin/libsteelyard.so")); got > envoyLibC {
		t.Errorf("the module needs the C library 2.%d, and Envoy's image has 2.%d", got, envoyLibC)
	}
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "an answer")
	}))
	t.Cleanup(replica.Close)
	free, err := proc.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	i.serve(t, []string{"CUSTOM_ROUTER_PORT=" + proc.Port(free)}, "http://"+free+"/_custom_router/health")
	resp, err := http.Post("http://"+free+"/_custom_router/set-backends", "application/json",
		strings.NewReader(fmt.Sprintf(`{"backends": [%q]}`, replica.URL)))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	answer, err := http.Get("http://" + free + "/v1/images")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "an answer" {
		t.Errorf("the answer is %s: %s, %v", answer.Status, text, err)
	}
}

// newestLibC returns the n of the newest version 2.n of the C library that a shared library needs.
func newestLibC(t *testing.T, file string) (newest int) {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if minor, found := strings.CutPrefix(s.Version, "GLIBC_2."); found {
			minor, _, _ = strings.Cut(minor, ".")
			n, err := strconv.Atoi(minor)
			if err != nil {
				t.Fatalf("%s has the version %s", s.Name, s.Version)
			}
			newest = max(newest, n)
		}
	}
	if newest == 0 {
		t.Errorf("%s names no version of the C library", file)
	}
	return newest
}
