// Package apitest has objects of the API for tests of what is made of them.
package apitest

import (
	"fmt"
	"time"

	"steelyard/internal/api"
)

// Calm is a pool of eight endpoints in which nothing is wrong at that time, and three Envoys that follow it.
func Calm(at time.Time) (api.Cluster, []api.Client) {
	c := api.Cluster{Name: "llama", Engine: "vllm", Ready: true,
		Decision: api.Decision{At: api.At(at), ArrivalRate: api.Num(40), ArrivalRateSource: "issued"},
		Sources:  []api.SourceStatus{{Name: "scrape", State: api.SourceOK, LastSuccess: api.At(at)}}}
	for i := range 8 {
		c.Endpoints = append(c.Endpoints, api.Endpoint{Address: fmt.Sprintf("10.0.0.%d:8000", i+1), Engine: "vllm",
			Reason: "fill", LoadSource: "fused", Capacity: api.Num(8),
			Inputs: []api.Input{{Field: "queue", Value: api.Num(1), AgeSeconds: api.Num(0.1), State: "fresh"}}})
	}
	var clients []api.Client
	for i := range 3 {
		sub := api.Subscription{Resource: "llama", Cluster: "llama", Known: true, InSync: true, VersionSent: "7",
			VersionAcked: "7", LastSent: api.At(at), LastAck: api.At(at)}
		clients = append(clients, api.Client{Connection: api.Connection{
			Node:    api.Node{NodeID: fmt.Sprintf("edge-%d", i+1), Version: "1.40.0"},
			Address: "10.9.0.1:4000", Subscriptions: []api.Subscription{sub}}})
	}
	return c, clients
}
