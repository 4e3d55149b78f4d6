package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"steelyard/cmd/internal/table"
	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery"
	"steelyard/sim"
)

// A deployment is a cluster of a configuration in the traffic of a scenario.
type deployment struct {
	config  *config.Config
	cluster *config.Cluster
	file    string // of the configuration
	notes   []note // what was taken from where
}

// A note says where a value comes from.
type note struct{ what, value, from string }

func (f *deployment) list(what, value, from string) {
	f.notes = append(f.notes, note{what, value, from})
}

// Where things come from, besides the configuration.
const (
	fromScenario = "the scenario"
	fromNowhere  = "nowhere: assumed"

	learned = "; Steelyard has to learn them, because capacity is not configured"
)

// newDeployment reads the configuration and finds the cluster in it; with one cluster
// its name may be left out.
func newDeployment(path, cluster string) (*deployment, error) {
	cfg, err := config.Load(path)
	if err != nil {
		return nil, err
	}
	f := &deployment{config: cfg, file: filepath.Base(path)}
	if f.cluster = cfg.Cluster(cluster); f.cluster != nil {
		return f, nil
	}
	if cluster == "" && len(cfg.Clusters) == 1 {
		f.cluster = &cfg.Clusters[0]
		return f, nil
	}
	var names []string
	for _, c := range cfg.Clusters {
		names = append(names, c.Name)
	}
	if cluster == "" {
		return nil, Usage{fmt.Errorf("%s has %d clusters: write --cluster with one of %s", path, len(names),
			strings.Join(names, ", "))}
	}
	return nil, Usage{fmt.Errorf("--cluster %s: %s has no such cluster: write one of %s", cluster, path,
		strings.Join(names, ", "))}
}

// name is the name of its row.
func (f *deployment) name() string { return f.file + ":" + f.cluster.Name }

// place replaces the scenario's pods with the endpoints. count is the number of endpoints
// where the configuration does not have it, 0 where it does.
func (f *deployment) place(s sim.Scenario, count int) (sim.Scenario, error) {
	endpoints, from, err := f.endpoints(count)
	if err != nil {
		return s, err
	}
	before := podsOf(s)
	if len(endpoints) > mostPods {
		return s, fmt.Errorf("cluster %s has %d endpoints: at most %d are simulated", f.cluster.Name, len(endpoints),
			mostPods)
	}
	f.list("endpoints", fmt.Sprint(len(endpoints)), from)
	var all []sim.PodGroup
	configured := 0
	for i, e := range endpoints {
		pod := before[i*len(before)/len(endpoints)]
		pod.Zone = e.Zone
		if e.Capacity > 0 {
			configured++
			if pod.Engine != nil {
				pod.Capacity = e.Capacity
			} else {
				pod.Slots = max(1, int(math.Round(e.Capacity)))
			}
		}
		all = append(all, pod)
	}
	f.noteSlots(configured, all)
	s.Pods = grouped(all)
	s.Events = slices.Clone(s.Events)
	for i := range s.Events {
		s.Events[i].Pods = stretched(s.Events[i].Pods, len(before), len(endpoints))
	}
	f.noteScenario(s)
	return s, nil
}

// endpoints are those that the configuration names, with the cluster's capacity
// where they have none of their own.
func (f *deployment) endpoints(count int) (endpoints []discovery.Endpoint, from string, err error) {
	e := f.cluster.Endpoints
	if !e.Remote() && count > 0 {
		return nil, "", Usage{fmt.Errorf("--pods: %s lists the endpoints of cluster %s: remove the flag", f.file,
			f.cluster.Name)}
	}
	switch {
	case e.Remote() && count == 0:
		by := "by DNS"
		if e.InKubernetes() {
			by = "in the Kubernetes API"
		}
		return nil, "", Usage{fmt.Errorf("cluster %s finds its endpoints %s, which is not queried here: write "+
			"--pods with their number", f.cluster.Name, by)}
	case e.Remote():
		endpoints, from = make([]discovery.Endpoint, count), "--pods"
	case e.File != "":
		endpoints, err = discovery.ReadFile(context.Background(), e.File)
		from = e.File
	default:
		endpoints, from = e.Listed(), f.file
	}
	if err == nil && len(endpoints) == 0 {
		err = errors.New("it has no endpoint")
	}
	if err != nil {
		return nil, "", fmt.Errorf("endpoints of cluster %s: %w", f.cluster.Name, err)
	}
	for i := range endpoints {
		if endpoints[i].Capacity == 0 {
			endpoints[i].Capacity = f.cluster.Capacity
		}
	}
	return endpoints, from, nil
}

