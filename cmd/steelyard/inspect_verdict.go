package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"steelyard/cmd/internal/console"
	"steelyard/collectors/modelserver"
)

// verdict says by what requests will be placed, which series are missing for more, and which version has them.
func verdict(engine modelserver.Engine, fields []modelserver.FieldSource) string {
	exporter := ""
	if version := modelserver.RecordedVersion(engine); version != "" {
		exporter = fmt.Sprintf(" (exported by %s %s)", engine, version)
	}
	unknown := map[modelserver.Field][]string{} // the series that were looked for
	counts := false
	for _, f := range fields {
		counts = counts || f.Field == modelserver.FieldPromptTokens && len(f.Series) > 0
		if !f.Value.Known {
			unknown[f.Field] = f.Series
		}
	}
	if !counts {
		return "verdict: placed by requests; this engine exports no counts of tokens"
	}
	var lacks []string
	for _, f := range []modelserver.Field{modelserver.FieldPromptTokens, modelserver.FieldGeneratedTokens,
		modelserver.FieldFirstTokens} {
		if series := unknown[f]; len(series) > 0 {
			lacks = append(lacks, strings.Join(series, " or "))
		}
	}
	if len(lacks) > 0 {
		return "verdict: placed by requests; placing them by work needs " + strings.Join(lacks, ", ") + exporter
	}
	if series := unknown[modelserver.FieldIterations]; len(series) > 0 {
		return "verdict: placed by work; without " + strings.Join(series, " or ") + exporter +
			", what an iteration takes is not learned"
	}
	return "verdict: placed by work"
}

// work prints what requests cost an engine that counts tokens, and what a running Steelyard has learned of it.
func (o *inspection) work(ctx context.Context, w io.Writer, reader *modelserver.Reader, body []byte) error {
	r, err := reader.Read(body)
	if err != nil || !(r.FirstTokens.Value > 0) || !r.PromptTokens.Known {
		return err
	}
	fmt.Fprintf(w, "work: a request has %.4g prompt tokens (%.4g of them from a prefix cache) and %.4g of output, in "+
		"the mean\n  since the server's start\n", r.PromptTokens.Value/r.FirstTokens.Value,
		r.CachedTokens.Value/r.FirstTokens.Value, r.GeneratedTokens.Value/r.FirstTokens.Value)
	const needs = "prompt tokens outstanding, prefill rate and tokens per byte are unknown: they take two readings\n" +
		"  and the Envoys' reports. "
	if o.config == "" {
		_, err = fmt.Fprintln(w, needs+"A running Steelyard has them: steelyard explain CLUSTER ENDPOINT, or "+
			"inspect --config")
		return err
	}
	x, err := o.explained(ctx)
	if errors.Is(err, console.ErrOptions) {
		return usageError{err}
	}
	if err != nil {
		_, err = fmt.Fprintln(w, needs+"No Steelyard answers with them:", err)
		return err
	}
	return x.PrintWork(console.Output{W: w, Width: console.WidthOf(w)})
}

// explained asks the running Steelyard about the endpoint.
func (o *inspection) explained(ctx context.Context) (*console.Explanation, error) {
	const patience = 3 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := console.NewClient(ctx, o.running)
	if err != nil {
		return nil, err
	}
	return c.Explain(ctx, o.cluster, o.address, "")
}
