package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"varve/tests/kafka"
)

const (
	clientRecordBytes = 1024
	clientPartitions  = 16
	clientTimeMax     = 5 * time.Minute
	boundClient       = "The client: it, not the broker, has the machine's two cores. What counts is the broker's CPU."
)

// clientRow measures the broker while a client that people use moves -bytes of 1 KiB records.
func clientRow(name, title string, figures []string, produce bool, use func(ctx context.Context, s *server, topic string, records int) (sample, error)) row {
	return row{name: name, title: title, bound: boundClient, sides: []string{varve, kafkaSide}, figures: figures,
		start: func(ctx context.Context, b *bench, side string) (*lane, error) {
			if err := kafka.Install(ctx); err != nil {
				return nil, err
			}
			s, hot, err := b.hot(ctx, side, clientPartitions)
			if err != nil {
				return nil, err
			}
			return &lane{round: func(ctx context.Context) (sample, error) {
				ctx, cancel := context.WithTimeout(ctx, clientTimeMax)
				defer cancel()
				topic, records := hot.topic, hot.batches*hot.partitions*shape1K.records
				if produce {
					if topic, err = b.newTopic(ctx, s, clientPartitions, nil); err != nil {
						return nil, err
					}
					records = int(b.bytes / clientRecordBytes)
					if err := settleDisk(b.data); err != nil {
						return nil, err
					}
				}
				var said sample
				used, err := measure(s.pid, func() (err error) {
					said, err = use(ctx, s, topic, records)
					return err
				})
				if err != nil {
					return nil, err
				}
				out := used.moved(1, int64(records), int64(records)*clientRecordBytes)
				for name, v := range said {
					out[name] = v
				}
				if produce {
					err = dropTopic(ctx, s, topic)
				}
				return out, err
			}}, nil
		}}
}

func perfTool(ctx context.Context, class string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "java", append([]string{"-Xmx512m", "-XX:+UseG1GC", "-Dlog4j2.configurationFile=" + kafka.Log4j(),
		"-cp", kafka.Jars(), "org.apache.kafka.tools." + class}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", class, err, out)
	}
	return string(out), nil
}

func producerPerf(ctx context.Context, s *server, topic string, records int) (sample, error) {
	out, err := perfTool(ctx, "ProducerPerformance", "--bootstrap-server", s.addr, "--topic", topic, "--num-records", strconv.Itoa(records),
		"--record-size", strconv.Itoa(clientRecordBytes), "--throughput", "-1", "--command-property", "acks=all")
	if err != nil {
		return nil, err
	}
	return parseProducerPerf(out)
}

var producerPerfLine = regexp.MustCompile(`(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, ([\d.]+) ms max latency, (\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99.9th`)

// parseProducerPerf reads the tool's last line; its MB are MiB.
func parseProducerPerf(out string) (sample, error) {
	all := producerPerfLine.FindAllStringSubmatch(out, -1)
	if len(all) == 0 {
		return nil, fmt.Errorf("no summary in %q", out)
	}
	var v [10]float64
	for i, f := range all[len(all)-1][1:] {
		n, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return nil, err
		}
		v[i+1] = n
	}
	return sample{"MB/s": v[3] * (1 << 20) / 1e6, "p50 ms": v[6], "p99 ms": v[8], "p99.9 ms": v[9]}, nil
}

func consumerPerf(ctx context.Context, s *server, topic string, records int) (sample, error) {
	out, err := perfTool(ctx, "ConsumerPerformance", "--bootstrap-server", s.addr, "--topic", topic, "--num-records", strconv.Itoa(records),
		"--timeout", "60000")
	if err != nil {
		return nil, err
	}
	return parseConsumerPerf(out, records)
}

// parseConsumerPerf reads the tool's CSV; its MB are MiB. The time includes joining a group.
func parseConsumerPerf(out string, records int) (sample, error) {
	at := strings.Index(out, "start.time")
	if at < 0 {
		return nil, fmt.Errorf("no table in %q", out)
	}
	r := csv.NewReader(strings.NewReader(out[at:]))
	r.TrimLeadingSpace = true
	lines, err := r.ReadAll()
	if err != nil || len(lines) < 2 {
		return nil, fmt.Errorf("no line in %q: %w", out, err)
	}
	field := map[string]float64{}
	for i, name := range lines[0] {
		if n, err := strconv.ParseFloat(lines[len(lines)-1][i], 64); err == nil {
			field[name] = n
		}
	}
	if got := int(field["data.consumed.in.nMsg"]); got < records {
		return nil, fmt.Errorf("%d records of %d were consumed", got, records)
	}
	return sample{"MB/s": field["fetch.MB.sec"] * (1 << 20) / 1e6}, nil
}

// kgoProduce sends records as fast as the client takes them, with its defaults but for compression.
func kgoProduce(ctx context.Context, s *server, topic string, records int) (sample, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.DefaultProduceTopic(topic), kgo.MaxBufferedRecords(1<<16),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	value := make([]byte, clientRecordBytes)
	failed := make(chan error, 1)
	for range records {
		c.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := c.Flush(ctx); err != nil {
		return nil, err
	}
	select {
	case err := <-failed:
		return nil, err
	default:
		return nil, nil
	}
}

func kgoConsume(ctx context.Context, s *server, topic string, records int) (sample, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.ConsumeTopics(topic))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for had := 0; had < records; {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			return nil, err
		}
		had += f.NumRecords()
	}
	return nil, nil
}
