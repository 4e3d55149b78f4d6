package envoybootstrap_test

import (
	"fmt"
	"strings"

	envoybootstrap "steelyard/envoy-bootstrap"
)

// The bootstrap of an Envoy whose requests go to the cluster llama by Steelyard's weights.
func ExampleRender() {
	text, err := envoybootstrap.Render(envoybootstrap.Options{Cluster: "llama", XDS: "127.0.0.1:18000"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "service_name:") {
			fmt.Println(strings.TrimSpace(line))
		}
	}
	// Output:
	// service_name: "llama/failsafe"
	// service_name: "llama/fallback"
}
