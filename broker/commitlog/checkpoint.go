package commitlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"varve/protocol"
)

// Names of the files of a log directory and of a partition folder.
const (
	recoveryPointFile = "recovery-point-offset-checkpoint"
	logStartFile      = "log-start-offset-checkpoint"
	highWatermarkFile = "replication-offset-checkpoint"
	cleanShutdownFile = ".kafka_cleanshutdown"
	lockFile          = ".lock"
	metaFile          = "meta.properties"
	epochFile         = "leader-epoch-checkpoint"
	partitionFile     = "partition.metadata"

	// maxCheckpointBytes bounds what is read back of one such file.
	maxCheckpointBytes = 256 << 20
)

// topicPartition names a log within its directory.
type topicPartition struct {
	topic     string
	partition int32
}

func (tp topicPartition) String() string { return fmt.Sprintf("%s-%d", tp.topic, tp.partition) }

// A checkpoint file is text (CheckpointFile.java): the version, 0, the number
// of entries, one line per entry.
func encodeCheckpoint(lines []string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "0\n%d\n", len(lines))
	for _, l := range lines {
		b.WriteString(l)
		b.WriteByte('\n')
	}
	return b.Bytes()
}

func decodeCheckpoint(data []byte, where string) ([]string, error) {
	corrupt := func(format string, args ...any) error {
		return &protocol.CorruptionError{Where: where, What: fmt.Sprintf(format, args...)}
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(lines) < 2 {
		return nil, corrupt("checkpoint has no header")
	}
	if strings.TrimSpace(lines[0]) != "0" {
		return nil, corrupt("checkpoint version %q is not 0", lines[0])
	}
	n, err := strconv.Atoi(strings.TrimSpace(lines[1]))
	if err != nil || n != len(lines)-2 {
		return nil, corrupt("checkpoint says %q entries and has %d", lines[1], len(lines)-2)
	}
	return lines[2:], nil
}

// Offset checkpoints have lines "topic partition offset"
// (OffsetCheckpointFile.java).
func encodeOffsets(offsets map[topicPartition]int64) []byte {
	lines := make([]string, 0, len(offsets))
	for tp, off := range offsets {
		lines = append(lines, fmt.Sprintf("%s %d %d", tp.topic, tp.partition, off))
	}
	slices.Sort(lines)
	return encodeCheckpoint(lines)
}

func decodeOffsets(data []byte, where string) (map[topicPartition]int64, error) {
	lines, err := decodeCheckpoint(data, where)
	if err != nil {
		return nil, err
	}
	out := make(map[topicPartition]int64, len(lines))
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, &protocol.CorruptionError{Where: where, What: fmt.Sprintf("line %q is not a topic, a partition and an offset", line)}
		}
		p, err1 := strconv.ParseInt(f[1], 10, 32)
		off, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 != nil || err2 != nil || p < 0 || off < 0 {
			return nil, &protocol.CorruptionError{Where: where, What: fmt.Sprintf("line %q is not a topic, a partition and an offset", line)}
		}
		out[topicPartition{f[0], int32(p)}] = off
	}
	return out, nil
}

// offsetCheckpoint is one offset checkpoint file and what it says now.
type offsetCheckpoint struct {
	fs      FS
	path    string
	written map[topicPartition]int64
}

// loadOffsets reads a checkpoint. A missing file is an empty one; so is a
// damaged one, because each of the three is only a better guess than none: the
// damage is returned beside it, to be told.
func loadOffsets(fsys FS, path string) (c *offsetCheckpoint, damage, err error) {
	c = &offsetCheckpoint{fs: fsys, path: path, written: map[topicPartition]int64{}}
	data, err := readFile(fsys, path, maxCheckpointBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	offsets, damage := decodeOffsets(data, path)
	if damage == nil {
		c.written = offsets
	}
	return c, damage, nil
}

// write makes the file say exactly this, durably.
func (c *offsetCheckpoint) write(offsets map[topicPartition]int64) error {
	if maps.Equal(offsets, c.written) {
		return nil
	}
	if err := writeFileAtomic(c.fs, c.path, encodeOffsets(offsets)); err != nil {
		return err
	}
	c.written = offsets
	return nil
}

// cleanShutdown is the content of .kafka_cleanshutdown
// (CleanShutdownFileHandler.java).
type cleanShutdown struct {
	Version     int   `json:"version"`
	BrokerEpoch int64 `json:"brokerEpoch"`
}

func encodeCleanShutdown(brokerEpoch int64) []byte {
	data, err := json.Marshal(cleanShutdown{Version: 0, BrokerEpoch: brokerEpoch})
	if err != nil {
		panic(err) // two integers always marshal
	}
	return data
}

// decodeCleanShutdown returns the broker epoch, -1 where the file does not tell
// one (as older Kafka wrote it).
func decodeCleanShutdown(data []byte) int64 {
	c := cleanShutdown{BrokerEpoch: -1}
	if err := json.Unmarshal(data, &c); err != nil || c.Version != 0 {
		return -1
	}
	return c.BrokerEpoch
}

// partition.metadata (PartitionMetadataFile.java).
func encodePartition(id protocol.UUID) []byte {
	return fmt.Appendf(nil, "version: 0\ntopic_id: %s\n", id)
}

func decodePartition(data []byte, where string) (protocol.UUID, error) {
	corrupt := func(what string) error { return &protocol.CorruptionError{Where: where, What: what} }
	fields := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[k] = strings.TrimSpace(v)
		}
	}
	if fields["version"] != "0" {
		return protocol.UUID{}, corrupt(fmt.Sprintf("partition metadata version %q is not 0", fields["version"]))
	}
	id, err := protocol.ParseUUID(fields["topic_id"])
	if err != nil || id == (protocol.UUID{}) {
		return protocol.UUID{}, corrupt(fmt.Sprintf("topic id %q is none", fields["topic_id"]))
	}
	return id, nil
}
