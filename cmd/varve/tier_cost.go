package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"varve/broker/admin"
)

// priceTable is what a store charges. Everything is in US dollars.
type priceTable struct {
	Name            string  `json:"name"`
	StoragePerGBMon float64 `json:"storagePerGBMonth"` // GB is 10^9 bytes
	PutPer1000      float64 `json:"putPer1000"`
	ListPer1000     float64 `json:"listPer1000"`
	GetPer1000      float64 `json:"getPer1000"`
	HeadPer1000     float64 `json:"headPer1000"`
	DeletePer1000   float64 `json:"deletePer1000"`
	UploadPerGB     float64 `json:"uploadPerGB"`
	DownloadPerGB   float64 `json:"downloadPerGB"`
}

// s3Standard are AWS's list prices in us-east-1 for traffic inside the region.
var s3Standard = priceTable{Name: "S3 Standard, us-east-1, inside the region", StoragePerGBMon: 0.023,
	PutPer1000: 0.005, ListPer1000: 0.005, GetPer1000: 0.0004, HeadPer1000: 0.0004}

const (
	gigabyte = 1e9
	month    = 30 * 24 * time.Hour
	// minRateTime is the least time of counting from which a month can be told.
	minRateTime = time.Minute
)

func (p priceTable) requests(r admin.UsageRow) float64 {
	per1000 := map[string]float64{"put": p.PutPer1000, "list": p.ListPer1000, "get": p.GetPer1000, "head": p.HeadPer1000, "delete": p.DeletePer1000}[r.Verb]
	perGB := map[string]float64{"put": p.UploadPerGB, "get": p.DownloadPerGB}[r.Verb]
	return float64(r.Requests)/1000*per1000 + float64(r.Bytes)/gigabyte*perGB
}

func tierCostCommand() *command {
	return &command{
		name: "cost", args: "[--http HOST:PORT] [--prices FILE] [--print-prices] [--format text|json]", run: tierCost,
		summary: "Tell what the tier costs: storage by topic, requests and bytes by topic and cause since the broker started, in dollars, and what a month at this rate comes to. " +
			"Storage is the whole cluster's, requests are those of the broker that is asked.",
		notes:    []string{"prices\t--print-prices writes a price table as JSON; change it and name it with --prices."},
		examples: []string{"varve tier cost", "varve tier cost --print-prices > prices.json", "varve tier cost --prices prices.json --format json"},
	}
}

// costOf is one line of the answer.
type costOf struct {
	Topic         string  `json:"topic"`
	TopicID       string  `json:"topicId,omitempty"`
	Bytes         int64   `json:"bytes"`
	DeletingBytes int64   `json:"deletingBytes"`
	StorageMonth  float64 `json:"storagePerMonth"`
	Puts          int64   `json:"puts"`
	Gets          int64   `json:"gets"`
	OtherRequests int64   `json:"otherRequests"`
	BytesUp       int64   `json:"bytesUp"`
	BytesDown     int64   `json:"bytesDown"`
	Requests      float64 `json:"requests"`         // dollars since the broker started
	RequestsMonth float64 `json:"requestsPerMonth"` // dollars, at the rate since then; 0 when that is too short to tell
	PutsPerGB     float64 `json:"putsPerGB"`
	GetsPerGB     float64 `json:"getsPerGB"`
}

// costReport is what tier cost prints as JSON.
type costReport struct {
	Prices   priceTable `json:"prices"`
	SinceMs  int64      `json:"sinceMs"`
	UptimeMs int64      `json:"uptimeMs"`
	Topics   []costOf   `json:"topics"`
	Total    costOf     `json:"total"`
}

func tierCost(c *call) int {
	addr := c.flags.String("http", "127.0.0.1:9644", "`HOST:PORT` of the broker's varve.http.listen")
	file := c.flags.String("prices", "", "price table in JSON `FILE`")
	show := c.flags.Bool("print-prices", false, "print the price table and end")
	format := c.format()
	if _, code, done := c.parse(0, 0); done {
		return code
	}
	if c.badFormat(*format) {
		return c.wrong("--format is text or json")
	}
	prices, err := readPrices(*file)
	if err != nil {
		return c.wrong("--prices %s: %v", *file, err)
	}
	if *show {
		return c.printJSON(prices)
	}
	var use admin.TierUsage
	if err := getJSON(c.ctx, *addr, "/api/v1/tier/usage", &use); err != nil {
		return c.failed("%v", err)
	}
	rep := cost(use, prices)
	if *format == "json" {
		return c.printJSON(rep)
	}
	printCost(c, rep)
	return exitOK
}

