package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"varve/broker/admin"
)

// TestCost: storage by the month, requests by the piece and by the byte, and a month of them.
func TestCost(t *testing.T) {
	use := admin.TierUsage{UptimeMs: 30 * 60 * 1000, Topics: []admin.TopicUsage{
		{Topic: "a", TopicID: "A", Bytes: 2e12, DeletingBytes: 1e12, Requests: []admin.UsageRow{{Verb: "put", Requests: 4000, Bytes: 1e9}, {Verb: "get", Requests: 1000, Bytes: 2e9}}},
		{TopicID: "B", DeletingBytes: 1e9},
	}, Other: []admin.UsageRow{{Verb: "list", Requests: 1000}, {Verb: "delete", Requests: 7}}}
	p := priceTable{StoragePerGBMon: 0.02, PutPer1000: 0.005, GetPer1000: 0.0004, ListPer1000: 0.005, DownloadPerGB: 0.1}
	rep := cost(use, p)
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9*math.Max(1, want) {
			t.Errorf("%s: %v, not %v", what, got, want)
		}
	}
	a := rep.Topics[0]
	near("storage", a.StorageMonth, 60)
	near("requests", a.Requests, 4*0.005+0.0004+2*0.1)
	near("month", a.RequestsMonth, a.Requests*48*30)
	near("puts per GB", a.PutsPerGB, 4000)
	near("gets per GB", a.GetsPerGB, 500)
	if rep.Topics[1].Topic != "(deleted)" || rep.Topics[2].OtherRequests != 1007 {
		t.Errorf("%+v", rep.Topics)
	}
	near("total", rep.Total.Requests, a.Requests+0.005)
	near("total storage", rep.Total.StorageMonth, 60.02)
	use.UptimeMs = 1000
	if rep := cost(use, p); rep.Total.RequestsMonth != 0 {
		t.Error("a month told from a second")
	}
}

// TestTierCost asks a running node, with the table built in and with one of a file.
func TestTierCost(t *testing.T) {
	n, files := settledNode(t)
	table := ok(t, "tier", "cost", "--print-prices")
	path := filepath.Join(t.TempDir(), "prices.json")
	if err := os.WriteFile(path, []byte(strings.Replace(table, "0.005", "1000", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	var cheap, dear costReport
	for _, ask := range []struct {
		into *costReport
		args []string
	}{{&cheap, nil}, {&dear, []string{"--prices", path}}} {
		out := ok(t, append([]string{"tier", "cost", "--http", n.http, "--format", "json"}, ask.args...)...)
		if err := json.Unmarshal([]byte(out), ask.into); err != nil {
			t.Fatal(err)
		}
	}
	layers := cheap.Topics[0]
	if layers.Topic != "layers" || layers.Bytes == 0 || layers.Puts < int64(len(files)) || layers.BytesUp < layers.Bytes || layers.StorageMonth <= 0 || layers.Requests <= 0 {
		t.Errorf("%+v", layers)
	}
	if dear.Total.Requests < 1e4*cheap.Total.Requests {
		t.Errorf("%v dear, %v cheap", dear.Total.Requests, cheap.Total.Requests)
	}
	if out := ok(t, "tier", "cost", "--http", n.http); !strings.Contains(out, "layers") || !strings.Contains(out, "S3 Standard") {
		t.Error(out)
	}
	if err := os.WriteFile(path, []byte(`{"putPer1000":-1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--prices", path}, {"--prices", path + "x"}, {"--prices", files[0]}} {
		if code, _, errs := shell(t, append([]string{"tier", "cost"}, args...)...); code != exitUsage || !strings.Contains(errs, "--prices") {
			t.Errorf("%v: %d %s", args, code, errs)
		}
	}
}
