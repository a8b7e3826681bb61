package replica

import (
	"context"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/broker/commitlog"
	"varve/protocol"
)

// ToHighWatermark as the offset of DeleteRecords means all records that consumers can see.
const ToHighWatermark int64 = -1

// DeleteRecords makes the records below an offset unreadable and returns the log start (Partition.deleteRecordsOnLeader).
// It returns once that is durable: for a tiered partition it stands in the metastore before it acts here. Files and
// objects go with the next rounds of retention. An offset at or below log start changes nothing.
//
// Errors: those of find; NotLeaderOrFollower, KafkaStorageError; InvalidTopicException for internal topics;
// PolicyViolation for topics that are compacted only; OffsetOutOfRange for negative offsets and those above the high
// watermark; the metastore's.
func (m *Manager) DeleteRecords(ctx context.Context, topic string, partition int32, offset int64) (logStart int64, err error) {
	p, err := m.find(topic, protocol.UUID{}, partition)
	if err != nil {
		return -1, err
	}
	r := p.role.Load()
	if err := r.fence(NoEpoch); err != nil {
		return -1, err
	}
	if offset, err = p.deletable(r, offset); err != nil {
		return -1, err
	}
	if offset > r.log.LogStart() {
		if r.tiered {
			if err := m.meta.AdvanceLogStart(ctx, p.id, p.index, r.leaderEpoch, offset); err != nil {
				return -1, err
			}
		}
		if err := p.raiseLogStart(r.leaderEpoch, offset); err != nil {
			return -1, err
		}
		if err := m.logs.Checkpoint(); err != nil {
			return -1, err
		}
	}
	return r.log.LogStart(), nil
}

// deletable returns the offset below which records are to go, or why they stay.
func (p *partition) deletable(r *role, offset int64) (int64, error) {
	if p.count.internal {
		return 0, protocol.Errorf(protocol.InvalidTopicException, "Cannot delete records of internal topic %s.", p.topic)
	}
	if r.conf.CleanupCompact && !r.conf.CleanupDelete {
		return 0, protocol.Errorf(protocol.PolicyViolation, "Records of partition %s-%d can not be deleted due to the configured policy", p.topic, p.index)
	}
	hw := p.hw.Load()
	if offset == ToHighWatermark {
		offset = hw
	}
	if offset < 0 || offset > hw {
		return 0, protocol.Errorf(protocol.OffsetOutOfRange, "The offset %d for partition %s-%d is not valid; the high watermark is %d", offset, p.topic, p.index, hw)
	}
	return offset, nil
}

// raiseLogStart moves the local log start while this replica leads at an epoch.
func (p *partition) raiseLogStart(epoch int32, offset int64) error {
	p.roleMu.RLock()
	defer p.roleMu.RUnlock()
	r := p.role.Load()
	if err := r.fence(epoch); err != nil {
		return err
	}
	if err := r.log.SetLogStart(offset); err != nil {
		return err
	}
	p.fetches.wake(true, true)
	return nil
}

// Producers returns the idempotent producers whose state a replica keeps (ReplicaManager.activeProducerState).
//
// Errors: those of find; KafkaStorageError; NotLeaderOrFollower while there is no log.
func (m *Manager) Producers(topic string, partition int32) ([]commitlog.ProducerInfo, error) {
	p, err := m.find(topic, protocol.UUID{}, partition)
	if err != nil {
		return nil, err
	}
	r := p.role.Load()
	switch {
	case r.state == StateOffline:
		return nil, protocol.Errorf(protocol.KafkaStorageError, "%s", r.problem)
	case r.log == nil:
		return nil, protocol.NotLeaderOrFollower
	}
	return r.log.Producers(), nil
}

// LogDir describes the folder of all logs.
type LogDir struct {
	Path        string
	Offline     error // why it does not work, nil when it does
	TotalBytes  int64 // of the volume; -1 unknown
	UsableBytes int64
	Logs        []LogSize
}

// LogSize is one replica's part of a folder.
type LogSize struct {
	Topic     string
	Partition int32
	Bytes     int64
}

// LogDir returns the folder with the logs in it, in no order (ReplicaManager.describeLogDirs).
func (m *Manager) LogDir() LogDir {
	d := LogDir{Path: m.conf.LogDir(), Offline: m.logs.Offline(), TotalBytes: -1, UsableBytes: -1}
	if d.Offline != nil {
		return d
	}
	if u, err := vfs.Default.GetDiskUsage(d.Path); err == nil {
		d.TotalBytes, d.UsableBytes = int64(u.TotalBytes), int64(u.AvailBytes)
	}
	for _, p := range m.replicas() {
		if r := p.role.Load(); r.log != nil {
			d.Logs = append(d.Logs, LogSize{Topic: p.topic, Partition: p.index, Bytes: r.log.SizeBytes()})
		}
	}
	return d
}