func readPrices(file string) (priceTable, error) {
	if file == "" {
		return s3Standard, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return priceTable{}, err
	}
	defer f.Close()
	var p priceTable
	dec := json.NewDecoder(f)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return p, fmt.Errorf("not a price table as --print-prices writes it: %w", err)
	}
	for _, v := range []float64{p.StoragePerGBMon, p.PutPer1000, p.ListPer1000, p.GetPer1000, p.HeadPer1000, p.DeletePer1000, p.UploadPerGB, p.DownloadPerGB} {
		if v < 0 {
			return p, fmt.Errorf("a price is negative")
		}
	}
	return p, nil
}

func cost(use admin.TierUsage, prices priceTable) costReport {
	rep := costReport{Prices: prices, SinceMs: use.SinceMs, UptimeMs: use.UptimeMs, Topics: []costOf{}, Total: costOf{Topic: "all"}}
	up := time.Duration(use.UptimeMs) * time.Millisecond
	line := func(l costOf, rows []admin.UsageRow) {
		l.StorageMonth = float64(l.Bytes+l.DeletingBytes) / gigabyte * prices.StoragePerGBMon
		for _, r := range rows {
			l.count(r, prices)
		}
		l.rates(up)
		rep.Total.add(l)
		rep.Topics = append(rep.Topics, l)
	}
	for _, t := range use.Topics {
		line(costOf{Topic: cmp.Or(t.Topic, "(deleted)"), TopicID: t.TopicID, Bytes: t.Bytes, DeletingBytes: t.DeletingBytes}, t.Requests)
	}
	slices.SortStableFunc(rep.Topics, func(a, b costOf) int {
		return cmp.Compare(b.StorageMonth+b.RequestsMonth, a.StorageMonth+a.RequestsMonth)
	})
	line(costOf{Topic: "(no topic)"}, use.Other)
	rep.Total.rates(up)
	return rep
}

func (l *costOf) count(r admin.UsageRow, prices priceTable) {
	l.Requests += prices.requests(r)
	switch r.Verb {
	case "put":
		l.Puts, l.BytesUp = l.Puts+r.Requests, l.BytesUp+r.Bytes
	case "get":
		l.Gets, l.BytesDown = l.Gets+r.Requests, l.BytesDown+r.Bytes
	default:
		l.OtherRequests += r.Requests
	}
}

func (l *costOf) add(o costOf) {
	l.Bytes, l.DeletingBytes, l.StorageMonth = l.Bytes+o.Bytes, l.DeletingBytes+o.DeletingBytes, l.StorageMonth+o.StorageMonth
	l.Puts, l.Gets, l.OtherRequests = l.Puts+o.Puts, l.Gets+o.Gets, l.OtherRequests+o.OtherRequests
	l.BytesUp, l.BytesDown, l.Requests = l.BytesUp+o.BytesUp, l.BytesDown+o.BytesDown, l.Requests+o.Requests
}

func (l *costOf) rates(up time.Duration) {
	if up >= minRateTime {
		l.RequestsMonth = l.Requests * float64(month) / float64(up)
	}
	if l.BytesUp > 0 {
		l.PutsPerGB = float64(l.Puts) / (float64(l.BytesUp) / gigabyte)
	}
	if l.BytesDown > 0 {
		l.GetsPerGB = float64(l.Gets) / (float64(l.BytesDown) / gigabyte)
	}
}

func printCost(c *call, rep costReport) {
	fmt.Fprintf(c.stdout, "prices: %s\nrequests since %s\n\n", rep.Prices.Name, time.UnixMilli(rep.SinceMs).UTC().Format(time.RFC3339))
	t := newTable(c.stdout, "TOPIC", ">STORED", ">GOING", ">$/MONTH", ">PUTS", ">UP", ">GETS", ">DOWN", ">OTHER", ">$ SO FAR", ">$/MONTH AT THIS RATE")
	for _, l := range append(rep.Topics, rep.Total) {
		monthly := "-"
		if time.Duration(rep.UptimeMs)*time.Millisecond >= minRateTime {
			monthly = fmt.Sprintf("%.4f", l.RequestsMonth)
		}
		t.row(l.Topic, size(l.Bytes), size(l.DeletingBytes), fmt.Sprintf("%.4f", l.StorageMonth), count(l.Puts), size(l.BytesUp), count(l.Gets), size(l.BytesDown),
			count(l.OtherRequests), fmt.Sprintf("%.6f", l.Requests), monthly)
	}
	t.flush()
}
