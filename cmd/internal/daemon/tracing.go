package daemon

import (
	"steelyard/cmd/internal/tracing"
	"steelyard/collectors/scrape"
	"steelyard/controlplane/config"
)

// newTracer makes what records the traces that cfg configures; nil for none.
func (d *Daemon) newTracer(cfg *config.Tracing) (*tracing.Recorder, error) {
	if cfg == nil {
		return nil, nil
	}
	return tracing.New(tracing.Options{Endpoint: cfg.Endpoint, Protocol: cfg.Protocol, SampleRatio: cfg.SampleRatio,
		Version: d.options.Version, Replica: d.replica, Log: d.options.Log})
}

func (d *Daemon) traceScrape(r scrape.Result) {
	failure := ""
	if r.Err != nil {
		failure = r.Err.Error()
	}
	d.tracing.Load().Scraped(r.Cluster, r.Address, r.At, r.Duration, failure)
}
