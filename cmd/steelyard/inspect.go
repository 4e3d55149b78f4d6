package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"steelyard/collectors/modelserver"
	"steelyard/internal/files"
)

// The bounds on a body to inspect, as generous as the largest that serve reads.
const (
	inspectLimit   = 256 << 20 // bytes
	inspectTimeout = 10 * time.Second
)

func inspectCommand() *cobra.Command {
	var engine string
	var custom modelserver.Custom
	var asJSON bool
	c := &cobra.Command{
		Use:   "inspect --engine ENGINE FILE|URL",
		Short: "Show the load that Steelyard reads from a model server's metrics",
		Long: `Show the load that Steelyard reads out of a model server's metrics page, and from
which series. A number that the page does not tell is unknown, not zero: it is
shown as "unknown", and as null with --json.`,
		Example: `  steelyard inspect --engine vllm http://10.0.0.1:8000/metrics
  curl -s http://10.0.0.1:8002/metrics | steelyard inspect --engine triton --json -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			reader, err := modelserver.NewReader(modelserver.Engine(engine), custom)
			if err != nil {
				return fmt.Errorf("--engine: %w", err)
			}
			body, err := fetch(cmd.Context(), args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			if asJSON {
				return inspectJSON(cmd.OutOrStdout(), reader, args[0], body)
			}
			return inspectTable(cmd.OutOrStdout(), reader, args[0], body)
		},
	}
	c.Flags().StringVar(&engine, "engine", "", "the model server: "+engineList()+" (required)")
	c.MarkFlagRequired("engine")
	c.Flags().StringVar(&custom.Queue, "queue", "", "with --engine custom: the gauge of requests waiting")
	c.Flags().StringVar(&custom.Running, "running", "", "with --engine custom: the gauge of requests executing")
	c.Flags().StringVar(&custom.Utilization, "utilization", "",
		"with --engine custom: the gauge of memory in use, 0..1")
	c.Flags().StringVar(&custom.Completions, "completions", "", "with --engine custom: the counter of requests "+
		"completed")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func engineList() string {
	names := make([]string, 0, 6)
	for _, e := range modelserver.Engines() {
		names = append(names, string(e))
	}
	return strings.Join(names, ", ")
}

func inspectJSON(w io.Writer, reader *modelserver.Reader, name string, body []byte) error {
	report, err := reader.Read(body)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(report)
}

func inspectTable(w io.Writer, reader *modelserver.Reader, name string, body []byte) error {
	fields, readErr := reader.Explain(body)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FIELD\tVALUE\tFROM")
	for _, f := range fields {
		value, from := "unknown", f.Problem
		if f.Value.Known {
			value = strconv.FormatFloat(f.Value.Value, 'g', -1, 64)
			from = fmt.Sprintf("%s of %d: %s", f.Combine, f.Samples, strings.Join(f.Series, ", "))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Field, value, from)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if readErr != nil {
		return fmt.Errorf("%s: %w", name, readErr)
	}
	return nil
}

// fetch reads a metrics page from a URL, a file, or standard input ("-").
func fetch(ctx context.Context, name string, stdin io.Reader) ([]byte, error) {
	switch {
	case name == "-":
		return readLimited(stdin, "standard input")
	case strings.HasPrefix(name, "http://"), strings.HasPrefix(name, "https://"):
		return fetchURL(ctx, name)
	}
	f, err := files.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readLimited(f, name)
}

func fetchURL(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s, not 200 OK", url, resp.Status)
	}
	return readLimited(resp.Body, url)
}

func readLimited(r io.Reader, name string) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, inspectLimit+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(body) > inspectLimit {
		return nil, fmt.Errorf("reading %s: more than %d MiB", name, inspectLimit>>20)
	}
	return body, nil
}
