package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"os"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	maxBufferedInputBytes = 64 << 20 // read and not yet acknowledged
	defaultMessageBytes   = 1_048_588
	maxMessageBytes       = 100 << 20 // socket.request.max.bytes
	interruptFlushMs      = 10_000    // what was read before Ctrl-C is still sent
)

func produceCommand() *command {
	return &command{
		name: "produce",
		args: "TOPIC [--file FILE] [--format text|json|hex|base64|raw] [--key-separator SEP] [FLAG]...",
		summary: "Write records to a topic, from a file or the standard input, one a line. A line ends with \\n or \\r\\n. " +
			"It exits with 0 only if the broker has acknowledged every record; what was read before Ctrl-C is still written.",
		notes: []string{
			"text\tthe line is the value; with --key-separator what stands before its first occurrence is the key",
			"hex, base64\tthe same, key and value in that notation",
			"json\t" + `{"key":"k","value":"v","headers":[{"key":"h","value":"x"}],"timestamp":1767225600000,"partition":0}`,
			"\tOnly the value must be there; null is a tombstone. A value that is an object, array, number or truth value stands",
			"\tfor its JSON text. keyBase64 and valueBase64 carry bytes that are no text. It is what consume --format json writes.",
			"raw\tthe whole input is one value",
		},
		examples: []string{
			"printf 'one\\ntwo\\n' | varve produce hello",
			"printf 'k1:v1\\nk2:v2\\n' | varve produce hello --key-separator : --header source=shell",
			`echo '{"key":"k1","value":{"n":1},"headers":[{"key":"h","value":"x"}]}' | varve produce hello --format json`,
			"varve produce hello --key k1 --tombstone",
			"varve produce pictures --file cat.jpg --format raw --key cat --max-message-bytes 10000000",
			"varve consume hello --from-beginning --until-end --format json | varve produce copy --format json",
		},
		run: runProduce,
	}
}

// produceFlags are the flags of produce, checked by resolve.
type produceFlags struct {
	client                                                       *clientFlags
	topic, file, format, separator, nullMarker, key, acks, codec *string
	timestamp, report                                            *string
	partition, maxBytes                                          *int
	tombstone, create                                            *bool
	headers                                                      repeated
	hasKey                                                       bool
	at                                                           time.Time
	records                                                      recordCodec
	opts                                                         []kgo.Opt
}

func addProduceFlags(c *call) *produceFlags {
	f := &produceFlags{
		client:     addClientFlags(c.flags),
		topic:      c.flags.String("topic", "", "`NAME` of the topic, if it does not stand by itself"),
		file:       c.flags.String("file", "", "`FILE` to read instead of the standard input"),
		format:     c.flags.String("format", formatText, "`FORMAT` of the input: text, json, hex, base64 or raw"),
		separator:  c.flags.String("key-separator", "", "`SEP` between key and value in a line; \\t is a tab; without it a line is all value"),
		nullMarker: c.flags.String("null-marker", "", "`TEXT` that stands for null as a key or value in a line"),
		key:        c.flags.String("key", "", "`KEY` of records for which the input names none"),
		acks:       c.flags.String("acks", "all", "whose acknowledgement to wait for: all, 1 (the leader) or 0 (nobody); as `ACKS`"),
		codec:      c.flags.String("compression-codec", "none", "`CODEC` of batches: none, gzip, snappy, lz4 or zstd"),
		timestamp:  c.flags.String("timestamp", "", "`TIME` of the records: RFC 3339, milliseconds since 1970, or how long ago; by default now"),
		report:     c.flags.String("report", "text", "how the result is told, as `FORMAT`: text, json or none"),
		partition:  c.flags.Int("partition", -1, "partition `N` of records for which the input names none; -1 goes by key as Kafka does"),
		maxBytes:   c.flags.Int("max-message-bytes", defaultMessageBytes, "largest record and batch, in bytes `N`"),
		tombstone:  c.flags.Bool("tombstone", false, "write one record with the key of --key and a null value; no input is read"),
		create:     c.flags.Bool("create", false, "let the broker create the topic if it is not there"),
	}
	c.flags.StringVar(f.codec, "compression", "none", "`CODEC`, short for --compression-codec")
	c.flags.StringVar(f.acks, "request-required-acks", "all", "`ACKS`, Kafka's name for --acks")
	c.flags.Var(&f.headers, "header", "a header of every record, as `KEY=VALUE`; may be repeated")
	return f
}

// resolve checks what was typed. It returns a text when something is wrong.
func (f *produceFlags) resolve(c *call) string {
	c.flags.Visit(func(set *flag.Flag) { f.hasKey = f.hasKey || set.Name == "key" })
	f.records = recordCodec{format: *f.format, separator: unescape(*f.separator), keyed: *f.separator != "", nullMarker: *f.nullMarker}
	switch {
	case !slices.Contains(recordFormats, *f.format):
		return "--format is one of " + strings.Join(recordFormats, ", ")
	case f.records.keyed && (*f.format == formatJSON || *f.format == formatRaw):
		return "--key-separator is for lines, which --format " + *f.format + " has not"
	case *f.tombstone && !f.hasKey:
		return "--tombstone needs the --key that it is for"
	case *f.tombstone && *f.file != "":
		return "--tombstone reads no --file"
	case *f.partition < -1 || *f.partition > 1<<31-1:
		return "--partition is -1 or the number of a partition"
	case *f.maxBytes < 1 || *f.maxBytes > maxMessageBytes:
		return "--max-message-bytes is between 1 and 104857600"
	case !slices.Contains([]string{"text", "json", "none"}, *f.report):
		return "--report is text, json or none"
	case *f.timestamp != "":
		var err error
		if f.at, err = parseTime(*f.timestamp, time.Now()); err != nil {
			return "--timestamp " + err.Error()
		}
	}
	for _, h := range f.headers {
		if !strings.Contains(h, "=") {
			return "--header " + h + " is not of the form KEY=VALUE"
		}
	}
	return f.clientOptions()
}

