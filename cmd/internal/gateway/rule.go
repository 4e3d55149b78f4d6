package gateway

import (
	"fmt"
	"regexp"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// A RuleID says which rule of which route it is.
type RuleID struct {
	Kind            string // httproute or grpcroute, as Envoy Gateway writes it
	Namespace, Name string
	Rule            int
}

// String is how the names of the rule's clusters and routes begin.
func (r RuleID) String() string {
	return fmt.Sprintf("%s/%s/%s/rule/%d", r.Kind, r.Namespace, r.Name, r.Rule)
}

// ruleName is the name of a cluster or route of a rule. A rule has one cluster, or one for each of its backends.
var ruleName = regexp.MustCompile(`^(httproute|grpcroute)/([^/]+)/([^/]+)/rule/([0-9]+)(/.*)?$`)

// ruleOf finds the rule in the name of a cluster or route.
func ruleOf(name string) (id RuleID, ok bool) {
	m := ruleName.FindStringSubmatch(name)
	if m == nil {
		return RuleID{}, false
	}
	n, err := strconv.Atoi(m[4])
	return RuleID{Kind: m[1], Namespace: m[2], Name: m[3], Rule: n}, err == nil
}

// A share is the part of a rule's requests that a cluster gets.
type share struct {
	cluster string // of Steelyard; empty for everything that Envoy Gateway's own cluster of the rule has
	weight  uint32
}

// noteKey is the key of the note in the metadata of a cluster.
const noteKey = "steelyard"

// note writes the shares of a rule into the metadata of its cluster.
func note(c *clusterv3.Cluster, shares []share) {
	var list []*structpb.Value
	for _, s := range shares {
		list = append(list, structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"cluster": structpb.NewStringValue(s.cluster), "weight": structpb.NewNumberValue(float64(s.weight)),
		}}))
	}
	if c.Metadata == nil {
		c.Metadata = &corev3.Metadata{}
	}
	if c.Metadata.FilterMetadata == nil {
		c.Metadata.FilterMetadata = map[string]*structpb.Struct{}
	}
	c.Metadata.FilterMetadata[noteKey] = &structpb.Struct{Fields: map[string]*structpb.Value{
		"shares": structpb.NewListValue(&structpb.ListValue{Values: list})}}
}

// noted reads what note wrote; nil if the cluster has none.
func noted(c *clusterv3.Cluster) (shares []share) {
	fields := c.GetMetadata().GetFilterMetadata()[noteKey].GetFields()
	for _, v := range fields["shares"].GetListValue().GetValues() {
		f := v.GetStructValue().GetFields()
		shares = append(shares, share{f["cluster"].GetStringValue(), uint32(f["weight"].GetNumberValue())})
	}
	return shares
}
