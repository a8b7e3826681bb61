package main

import "testing"

func TestParseProducerPerf(t *testing.T) {
	out := `WARNING: something
100000 records sent, 5000.0 records/sec (4.88 MB/sec), 9.0 ms avg latency, 90.0 ms max latency.
524288 records sent, 262144.0 records/sec (256.00 MB/sec), 12.31 ms avg latency, 251.00 ms max latency, 8 ms 50th, 40 ms 95th, 80 ms 99th, 120 ms 99.9th.
`
	s, err := parseProducerPerf(out)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range (sample{"MB/s": 268.435456, "p50 ms": 8, "p99 ms": 80, "p99.9 ms": 120}) {
		if s[name] != want {
			t.Errorf("%s is %v, not %v", name, s[name], want)
		}
	}
	if _, err := parseProducerPerf("Exception"); err == nil {
		t.Error("an exception has a summary")
	}
}

func TestParseConsumerPerf(t *testing.T) {
	out := `[2026] WARN x
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-11-30 00:00:00:000, 2026-11-30 00:00:04:000, 512.0000, 128.0000, 524288, 131072.0000, 3000, 1000, 512.0000, 524288.0000
`
	s, err := parseConsumerPerf(out, 524288)
	if err != nil || s["MB/s"] != 512*1.048576 {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := parseConsumerPerf(out, 524289); err == nil {
		t.Error("too few records passed")
	}
}
