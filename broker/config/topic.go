package config

import (
	"fmt"
	"math"
	"slices"

	"varve/protocol"
)

// Topic is the effective configuration of one topic. Sizes are bytes, times milliseconds; -1 means no bound where
// Apache Kafka says so. Retention is resolved: -2 never appears, and an untiered topic's local retention is its total one.
type Topic struct {
	SegmentBytes         int32
	SegmentMs            int64
	SegmentJitterMs      int64
	SegmentIndexBytes    int32
	IndexIntervalBytes   int32
	FlushMessages        int64
	FlushMs              int64
	MaxMessageBytes      int32
	LogAppendTime        bool
	TimestampBeforeMaxMs int64
	TimestampAfterMaxMs  int64

	CompressionType      string // "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"
	CompressionGzipLevel int
	CompressionLZ4Level  int
	CompressionZstdLevel int

	CleanupDelete  bool
	CleanupCompact bool

	RetentionMs         int64
	RetentionBytes      int64
	LocalRetentionMs    int64
	LocalRetentionBytes int64

	RemoteStorage      bool
	RemoteCopyDisable  bool
	RemoteCopyLagMs    int64 // resolved: -1, as long as local retention, appears only when that is without bound
	RemoteCopyLagBytes int64

	MinInsyncReplicas     int32
	UncleanLeaderElection bool
	FileDeleteDelayMs     int64
	Preallocate           bool
}

const (
	tieredSegmentBytes     = 256 << 20
	tieredLocalRetentionMs = 24 * 60 * 60 * 1000
	sameAsTotal            = -2 // local.retention.*: the same as retention.*
	unlimited              = -1
)

type synonym struct {
	key  string
	unit int64 // what one of the broker's key is in the topic's
}

// topicSynonyms names the broker keys that give a topic key its default, the strongest first (ServerTopicConfigSynonyms.java).
var topicSynonyms = map[string][]synonym{
	"cleanup.policy":                 {{"log.cleanup.policy", 1}},
	"compression.gzip.level":         {{"compression.gzip.level", 1}},
	"compression.lz4.level":          {{"compression.lz4.level", 1}},
	"compression.type":               {{"compression.type", 1}},
	"compression.zstd.level":         {{"compression.zstd.level", 1}},
	"delete.retention.ms":            {{"log.cleaner.delete.retention.ms", 1}},
	"file.delete.delay.ms":           {{"log.segment.delete.delay.ms", 1}},
	"flush.messages":                 {{"log.flush.interval.messages", 1}},
	"flush.ms":                       {{"log.flush.interval.ms", 1}, {"log.flush.scheduler.interval.ms", 1}},
	"index.interval.bytes":           {{"log.index.interval.bytes", 1}},
	"local.retention.bytes":          {{"log.local.retention.bytes", 1}},
	"local.retention.ms":             {{"log.local.retention.ms", 1}},
	"max.compaction.lag.ms":          {{"log.cleaner.max.compaction.lag.ms", 1}},
	"max.decompressed.message.bytes": {{"max.decompressed.message.bytes", 1}},
	"max.message.bytes":              {{"message.max.bytes", 1}},
	"message.timestamp.after.max.ms": {{"log.message.timestamp.after.max.ms", 1}},
	"message.timestamp.before.max.ms": {
		{"log.message.timestamp.before.max.ms", 1}},
	"message.timestamp.type":         {{"log.message.timestamp.type", 1}},
	"min.cleanable.dirty.ratio":      {{"log.cleaner.min.cleanable.ratio", 1}},
	"min.compaction.lag.ms":          {{"log.cleaner.min.compaction.lag.ms", 1}},
	"min.insync.replicas":            {{"min.insync.replicas", 1}},
	"preallocate":                    {{"log.preallocate", 1}},
	"remote.copy.lag.bytes":          {{"log.remote.copy.lag.bytes", 1}},
	"remote.copy.lag.ms":             {{"log.remote.copy.lag.ms", 1}},
	"remote.storage.enable":          {{"varve.topic.remote.storage.enable", 1}},
	"retention.bytes":                {{"log.retention.bytes", 1}},
	"retention.ms":                   {{"log.retention.ms", 1}, {"log.retention.minutes", 60_000}, {"log.retention.hours", 3_600_000}},
	"segment.bytes":                  {{"log.segment.bytes", 1}},
	"segment.index.bytes":            {{"log.index.size.max.bytes", 1}},
	"segment.jitter.ms":              {{"log.roll.jitter.ms", 1}, {"log.roll.jitter.hours", 3_600_000}},
	"segment.ms":                     {{"log.roll.ms", 1}, {"log.roll.hours", 3_600_000}},
	"unclean.leader.election.enable": {{"unclean.leader.election.enable", 1}},
}

