package main

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"varve/tests/s3server"
)

const (
	putsPerGB = "PUTs/GB"
	// upBytesMax is the most that a round settles.
	upBytesMax = 2 << 30
)

// upRow is the way up: what a log costs until it is in the tier only. Each round has a broker and an S3 server of its own.
func upRow() row {
	return row{name: "cold/upload", title: "one partition, produced, settled into an S3 server in segments of 256 MiB, and freed; requests by what they would be billed as", sides: []string{varve},
		bound: "The copies of each byte: out of the producer's socket, into the page cache, and into the store's socket; 16 MiB a part.", figures: []string{"MB/s", cpuPerGB, peakRSS, putsPerGB},
		alone: true, rounds: 3, start: func(_ context.Context, b *bench, _ string) (*lane, error) {
			return &lane{cold: true, round: b.up}, nil
		}}
}

func (b *bench) up(ctx context.Context) (out sample, err error) {
	t := &tiered{b: b, binary: b.varve, data: filepath.Join(b.data, "up")}
	store := filepath.Join(b.data, "up-s3")
	defer func() { t.close(); err = errors.Join(err, os.RemoveAll(t.data), os.RemoveAll(store)) }()
	if t.s3, err = s3server.StartProcess(ctx, s3server.Options{Dir: store}); err != nil {
		return nil, err
	}
	if t.coldLog, err = newColdLog(min(b.coldBytes, upBytesMax)); err != nil {
		return nil, err
	}
	if err := t.start(ctx, t.s3.URL); err != nil {
		return nil, err
	}
	if err := settleDisk(b.data); err != nil {
		return nil, err
	}
	used, err := measure(t.node.PID(), func() error { return t.fill(ctx, &server{side: varve, addr: t.node.Kafka}, b.small) })
	if err != nil {
		return nil, err
	}
	out = used.moved(int64(t.batches), int64(t.batches*t.records), t.bytes(1))
	puts, err := t.metrics("varve_store_requests_total", `verb="put"`)
	if err != nil {
		return nil, err
	}
	stored, err := t.metrics("varve_store_bytes_total", `verb="put"`)
	out[putsPerGB] = puts / (stored / 1e9)
	return out, err
}

// metrics adds up the broker's series of that name whose labels, as they are written, hold one; 0 when there are none.
func (t *tiered) metrics(name, label string) (sum float64, err error) {
	resp, err := http.Get("http://" + t.node.HTTP + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	for sc.Scan() {
		series, value, _ := strings.Cut(sc.Text(), " ")
		if has, labels, _ := strings.Cut(series, "{"); has == name && strings.Contains(labels, label) {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			sum += v
		}
	}
	return sum, sc.Err()
}
