package proc_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"steelyard/e2e/rig/proc"
)

// executable makes an empty program.
func executable(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFindPrefersTheEnvironmentThenTheCheckoutThenPath(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte("module steelyard\n\ngo 1.26.0\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	given := executable(t, filepath.Join(root, "given"))
	provided := executable(t, filepath.Join(root, ".tools", "bin", "redis-server"))
	onPath := executable(t, filepath.Join(root, "path", "redis-server"))
	sub := filepath.Join(root, "a", "b")
	if err := os.MkdirAll(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		env  string
		dir  string
		want string
	}{
		{"environment", given, sub, given},
		{"checkout", "", sub, provided},
		{"path", "", t.TempDir(), onPath},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("REDIS_SERVER", tt.env)
			t.Setenv("PATH", filepath.Dir(onPath))
			t.Chdir(tt.dir)
			got, err := proc.Find(proc.ProgramRedis)
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("found %s, want %s", got, tt.want)
			}
		})
	}
}

func TestFindNamesTheMissingMakeTarget(t *testing.T) {
	for program, target := range map[proc.Program]string{
		proc.ProgramEnvoy: "make tools-envoy", proc.ProgramRedis: "make tools-redis",
		proc.ProgramPromtool: "make tools-promtool", proc.ProgramTriton: "make tools-triton",
		proc.ProgramPrometheus: "make tools-prometheus",
	} {
		t.Run(string(program), func(t *testing.T) {
			t.Setenv(strings.ToUpper(strings.ReplaceAll(string(program), "-", "_")), "")
			t.Setenv("PATH", "")
			t.Chdir(t.TempDir())
			_, err := proc.Find(program)
			if err == nil || !strings.Contains(err.Error(), target) {
				t.Errorf("error %v, want one that says %q", err, target)
			}
		})
	}
}

func TestFindNamesTheVariableThatIsWrong(t *testing.T) {
	t.Setenv("ENVOY", "/no/such/envoy")
	_, err := proc.Find(proc.ProgramEnvoy)
	if err == nil || !strings.Contains(err.Error(), "ENVOY=/no/such/envoy") {
		t.Errorf("error %v, want one that names the variable", err)
	}
}

func TestFreeAddressesAreConsecutiveAndFree(t *testing.T) {
	addrs, err := proc.FreeAddresses(3)
	if err != nil {
		t.Fatal(err)
	}
	var ports []int
	for _, addr := range addrs {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	if len(ports) != 3 || ports[1] != ports[0]+1 || ports[2] != ports[0]+2 {
		t.Errorf("ports %v, want three in a row", ports)
	}
}