// Topic returns the effective configuration of a topic with these overrides. The error is a *protocol.Error with code
// InvalidConfig that names the key and what is allowed.
func (c *Config) Topic(overrides map[string]string) (Topic, error) {
	r := &topicResolver{c: c, overrides: overrides}
	if err := r.checkOverrides(); err != nil {
		return Topic{}, err
	}
	r.deriveTiering()
	t := r.topic()
	if err := r.checkTogether(t); err != nil {
		return Topic{}, err
	}
	if t.RetentionMs < 0 {
		t.RetentionMs = unlimited
	}
	if t.LocalRetentionMs == sameAsTotal || !t.RemoteStorage {
		t.LocalRetentionMs = t.RetentionMs
	}
	if t.LocalRetentionBytes == sameAsTotal || !t.RemoteStorage {
		t.LocalRetentionBytes = t.RetentionBytes
	}
	if t.RemoteCopyLagMs < 0 {
		t.RemoteCopyLagMs = t.LocalRetentionMs
	}
	if t.RemoteCopyLagBytes < 0 {
		t.RemoteCopyLagBytes = t.LocalRetentionBytes
	}
	return t, nil
}

// ValidateTopic says whether a topic may have these overrides. The error is as Topic's.
func (c *Config) ValidateTopic(overrides map[string]string) error {
	_, err := c.Topic(overrides)
	return err
}

// PinTiering returns overrides with remote.storage.enable=true spelt out, for a topic that is being created tiered only
// because that is the default: it must not stop being tiered because the broker is later started with other defaults.
func (c *Config) PinTiering(overrides map[string]string) map[string]string {
	t, err := c.Topic(overrides)
	if err != nil || !t.RemoteStorage {
		return overrides
	}
	pinned := map[string]string{"remote.storage.enable": "true"}
	for k, v := range overrides {
		pinned[k] = v
	}
	return pinned
}

type topicResolver struct {
	c         *Config
	overrides map[string]string
	derived   map[string]any // defaults that depend on other keys of the topic
	untiered  bool           // compacted: the broker's default for remote.storage.enable is not for this topic
}

func invalid(format string, args ...any) error {
	return protocol.Errorf(protocol.InvalidConfig, format, args...)
}

func (r *topicResolver) checkOverrides() error {
	names := make([]string, 0, len(r.overrides))
	for name := range r.overrides {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		k, known := topicTable[name]
		if !known {
			return invalid("unknown topic configuration %s; %s", name, suggestTopic(name))
		}
		if _, err := k.Parse(r.overrides[name]); err != nil {
			return invalid("%s=%s: %v", name, r.overrides[name], err)
		}
	}
	return nil
}

func suggestTopic(name string) string {
	var names []string
	for _, k := range topicKeys {
		names = append(names, k.Name)
		for _, s := range topicSynonyms[k.Name] {
			if s.key == name {
				return "the topic's own key is " + k.Name
			}
		}
	}
	if near, ok := Nearest(name, names); ok {
		return "did you mean " + near + "?"
	}
	return "the keys are listed in docs/configuration.md"
}

