package gateway

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"steelyard/internal/api"
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

// A Backend is one of a rule's.
type Backend struct {
	Pool            bool // an InferencePool
	Namespace, Name string
	Weight          uint32
	ByFilter        bool   // only a filter of the rule names it, so it gets no requests
	Generation      int64  // of its route: each change of that has another
	Filters         bool   // it has some of its own
	TLSPolicy       string // of a pool, a BackendTLSPolicy of its namespace; empty: none
}

// grpcRoute is the kind of rules whose pools are not served.
const grpcRoute = "grpcroute"

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
	Cluster string `json:"cluster,omitempty"` // of Steelyard; empty for all that Envoy Gateway's own cluster has
	Weight  uint32 `json:"weight"`
}

// A note is what PostClusterModify knows of a rule, for PostTranslateModify.
type note struct {
	Shares  []share           `json:"shares,omitempty"` // none if no pool is served
	Pools   []api.GatewayPool `json:"pools,omitempty"`
	Ignored []string          `json:"ignored,omitempty"` // what has no effect, and why
}

// noteKey is the key of the note in the metadata of a cluster, and in that.
const noteKey = "steelyard"

// write puts the note into the metadata of a cluster.
func (n note) write(c *clusterv3.Cluster) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if c.Metadata == nil {
		c.Metadata = &corev3.Metadata{}
	}
	if c.Metadata.FilterMetadata == nil {
		c.Metadata.FilterMetadata = map[string]*structpb.Struct{}
	}
	c.Metadata.FilterMetadata[noteKey] = &structpb.Struct{Fields: map[string]*structpb.Value{
		noteKey: structpb.NewStringValue(string(text))}}
	return nil
}

// readNote reads the note of a cluster; false if it has none.
func readNote(c *clusterv3.Cluster) (n note, ok bool) {
	text := c.GetMetadata().GetFilterMetadata()[noteKey].GetFields()[noteKey].GetStringValue()
	return n, json.Unmarshal([]byte(text), &n) == nil
}

// takeNote removes it.
func takeNote(c *clusterv3.Cluster) (n note, ok bool) {
	n, ok = readNote(c)
	delete(c.GetMetadata().GetFilterMetadata(), noteKey)
	return n, ok
}
