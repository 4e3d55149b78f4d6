package sim

// What policies and pickers that look at prompts know of the caches.

import (
	"fmt"
	"strconv"
	"strings"

	"steelyard/picking/prefix"
	"steelyard/sim/engine"
)

// A router has the routes that were learned.
type router struct {
	table   *prefix.Table
	matches prefix.Matches
}

func newRouter() *router { return &router{table: prefix.NewTable(prefix.Limits{})} }

// match finds out which pods have answered the beginning of a prompt.
func (r *router) match(content *prefix.Prompt) []prefix.Match {
	r.table.Match(content, &r.matches)
	return r.matches.All
}

// contentOf is what routers compare of a prompt: its whole blocks.
func contentOf(asked *prompt) prefix.Prompt {
	return prefix.FromBlocks(asked.blocks[:min(len(asked.blocks), asked.prompt/engine.CacheBlock)], asked.ends)
}

// podName and podNumber are the address of a pod and back. Sorted as text addresses are in the order of the pods.
func podName(pod int) string { return fmt.Sprintf("pod-%06d", pod) }

func podNumber(name string) int32 {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "pod-"))
	if err != nil {
		return -1
	}
	return int32(n)
}