// value returns the effective value of a topic key and where it came from.
func (r *topicResolver) value(name string) (any, Source) {
	k := topicTable[name]
	if raw, ok := r.overrides[name]; ok {
		if v, err := k.Parse(raw); err == nil {
			return v, SourceTopic
		}
	}
	if name == "remote.storage.enable" && r.untiered {
		return false, SourceDefault
	}
	for _, s := range topicSynonyms[name] {
		if given, source, ok := r.c.set(s.key); ok {
			return scaled(given.value, s.unit), source
		}
	}
	if v, ok := r.derived[name]; ok {
		return v, SourceDefault
	}
	for _, s := range topicSynonyms[name] {
		if v := r.c.parsed(s.key); v != nil {
			return scaled(v, s.unit), SourceDefault
		}
	}
	if k.Null {
		return nil, SourceDefault
	}
	v, err := k.Parse(k.Default)
	if err != nil {
		panic("config: default of " + name + ": " + err.Error())
	}
	return v, SourceDefault
}

func scaled(v any, unit int64) any {
	n, ok := v.(int64)
	if !ok || unit == 1 {
		return v
	}
	if n > math.MaxInt64/unit {
		return int64(math.MaxInt64)
	}
	if n < 0 { // -1 minutes or hours is "for ever" too
		return n
	}
	return n * unit
}

func (r *topicResolver) integer(name string) int64 {
	v, _ := r.value(name)
	n, _ := v.(int64)
	return n
}

func (r *topicResolver) flag(name string) bool {
	v, _ := r.value(name)
	b, _ := v.(bool)
	return b
}

func (r *topicResolver) has(name, item string) bool {
	v, _ := r.value(name)
	items, _ := v.([]string)
	return slices.Contains(items, item)
}

func (r *topicResolver) text(name string) string {
	v, _ := r.value(name)
	s, _ := v.(string)
	return s
}

// deriveTiering sets the defaults of ours: a topic is tiered when the broker says so and it is not compacted; a tiered
// one has smaller segments and keeps a day on local disk, so that something settles on the first day.
func (r *topicResolver) deriveTiering() {
	r.derived = map[string]any{}
	r.untiered = r.has("cleanup.policy", "compact")
	if !r.flag("remote.storage.enable") {
		return
	}
	r.derived["segment.bytes"] = int64(tieredSegmentBytes)
	if r.flag("remote.log.copy.disable") {
		return
	}
	local := max(tieredLocalRetentionMs, r.integer("remote.copy.lag.ms"))
	if total := r.integer("retention.ms"); total < 0 || total > local {
		r.derived["local.retention.ms"] = local
	}
}

func (r *topicResolver) topic() Topic {
	t := Topic{
		SegmentBytes:         int32(r.integer("segment.bytes")),
		SegmentMs:            r.integer("segment.ms"),
		SegmentJitterMs:      r.integer("segment.jitter.ms"),
		SegmentIndexBytes:    int32(r.integer("segment.index.bytes")),
		IndexIntervalBytes:   int32(r.integer("index.interval.bytes")),
		FlushMessages:        r.integer("flush.messages"),
		FlushMs:              r.integer("flush.ms"),
		MaxMessageBytes:      int32(r.integer("max.message.bytes")),
		LogAppendTime:        r.text("message.timestamp.type") == "LogAppendTime",
		TimestampBeforeMaxMs: r.integer("message.timestamp.before.max.ms"),
		TimestampAfterMaxMs:  r.integer("message.timestamp.after.max.ms"),

		CompressionType:      r.text("compression.type"),
		CompressionGzipLevel: int(r.integer("compression.gzip.level")),
		CompressionLZ4Level:  int(r.integer("compression.lz4.level")),
		CompressionZstdLevel: int(r.integer("compression.zstd.level")),

		CleanupDelete:  r.has("cleanup.policy", "delete"),
		CleanupCompact: r.has("cleanup.policy", "compact"),

		RetentionMs:         r.integer("retention.ms"),
		RetentionBytes:      r.integer("retention.bytes"),
		LocalRetentionMs:    r.integer("local.retention.ms"),
		LocalRetentionBytes: r.integer("local.retention.bytes"),

		RemoteStorage:      r.flag("remote.storage.enable"),
		RemoteCopyDisable:  r.flag("remote.log.copy.disable"),
		RemoteCopyLagMs:    r.integer("remote.copy.lag.ms"),
		RemoteCopyLagBytes: r.integer("remote.copy.lag.bytes"),

		MinInsyncReplicas:     int32(r.integer("min.insync.replicas")),
		UncleanLeaderElection: r.flag("unclean.leader.election.enable"),
		FileDeleteDelayMs:     r.integer("file.delete.delay.ms"),
		Preallocate:           r.flag("preallocate"),
	}
	if n := r.integer("internal.segment.bytes"); n > 0 {
		t.SegmentBytes = int32(n)
	}
	return t
}

