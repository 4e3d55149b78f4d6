package extension

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"steelyard/e2e/rig/kube"
	"steelyard/e2e/rig/proc"
)

const (
	poolGroup = "inference.networking.k8s.io"
	poolName  = "models"
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	pools = schema.GroupVersionResource{Group: poolGroup, Version: "v1", Resource: "inferencepools"}
)

// writePool writes the InferencePool of the Pods, and its definition.
func writePool(ctx context.Context, api *kube.Server, port int) error {
	client, err := api.Dynamic()
	if err != nil {
		return err
	}
	if err := define(ctx, client); err != nil {
		return err
	}
	pool := &unstructured.Unstructured{Object: object{
		"apiVersion": poolGroup + "/v1", "kind": "InferencePool",
		"metadata": object{"name": poolName, "namespace": namespace},
		"spec": object{
			"selector":    object{"matchLabels": object{labelKey: labelValue}},
			"targetPorts": []any{object{"number": int64(port)}},
			// Gateways read this, the picker does not.
			"endpointPickerRef": object{"name": "epp", "port": object{"number": int64(9002)}},
		},
	}}
	_, err = client.Resource(pools).Namespace(namespace).Create(ctx, pool, meta.CreateOptions{})
	return err
}

// define installs the definition of InferencePools, and waits until the API has them.
func define(ctx context.Context, client dynamic.Interface) error {
	text, err := definition(ctx)
	if err != nil {
		return err
	}
	var made unstructured.Unstructured
	if err := yaml.Unmarshal(text, &made.Object); err != nil {
		return err
	}
	if _, err := client.Resource(definitions).Create(ctx, &made, meta.CreateOptions{}); err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := client.Resource(pools).List(ctx, meta.ListOptions{})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API has no InferencePools: %w", err)
		case <-tick.C:
		}
	}
}

// definition reads the definition of InferencePools in the module that e2e/bench/epp pins.
func definition(ctx context.Context) ([]byte, error) {
	root, err := proc.Root()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", "sigs.k8s.io/gateway-api-inference-extension")
	cmd.Dir = filepath.Join(root, "e2e", "bench", "epp")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go mod download in %s: %w\n%s", cmd.Dir, err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(module.Dir, "config", "crd", "bases", poolGroup+"_inferencepools.yaml"))
}
