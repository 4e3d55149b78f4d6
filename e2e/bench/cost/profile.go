package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"steelyard/e2e/rig/proc"
)

// hook is an additional source file of a profiled build.
//
//go:embed hook.go.txt
var hook []byte

// buildProfiled builds steelyard with the hook laid over it. The product has no
// profiler: what listens can be asked, and what is not there cannot.
func buildProfiled() (string, error) {
	root, err := proc.Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin", "e2e")
	source, overlay, binary := filepath.Join(dir, "hook.go"), filepath.Join(dir, "overlay.json"),
		filepath.Join(dir, "steelyard-profiled")
	layers, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root,
		"cmd/steelyard/hook.go"): source}})
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("building a steelyard with a profiler: %w", err)
	}
	for path, text := range map[string][]byte{source: hook, overlay: layers} {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return "", fmt.Errorf("building a steelyard with a profiler: %w", err)
		}
	}
	cmd := exec.Command("go", "build", "-overlay", overlay, "-o", binary, "./cmd/steelyard")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building a steelyard with a profiler: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return binary, nil
}

// profileEnv tells the hook where to write, how long after its start to begin, and for
// how long to go on. Connecting takes a while, so that the profile has some of it.
func profileEnv(dir, name string, warmUp, window time.Duration) []string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil
	}
	return []string{
		"STEELYARD_PROFILE=" + filepath.Join(dir, name),
		"STEELYARD_PROFILE_AFTER=" + warmUp.String(),
		"STEELYARD_PROFILE_FOR=" + (window - window/10).String(),
	}
}
