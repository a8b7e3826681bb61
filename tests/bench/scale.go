package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
	"varve/tests/node"
)

const (
	scaleSeeks   = 200
	scaleFetches = 100
	// scaleSnapshotMs is the interval of metadata snapshots while producers watch for stalls.
	scaleSnapshotMs = 2000
	scalePaced      = 6 * time.Second
	scalePerSecond  = 500 // produce requests

	boundScale = "LIST: the SDK's decoding of a million keys of XML; the rest is one row after another through Pebble."
)

// The figures of the scale rows, in their order.
var scaleFigures = []string{
	"restore s", "restore us/segment", "restore CPU s", "restore peak RSS MB", "restore LISTs", "restored to serving s", "bucket snapshot s", "bucket snapshot MB",
	"start ms", "RSS MB", "idle CPU %",
	"GETs/seek", "most GETs/seek", "seek p50 ms", "metadata p50 ms", "metadata p99 ms", "fetch p50 ms", "GETs/fetch",
	"metadata snapshot s", "metadata snapshot MB", "produce p99 ms", "produce max ms", "produce p99 ms, snapshot", "produce max ms, snapshot",
	"verify s", "verify CPU s", "verify LISTs", "verify HEADs", "verify added RSS MB", "$ a month of storage", "$ of requests", "disk MB",
}

// scaleRows bring a lost cluster with many segments back from its bucket, and look at what a node with all of them can do.
func scaleRows() []row {
	mk := func(name, title string, parts, per int) row {
		return row{name: name, title: title + ", each 1 MiB, from an S3 double in the harness that makes their bytes when they are asked for; metadata ms: a time seek that fetches nothing, request to reply",
			bound: boundScale, sides: []string{varve}, figures: scaleFigures, alone: true, rounds: 1,
			start: func(_ context.Context, b *bench, _ string) (*lane, error) {
				if b.small {
					per = max(2, per/1000)
					parts = min(parts, 20)
				}
				s := &scaleRun{b: b, data: filepath.Join(b.data, "scale"), parts: parts, per: per, out: sample{}}
				return &lane{cold: true, round: s.round, close: s.close}, nil
			}}.
			want("GETs/seek", "", 2, false).want("most GETs/seek", "", 2, false).want("metadata p50 ms", "", 1, false).want("metadata p99 ms", "", 1, false)
	}
	return []row{
		mk("scale/100k", "100,000 segments in one partition", 1, 100_000),
		mk("scale/1M", "1,000,000 segments in 1,000 partitions", 1000, 1000),
	}
}

// scaleRun is one round of a scale row.
type scaleRun struct {
	b          *bench
	data       string
	parts, per int
	out        sample

	h   *history
	d   *double
	n   *node.Node
	rnd *rand.Rand
}

func (s *scaleRun) close() {
	if s.n != nil {
		s.n.Kill()
	}
	if s.d != nil {
		s.d.close()
	}
	_ = os.RemoveAll(s.data)
}

func (s *scaleRun) round(ctx context.Context) (sample, error) {
	s.rnd = rand.New(rand.NewPCG(5, 6))
	var err error
	if s.h, err = newHistory(s.parts, s.per); err != nil {
		return nil, err
	}
	if s.d, err = newDouble(s.h); err != nil {
		return nil, err
	}
	if err := s.h.write(s.d.put); err != nil {
		return nil, err
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{{"restore", s.restore}, {"restart", s.restart}, {"seeks", s.seeks}, {"fetches", s.fetches}, {"stalls", s.stalls}, {"verify", s.verify}, {"cost", s.cost}} {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			said := s.n.Stderr()
			return nil, fmt.Errorf("%s: %w\n%s", step.name, err, said[max(0, len(said)-4000):])
		}
		fmt.Fprintf(os.Stderr, "scale: %s took %.1f s\n", step.name, time.Since(began).Seconds())
	}
	return s.out, nil
}

func (s *scaleRun) start(ctx context.Context, sets ...string) (err error) {
	args := []string{"--config", propertiesFile()}
	for _, set := range append([]string{"listeners=PLAINTEXT://127.0.0.1:0", "varve.http.listen=127.0.0.1:0", "varve.tier.url=" + s.d.url(),
		"varve.topic.remote.storage.enable=false", "varve.tier.scrub.interval.ms=-1"}, sets...) {
		args = append(args, "--set", set)
	}
	s.n, err = node.Start(ctx, node.Options{Binary: s.b.varve, Data: s.data, Args: args,
		Env: []string{"AWS_ACCESS_KEY_ID=scale", "AWS_SECRET_ACCESS_KEY=scale", "AWS_SESSION_TOKEN=", "AWS_EC2_METADATA_DISABLED=true"}})
	return err
}

