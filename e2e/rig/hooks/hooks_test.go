package hooks_test

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"

	"steelyard/e2e/rig/hooks"
	"steelyard/internal/extension"
)

func TestMessagesAreReadAsTheyWereWrittenAndCanBeReadByPeople(t *testing.T) {
	const pool = `{"kind":"InferencePool","metadata":{"name":"it's"}}`
	want := []proto.Message{
		&extension.PostClusterModifyRequest{Cluster: &clusterv3.Cluster{Name: "a"},
			PostClusterContext: &extension.PostClusterExtensionContext{BackendExtensionResources: []*extension.
				ExtensionResource{{UnstructuredBytes: []byte(pool)}, {UnstructuredBytes: []byte(pool)}}}},
		&extension.PostTranslateModifyRequest{Clusters: []*clusterv3.Cluster{{Name: "a"}}},
	}
	text, err := hooks.Write(want)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(text), "unstructuredBytes: "+pool+"\n") != 2 {
		t.Errorf("the pools cannot be read in\n%s", text)
	}
	got, err := hooks.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) || !proto.Equal(got[0], want[0]) || !proto.Equal(got[1], want[1]) {
		t.Errorf("%v was read of\n%s", got, text)
	}
}
