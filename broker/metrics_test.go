package broker

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestLagAndRequestMetrics: what a group has yet to read, and how requests of each key went, stand in /metrics.
func TestLagAndRequestMetrics(t *testing.T) {
	b, _ := start(t, load(t, t.TempDir()))
	c := kafka(t, b, kgo.DefaultProduceTopic("m"), kgo.AllowAutoTopicCreation())
	for range 5 {
		if err := c.ProduceSync(t.Context(), kgo.StringRecord("v")).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "m", At: 2, LeaderEpoch: -1})
	if err := kadm.NewClient(c).CommitAllOffsets(t.Context(), "readers", offsets); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get("http://" + b.HTTPAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`kafka_consumergroup_lag{consumergroup="readers",partition="0",topic="m"} 3` + "\n",
		`kafka_network_requestmetrics_requests_total{request="Produce"} 5` + "\n",
		`kafka_network_requestmetrics_errors_total{request="Produce"} 0` + "\n",
		`varve_request_seconds_count{request="OffsetCommit"} 1` + "\n",
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("%q is missing", want)
		}
	}
}