// checkTogether holds the rules over several keys (LogConfig.java, validate). Retention is not yet resolved in t.
func (r *topicResolver) checkTogether(t Topic) error {
	if least, most := r.integer("min.compaction.lag.ms"), r.integer("max.compaction.lag.ms"); least > most {
		return invalid("min.compaction.lag.ms=%d is more than max.compaction.lag.ms=%d", least, most)
	}
	if !t.RemoteStorage {
		return nil
	}
	if r.c.TierURL() == "" {
		return invalid("Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage. Start the broker with varve.tier.url set.")
	}
	if t.CleanupCompact {
		return invalid("Remote log storage is unsupported for the compacted topics")
	}
	if err := checkLocal("bytes", t.LocalRetentionBytes, t.RetentionBytes, r.integer("remote.copy.lag.bytes")); err != nil {
		return err
	}
	if err := checkLocal("ms", t.LocalRetentionMs, t.RetentionMs, r.integer("remote.copy.lag.ms")); err != nil {
		return err
	}
	if !t.RemoteCopyDisable {
		return nil
	}
	if err := checkNoCopies("bytes", t.LocalRetentionBytes, t.RetentionBytes); err != nil {
		return err
	}
	return checkNoCopies("ms", t.LocalRetentionMs, t.RetentionMs)
}

// checkNoCopies: local retention is the total one where nothing is uploaded any more (validateRetentionConfigsWhenRemoteCopyDisabled).
func checkNoCopies(unit string, local, total int64) error {
	if local == sameAsTotal || local == total {
		return nil
	}
	return invalid("When `remote.log.copy.disable` is set to true, the `local.retention.%s` and `retention.%s` must be set to the identical value "+
		"because there will be no more logs copied to the remote storage.", unit, unit)
}

// checkLocal holds local retention against the total one, in Kafka's words (validateRemoteStorageRetentionSize and -Time), and
// against the upload lag.
func checkLocal(unit string, local, total, lag int64) error {
	if local != sameAsTotal && total >= 0 {
		if local == unlimited {
			return invalid("Invalid value -1 for configuration local.retention.%s: Value must not be -1 as retention.%s value is set as %d.", unit, unit, total)
		}
		if local > total {
			return invalid("Invalid value %d for configuration local.retention.%s: Value must not be more than retention.%s property value: %d", local, unit, unit, total)
		}
	}
	effective := local
	if local == sameAsTotal {
		effective = total
	}
	if effective >= 0 && lag > effective {
		return invalid("remote.copy.lag.%s=%d is more than local.retention.%s, which is %d: data would have to leave local disk before it is uploaded", unit, lag, unit, effective)
	}
	return nil
}

func textOf(v any) string {
	switch t := v.(type) {
	case []string:
		return joinList(t)
	case float64:
		return plain(t)
	}
	return fmt.Sprint(v)
}