// tool runs a command of the binary and reads its JSON.
func (s *scaleRun) tool(ctx context.Context, into any, args ...string) error {
	cmd := exec.CommandContext(ctx, s.b.varve, append(args, "--http", s.n.HTTP, "--format", "json")...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("varve %s: %w: %s %.2000s", strings.Join(args, " "), err, exit.Stderr, out)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(out, into)
}

// metric reads one series of the broker's metrics; 0 when there is none.
func (s *scaleRun) metric(series string) (float64, error) {
	resp, err := http.Get("http://" + s.n.HTTP + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	for sc.Scan() {
		if rest, ok := strings.CutPrefix(sc.Text(), series+" "); ok {
			return strconv.ParseFloat(rest, 64)
		}
	}
	return 0, sc.Err()
}

func (s *scaleRun) restore(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return err
	}
	lists := s.d.count("LIST")
	var rep struct {
		Segments, Bytes int64
		MissingObjects  int
		UnlistedObjects int
		Findings        []string
	}
	used, err := measure(s.n.PID(), func() error { return s.tool(ctx, &rep, "tier", "restore", "--from", s.d.url()) })
	if err != nil {
		return err
	}
	segments := int64(s.parts * s.per)
	if rep.Segments != segments || rep.MissingObjects+rep.UnlistedObjects+len(rep.Findings) > 0 {
		return fmt.Errorf("%d segments came back, not %d: %+v", rep.Segments, segments, rep)
	}
	s.out["restore s"], s.out["restore CPU s"] = used.wall.Seconds(), used.cpu.Seconds()
	s.out["restore us/segment"] = used.wall.Seconds() * 1e6 / float64(segments)
	s.out["restore peak RSS MB"] = float64(used.peak) / 1e6
	s.out["restore LISTs"] = float64(s.d.count("LIST") - lists)
	if s.out["bucket snapshot s"], err = s.metric("varve_tier_snapshot_seconds"); err != nil {
		return err
	}
	size, err := s.metric("varve_tier_snapshot_bytes")
	s.out["bucket snapshot MB"] = size / 1e6
	if err != nil {
		return err
	}
	began := time.Now()
	err = awaitServing(ctx, s.n.Kafka, map[string]int{scaleTopic: s.parts})
	s.out["restored to serving s"] = time.Since(began).Seconds()
	return err
}

func (s *scaleRun) restart(ctx context.Context) error {
	stop, cancel := context.WithTimeout(ctx, terminateWait)
	defer cancel()
	if code, err := s.n.Terminate(stop); err != nil || code != 0 {
		return fmt.Errorf("ended with %d: %w", code, err)
	}
	began := time.Now()
	if err := s.start(ctx, "metadata.log.max.snapshot.interval.ms="+strconv.Itoa(scaleSnapshotMs)); err != nil {
		return err
	}
	if err := awaitServing(ctx, s.n.Kafka, map[string]int{scaleTopic: s.parts}); err != nil {
		return err
	}
	s.out["start ms"] = time.Since(began).Seconds() * 1000
	if err := pause(ctx, min(quietTime, s.b.idle)); err != nil {
		return err
	}
	percent, _, err := watch(s.n.PID(), func() error { return pause(ctx, s.b.idle) })
	rss, _, rerr := residentOf(s.n.PID())
	s.out["idle CPU %"], s.out["RSS MB"] = percent, float64(rss)/1e6
	return errors.Join(err, rerr)
}

// seeks asks for offsets by time, each of another place, and each twice: the second one finds all that it needs in memory.
func (s *scaleRun) seeks(context.Context) error {
	c, err := dial(s.n.Kafka)
	if err != nil {
		return err
	}
	defer c.Close()
	var cold, warm []time.Duration
	most := int64(0)
	before := s.d.count("GET segment")
	for range scaleSeeks {
		p, at := int32(s.rnd.IntN(s.parts)), s.rnd.Int64N(int64(s.per)*segmentMs)
		had := s.d.count("GET segment")
		took, err := seek(c, p, scaleFirstMs+at, scaleFirstOffset+at)
		if err != nil {
			return err
		}
		gets := s.d.count("GET segment") - had
		again, err := seek(c, p, scaleFirstMs+at, scaleFirstOffset+at)
		if err != nil {
			return err
		}
		if s.d.count("GET segment")-had == gets {
			warm = append(warm, again)
		}
		cold, most = append(cold, took), max(most, gets)
	}
	if len(warm) < scaleSeeks/2 {
		return fmt.Errorf("only %d of %d repeated seeks fetched nothing", len(warm), scaleSeeks)
	}
	s.out["GETs/seek"] = float64(s.d.count("GET segment")-before) / scaleSeeks
	s.out["most GETs/seek"] = float64(most)
	s.out["seek p50 ms"] = quantile(sortedCopy(cold), 0.5).Seconds() * 1000
	s.out.latencies("metadata ", warm)
	return nil
}

// seek asks for the first record at or after a time.
func seek(c *conn, partition int32, ms, want int64) (time.Duration, error) {
	l := kmsg.NewPtrListOffsetsRequest()
	l.Version, l.ReplicaID = 7, -1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, ms, -1
	l.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: scaleTopic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	began := time.Now()
	resp, err := c.call(l)
	if err != nil {
		return 0, err
	}
	took := time.Since(began)
	got := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	if got.ErrorCode != 0 || got.Offset != want {
		return 0, fmt.Errorf("at %d: offset %d, not %d: %w", ms, got.Offset, want, protocol.ErrorCode(got.ErrorCode))
	}
	return took, nil
}

// fetches reads a little from places where nobody has been.
func (s *scaleRun) fetches(context.Context) error {
	c, err := dial(s.n.Kafka)
	if err != nil {
		return err
	}
	defer c.Close()
	var all []time.Duration
	before := s.d.count("GET segment")
	offsets := make([]int64, s.parts)
	for range scaleFetches {
		for i := range offsets {
			offsets[i] = s.h.end()
		}
		p := s.rnd.IntN(s.parts)
		offsets[p] = scaleFirstOffset + s.rnd.Int64N(int64(s.per)*scaleRecords)
		began := time.Now()
		for got := 0; got == 0; {
			if _, err := c.Write(fetchRequest(scaleTopic, offsets, 64<<10, 500)); err != nil {
				return err
			}
			if err := c.fetched(func(_ int32, size int) error { got += size; return nil }); err != nil {
				return err
			}
			if time.Since(began) > time.Minute {
				return fmt.Errorf("nothing at offset %d of partition %d", offsets[p], p)
			}
		}
		all = append(all, time.Since(began))
	}
	s.out["fetch p50 ms"] = quantile(sortedCopy(all), 0.5).Seconds() * 1000
	s.out["GETs/fetch"] = float64(s.d.count("GET segment")-before) / scaleFetches
	return nil
}

// stalls produces to a local topic while the node writes a snapshot of its metadata, and while it does not.
func (s *scaleRun) stalls(ctx context.Context) error {
	srv := &server{side: varve, addr: s.n.Kafka, data: s.data, logs: filepath.Join(s.data, "log"), pid: s.n.PID()}
	p := pace{load: load{shape: shape16K, partitions: 16, producers: 4, acks: -1}, perSecond: scalePerSecond, lasting: min(scalePaced, s.b.paced)}
	snap := func() (float64, error) {
		return s.metric(`varve_events_total{event="metastore_snapshotted",level="DEBUG"}`)
	}
	for _, during := range []string{", snapshot", ""} {
		had, err := snap()
		if err != nil {
			return err
		}
		if during != "" { // something new to be in a snapshot
			if err := createTopic(ctx, srv, "hot", p.partitions, nil); err != nil {
				return err
			}
		}
		out, err := runPaced(srv, "hot", p)
		if err != nil {
			return err
		}
		s.out["produce p99 ms"+during], s.out["produce max ms"+during] = out["produce p99 ms"], out["produce max ms"]
		now, err := snap()
		if err != nil {
			return err
		}
		if during != "" && now == had && !s.b.small {
			return errors.New("there was no snapshot of the metadata meanwhile")
		}
	}
	size, err := s.metric("varve_metadata_snapshot_bytes")
	if err != nil {
		return err
	}
	s.out["metadata snapshot MB"] = size / 1e6
	s.out["metadata snapshot s"], err = s.metric("varve_metadata_snapshot_seconds")
	return err
}

func (s *scaleRun) verify(ctx context.Context) error {
	lists, heads := s.d.count("LIST"), s.d.count("HEAD")
	had, _, err := residentOf(s.n.PID()) // what was read before is still in memory
	if err != nil {
		return err
	}
	var rep struct{ Objects, Segments, Findings, Unchecked int64 }
	used, err := measure(s.n.PID(), func() error { return s.tool(ctx, &rep, "tier", "verify", "--level", "list") })
	if err != nil {
		return err
	}
	if n := int64(s.parts * s.per); rep.Objects != n || rep.Segments != n || rep.Findings+rep.Unchecked > 0 {
		return fmt.Errorf("not %d objects: %+v", n, rep)
	}
	s.out["verify CPU s"], s.out["verify HEADs"] = used.cpu.Seconds(), float64(s.d.count("HEAD")-heads)
	s.out["verify s"], s.out["verify LISTs"], s.out["verify added RSS MB"] = used.wall.Seconds(), float64(s.d.count("LIST")-lists), float64(used.peak-had)/1e6
	return nil
}

// cost is what all that came to, the restore not included: requests are counted since the last start.
func (s *scaleRun) cost(ctx context.Context) error {
	var rep struct {
		Total struct{ StoragePerMonth, Requests float64 }
	}
	err := s.tool(ctx, &rep, "tier", "cost")
	s.out["$ a month of storage"], s.out["$ of requests"] = rep.Total.StoragePerMonth, rep.Total.Requests
	if err != nil {
		return err
	}
	var bytes int64
	err = filepath.WalkDir(s.data, func(_ string, e os.DirEntry, err error) error {
		if info, ierr := e.Info(); err == nil && ierr == nil && e.Type().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	s.out["disk MB"] = float64(bytes) / 1e6
	return err
}
