package admin

import (
	"strings"
	"testing"

	"steelyard/internal/api"
)

func TestAnEndpointIsFoundByItsAddressOrItsPod(t *testing.T) {
	pool := []api.Endpoint{
		{Address: "10.0.0.1:8000", Pod: "vllm-7c9d4-fghij"},
		{Address: "10.0.0.2:8000", Pod: "vllm-7c9d4-fg"},
		{Address: "10.0.0.3:8000", Pod: "sglang-0"},
		{Address: "10.0.0.4:8000", Pod: "vllm-10"},
		{Address: "10.0.0.5:8000", Pod: "two-ports"}, {Address: "10.0.0.5:8001", Pod: "two-ports"},
		{Address: "[2001:db8::1]:8000"},
	}
	for _, c := range []struct{ name, address, says string }{
		{"10.0.0.1:8000", "10.0.0.1:8000", ""},
		{"[2001:db8::1]:8000", "[2001:db8::1]:8000", ""},
		{"vllm-7c9d4-fghij", "10.0.0.1:8000", ""},
		{"vllm-7c9d4-fg", "10.0.0.2:8000", ""}, // though another one begins so
		{"sgl", "10.0.0.3:8000", ""},
		{"10.0.0.9:8000", "10.0.0.9:8000", ""}, // it may have left
		{"vllm", "", `"vllm" is at 3 endpoints of llama, such as `},
		{"vllm-1", "", `no endpoint "vllm-1" is in llama`}, // not vllm-10
		{"two-ports", "", `"two-ports" is at 2 endpoints of llama, such as 10.0.0.5:8000 (two-ports)`},
		{"10.0.0.1", "", `no endpoint "10.0.0.1" is in llama: write its HOST:PORT, or the beginning of its Pod's name`},
		{"", "", `no endpoint "" is in llama`},
	} {
		e, err := find(pool, c.name, "llama")
		if e.Address != c.address || (err == nil) != (c.says == "") ||
			err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %q, %v; want %q, %s", c.name, e.Address, err, c.address, c.says)
		}
	}
}
