package proc

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
)

// TritonConfig is how to run a Triton Inference Server on the CPU.
type TritonConfig struct {
	Dir    string // an existing directory for the log
	Name   string // "triton" when empty; different for each Triton that runs at once
	Models string // model repository; the rig's (sleeper and batcher) when empty
	Args   []string
}

// A Triton is a running Triton whose models are loaded.
type Triton struct {
	*Process
	HTTP, GRPC, Metrics string // host:port each
}

// StartTriton runs a Triton and returns when all its models are loaded, after about two
// seconds. ctx bounds the start only. Triton needs Stop, not Kill, to remove
// the shared memory of its models; after Kill some of it stays in /dev/shm.
//
// The rig's models are `sleeper` (one instance, a queue without bound, sleeps
// DELAY_MS per request) and `batcher` (batches of up to four, at most 64
// waiting): POST /v2/models/sleeper/infer with
//
//	{"inputs":[{"name":"DELAY_MS","shape":[1],"datatype":"INT32","data":[200]}]}
//
// and shape [1,1] for batcher.
func StartTriton(ctx context.Context, c TritonConfig) (*Triton, error) {
	c.Name = cmp.Or(c.Name, "triton")
	if c.Models == "" {
		root, err := Root()
		if err != nil {
			return nil, err
		}
		c.Models = filepath.Join(root, "e2e", "rig", "proc", "triton-models")
	}
	addrs, err := FreeAddresses(3)
	if err != nil {
		return nil, err
	}
	t := &Triton{HTTP: addrs[0], GRPC: addrs[1], Metrics: addrs[2]}
	args := []string{
		"--id", c.Name,
		"--model-repository", c.Models,
		"--metrics-interval-ms", "200", "--allow-gpu-metrics", "false",
		// Python models share memory with the server under this name.
		"--backend-config", "python,shm-region-prefix-name=steelyard" + Port(t.HTTP),
	}
	for name, addr := range map[string]string{"http": t.HTTP, "grpc": t.GRPC, "metrics": t.Metrics} {
		args = append(args, "--"+name+"-address", "127.0.0.1", "--"+name+"-port", Port(addr))
	}
	ready := AnswersHTTP("http://" + t.HTTP + "/v2/health/ready")
	metrics := AnswersHTTP("http://" + t.Metrics + "/metrics") // served a moment later
	t.Process, err = StartReady(ctx,
		Spec{Program: ProgramTriton, Name: c.Name, Args: append(args, c.Args...), Dir: c.Dir},
		func(ctx context.Context) error { return errors.Join(ready(ctx), metrics(ctx)) })
	if err != nil {
		return nil, err
	}
	return t, nil
}
