package gateway

import (
	"fmt"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
)

// BenchmarkTranslation is one of a Gateway with as many pools as Steelyard serves.
func BenchmarkTranslation(b *testing.B) {
	s := fake{}.server()
	var routes []*routev3.Route
	var noted []*clusterv3.Cluster
	for i := range 500 {
		id := fmt.Sprintf("httproute/models/r%d/rule/0", i)
		routes = append(routes, &routev3.Route{Name: id + "/match/0/*", Action: single(id).Action})
		c := ofEnvoyGateway(id)
		if err := (note{Shares: []share{{fmt.Sprintf("models.p%d", i), 1}}}).write(c); err != nil {
			b.Fatal(err)
		}
		noted = append(noted, c)
	}
	for b.Loop() {
		b.StopTimer()
		in := request(b, routes, noted...)
		in = proto.CloneOf(in)
		b.StartTimer()
		translated(b, s, in)
	}
}
