package picker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"steelyard/xds/loads/follow"
)

var (
	descFollowing = prometheus.NewDesc("steelyard_picker_following",
		"1 while the loads of Steelyard are followed, 0 while the connection is lost.", nil, nil)
	descAge = prometheus.NewDesc("steelyard_picker_loads_age_seconds",
		"Age of the loads of a cluster; absent before the first. From 3 s on they are not used.",
		[]string{"envoy_cluster_name"}, nil)
	descEndpoints = prometheus.NewDesc("steelyard_picker_endpoints",
		"Endpoints of a cluster in its latest loads.", []string{"envoy_cluster_name"}, nil)
	descRoutes = prometheus.NewDesc("steelyard_picker_prefix_routes",
		"Learned routes of a cluster: a beginning of a prompt, and an endpoint that has answered it.",
		[]string{"envoy_cluster_name"}, nil)
	descEvicted = prometheus.NewDesc("steelyard_picker_prefix_routes_evicted_total",
		"Learned routes that made room for newer ones.", []string{"envoy_cluster_name"}, nil)
)

// states are the series that are read when they are scraped.
type states struct {
	loads    *follow.Follower
	clusters []string
}

// Describe and Collect make it a prometheus.Collector.
func (s *states) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, out) }

func (s *states) Collect(out chan<- prometheus.Metric) {
	following := 0.0
	if s.loads.Status() == nil {
		following = 1
	}
	out <- prometheus.MustNewConstMetric(descFollowing, prometheus.GaugeValue, following)
	for _, c := range s.clusters {
		if endpoints, age, known := s.loads.Pool(c).State(time.Now()); known {
			out <- prometheus.MustNewConstMetric(descAge, prometheus.GaugeValue, age.Seconds(), c)
			out <- prometheus.MustNewConstMetric(descEndpoints, prometheus.GaugeValue, float64(endpoints), c)
		}
		if routes, ok := s.loads.Pool(c).Routes(); ok {
			known := float64(routes.Own + routes.Others)
			out <- prometheus.MustNewConstMetric(descRoutes, prometheus.GaugeValue, known, c)
			out <- prometheus.MustNewConstMetric(descEvicted, prometheus.CounterValue, float64(routes.Evicted), c)
		}
	}
}
