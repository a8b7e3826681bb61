package admin

import (
	"strconv"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Requests counts the requests of one API key since the start.
type Requests struct {
	API     string
	Errors  uint64
	Seconds float64
	Bounds  []float64 // seconds
	Buckets []uint64  // requests by Bounds, one more for those above all
}

// Lag says how many records of a partition a group has yet to commit.
type Lag struct {
	Group, Topic string
	Partition    int32
	Lag          int64
}

var (
	apiRequests = counter("kafka_network_requestmetrics_requests_total", "Requests by API key.", "request")
	apiErrors   = counter("kafka_network_requestmetrics_errors_total", "Requests whose answer has an error code, or whose connection was closed instead.", "request")
	apiSeconds  = prometheus.NewDesc("varve_request_seconds", "Time from a request's whole frame to its answer, what it waited for included.", []string{"request"}, nil)
	groupLag    = gauge("kafka_consumergroup_lag", "Records below the high watermark that a group has not committed, for groups coordinated here and partitions led here; of the first ten thousand.", "consumergroup", "topic", "partition")
)

func collectRequests(out chan<- prometheus.Metric, all []Requests) {
	for _, r := range all {
		var n uint64
		below := make(map[float64]uint64, len(r.Bounds))
		for i, in := range r.Buckets {
			n += in
			if i < len(r.Bounds) {
				below[r.Bounds[i]] = n
			}
		}
		out <- apiRequests.with(float64(n), r.API)
		out <- apiErrors.with(float64(r.Errors), r.API)
		out <- prometheus.MustNewConstHistogram(apiSeconds, n, r.Seconds, below, r.API)
	}
}

func collectLags(out chan<- prometheus.Metric, all []Lag) {
	for _, l := range all {
		if !utf8.ValidString(l.Group) { // clients send what they like; a label is text
			l.Group = strconv.Quote(l.Group)
		}
		out <- groupLag.with(float64(l.Lag), l.Group, l.Topic, strconv.Itoa(int(l.Partition)))
	}
}