func (f *produceFlags) clientOptions() string {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, known := codecs[*f.codec]
	if !known {
		return "--compression-codec is one of none, gzip, snappy, lz4, zstd"
	}
	f.opts = []kgo.Opt{
		kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(partitioner{}), kgo.MaxBufferedBytes(max(maxBufferedInputBytes, *f.maxBytes)),
		kgo.ProducerBatchMaxBytes(int32(*f.maxBytes)),
	}
	switch *f.acks {
	case "all", "-1":
		f.opts = append(f.opts, kgo.RequiredAcks(kgo.AllISRAcks()))
	case "1":
		f.opts = append(f.opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		f.opts = append(f.opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return "--acks is all, 1 or 0"
	}
	if *f.create {
		f.opts = append(f.opts, kgo.AllowAutoTopicCreation())
	}
	return ""
}

// partitioner is Kafka's, but for records that say where they go.
type partitioner struct{}

// ForTopic implements kgo.Partitioner.
func (partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return topicPartitioner{kgo.StickyKeyPartitioner(nil).ForTopic(topic)}
}

type topicPartitioner struct{ byKey kgo.TopicPartitioner }

// RequiresConsistency implements kgo.TopicPartitioner.
func (t topicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || t.byKey.RequiresConsistency(r)
}

// Partition implements kgo.TopicPartitioner.
func (t topicPartitioner) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return t.byKey.Partition(r, n)
}

// OnNewBatch implements kgo.TopicPartitionerOnNewBatch.
func (t topicPartitioner) OnNewBatch() {
	if sticky, ok := t.byKey.(kgo.TopicPartitionerOnNewBatch); ok {
		sticky.OnNewBatch()
	}
}

func runProduce(c *call) int {
	f := addProduceFlags(c)
	args, code, done := c.parse(0, 1)
	if done {
		return code
	}
	topic, wrong := oneName(args, *f.topic, "topic")
	if wrong == "" {
		wrong = f.resolve(c)
	}
	if wrong != "" {
		return c.wrong("%s", wrong)
	}
	ctx, stop := signal.NotifyContext(c.ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	input, closeInput, err := c.openInput(ctx, *f.file)
	if err != nil {
		return c.failed("%v", err)
	}
	defer closeInput()
	client, code := c.connect(ctx, f.client, append(f.opts, kgo.WithHooks(&dialReporter{c: c}))...)
	if client == nil {
		return code
	}
	defer client.Close()
	if code := c.checkTarget(ctx, client, f, topic); code != exitOK {
		return code
	}
	return newProduction(c, f, client, topic).run(ctx, stop, newRecordReader(input, f.records, *f.maxBytes))
}

// oneName is a name that may stand by itself or be given with Kafka's flag.
func oneName(args []string, flagged, what string) (name, wrong string) {
	switch {
	case len(args) == 1 && flagged != "":
		return "", "the " + what + " is named twice"
	case len(args) == 1:
		return args[0], ""
	case flagged == "":
		return "", "something is missing: the " + what
	}
	return flagged, ""
}

// checkTarget tells of a topic or partition that is not there before anything is read.
func (c *call) checkTarget(ctx context.Context, client *kgo.Client, f *produceFlags, topic string) int {
	if *f.create {
		return exitOK
	}
	ctx, cancel := context.WithTimeout(ctx, *f.client.timeout)
	defer cancel()
	details, code := c.knownTopics(ctx, kadm.NewClient(client), topic)
	if code != exitOK {
		return code
	}
	if n := len(details[topic].Partitions); *f.partition >= n {
		return c.failed("%s has no partition %d: there are 0 to %d", topic, *f.partition, n-1)
	}
	return exitOK
}

// span is what one partition got.
type span struct {
	Partition int32 `json:"partition"`
	Records   int64 `json:"records"`
	First     int64 `json:"firstOffset"`
	Last      int64 `json:"lastOffset"`
}

// produced is the result of one run.
type produced struct {
	Topic      string `json:"topic"`
	Records    int64  `json:"records"`
	Bytes      int64  `json:"bytes"` // of keys and values
	Failed     int64  `json:"failed"`
	Partitions []span `json:"partitions"`
}

func (p produced) text(acknowledged bool) string {
	var parts []string
	for _, s := range p.Partitions {
		where := "partition " + strconv.Itoa(int(s.Partition))
		switch {
		case !acknowledged:
			where += ": " + count(s.Records)
		case s.First == s.Last:
			where += " offset " + strconv.FormatInt(s.First, 10)
		default:
			where += fmt.Sprintf(" offsets %d to %d", s.First, s.Last)
		}
		parts = append(parts, where)
	}
	text := fmt.Sprintf("produced %s records, %s, to %s", count(p.Records), size(p.Bytes), p.Topic)
	if len(parts) > 0 && len(parts) <= 10 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text
}

func sortedSpans(spans map[int32]*span) []span {
	out := []span{}
	for _, n := range slices.Sorted(maps.Keys(spans)) {
		out = append(out, *spans[n])
	}
	return out
}