func (f *deployment) noteSlots(configured int, all []sim.PodGroup) {
	of := func(p sim.PodGroup) float64 { return float64(p.Slots) }
	if all[0].Engine != nil {
		of = func(p sim.PodGroup) float64 { return p.Capacity }
	}
	least, most := of(all[0]), of(all[0])
	for _, p := range all {
		least, most = min(least, of(p)), max(most, of(p))
	}
	value := number(least)
	if least != most {
		value += " to " + number(most)
	}
	switch {
	case configured == len(all) && all[0].Engine != nil:
		f.list("capacity", value, f.file)
	case configured == len(all):
		f.list("slots", value, f.file+" (capacity)")
	case all[0].Engine != nil:
		f.list("slots", "derived by the engine", fromScenario+learned)
	case configured == 0:
		f.list("slots", value, fromScenario+learned)
	default:
		f.list("slots", value, fmt.Sprintf("%s for %d endpoints (capacity), %s for the others", f.file, configured,
			fromScenario))
	}
}

func (f *deployment) noteScenario(s sim.Scenario) {
	f.list("Envoys", fmt.Sprint(s.Envoys), fromScenario)
	if s.Rate > 0 {
		f.list("traffic", number(s.Rate)+" requests/s", fromScenario)
	} else {
		f.list("traffic", fmt.Sprintf("%s of what these endpoints can do, %s requests/s", number(s.Load),
			table.Number(s.ArrivalRate())), fromScenario)
	}
	if s.Prompts != nil {
		f.list("requests", "prompts of "+s.Prompts.Trace.Name, fromScenario)
	} else {
		f.list("service time", fmt.Sprintf("%s, mean %s", serviceKind(s.Service), config.DurationText(s.Service.Mean)),
			fromScenario)
	}
	if text := eventsText(s.Events); text != "" {
		f.list("events", text, fromScenario+", stretched over the endpoints")
	}
}

// podsOf lists the pods of a scenario one by one.
func podsOf(s sim.Scenario) (all []sim.PodGroup) {
	for _, group := range s.Pods {
		one := group
		one.Count = 1
		all = append(all, slices.Repeat([]sim.PodGroup{one}, group.Count)...)
	}
	return all
}

// grouped puts neighbours that are alike together.
func grouped(all []sim.PodGroup) (groups []sim.PodGroup) {
	for _, p := range all {
		if n := len(groups); n > 0 {
			last := groups[n-1]
			last.Count = p.Count
			if last == p {
				groups[n-1].Count++
				continue
			}
		}
		groups = append(groups, p)
	}
	return groups
}

// stretched are the endpoints that stand for some pods, where there are n
// endpoints for every m pods.
func stretched(pods []int, m, n int) (endpoints []int) {
	for _, pod := range pods {
		first := pod * n / m
		for e := first; e < max(first+1, (pod+1)*n/m); e++ {
			if !slices.Contains(endpoints, e) {
				endpoints = append(endpoints, e)
			}
		}
	}
	return endpoints
}

// explanation is the list of what was taken from where.
func (f *deployment) explanation() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is cluster %s of %s:\n", f.name(), f.cluster.Name, f.file)
	t := table.New("  WHAT", "VALUE", "FROM")
	for _, n := range f.notes {
		t.Add("  "+n.what, n.value, n.from)
	}
	t.Write(&b, 0)
	return b.String() + "\n"
}
