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
		[]string{"cluster"}, nil)
	descEndpoints = prometheus.NewDesc("steelyard_picker_endpoints",
		"Endpoints of a cluster in its latest loads.", []string{"cluster"}, nil)
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
	}
}
