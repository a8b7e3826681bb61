package commitlog

import (
	"context"
	"errors"
	"time"

	"varve/protocol"
	"varve/protocol/record"
)

var errDecl = errors.New("declaration only")

// Manager owns one log directory.
type Manager struct{}

// Log is one partition's log.
type Log struct{}

// Export is a sealed range for the tier.
type Export struct {
	Base, Next       int64
	FirstTimestamp   int64
	MaxTimestamp     int64
	Log              protocol.Span
	OffsetIndex      []byte
	TimeIndex        []byte
	TxnIndex         []byte
	ProducerSnapshot []byte
	Epochs           []EpochStart
}

// Close releases the segment.
func (e *Export) Close() {}

// OpenManager locks and opens a log directory.
func OpenManager(ManagerOptions) (*Manager, error) { return nil, errDecl }

// DiskFS is the operating system's file system.
func DiskFS() FS { return nil }

// NewCrashFS is a memory file system for tests.
func NewCrashFS() FS { return nil }

func (m *Manager) DirectoryID() protocol.UUID                     { return protocol.UUID{} }
func (m *Manager) ClusterID() string                              { return "" }
func (m *Manager) CleanShutdown() (brokerEpoch int64, clean bool) { return }
func (m *Manager) LoadAll(ctx context.Context, conf func(topic string, id protocol.UUID, p int32) Config) error {
	return errDecl
}
func (m *Manager) Get(topic string, p int32) (*Log, bool) { return nil, false }
func (m *Manager) All() []*Log                            { return nil }
func (m *Manager) Strays() []string                       { return nil }
func (m *Manager) Create(topic string, id protocol.UUID, p int32, c Config) (*Log, error) {
	return nil, errDecl
}
func (m *Manager) Delete(topic string, p int32) error                 { return errDecl }
func (m *Manager) HighWatermark(topic string, p int32) int64          { return -1 }
func (m *Manager) Checkpoint() error                                  { return errDecl }
func (m *Manager) Offline() error                                     { return nil }
func (m *Manager) Close(ctx context.Context, brokerEpoch int64) error { return errDecl }

func (l *Log) Topic() string          { return "" }
func (l *Log) TopicID() protocol.UUID { return protocol.UUID{} }
func (l *Log) Partition() int32       { return 0 }
func (l *Log) AppendAsLeader(b record.Batch, leaderEpoch int32, origin Origin) (AppendInfo, error) {
	return AppendInfo{}, errDecl
}
func (l *Log) AppendAsFollower(batches []byte) (AppendInfo, error) { return AppendInfo{}, errDecl }
func (l *Log) LogStart() int64                                     { return 0 }
func (l *Log) LocalStart() int64                                   { return 0 }
func (l *Log) End() int64                                          { return 0 }
func (l *Log) DurableEnd() int64                                   { return 0 }
func (l *Log) OnDurable(fn func())                                 {}
func (l *Log) SetHighWatermark(off int64)                          {}
func (l *Log) Read(off int64, maxBytes int, limit int64, minOne bool) (Slice, error) {
	return Slice{}, errDecl
}
func (l *Log) OffsetForTimestamp(ts int64) (TimestampOffset, bool, error) {
	return TimestampOffset{}, false, errDecl
}
func (l *Log) MaxTimestamp() (TimestampOffset, bool, error)         { return TimestampOffset{}, false, errDecl }
func (l *Log) LatestEpoch() int32                                   { return -1 }
func (l *Log) Epochs() []EpochStart                                 { return nil }
func (l *Log) EndOfEpoch(epoch int32) (foundEpoch int32, end int64) { return -1, -1 }
func (l *Log) EpochAt(off int64) int32                              { return -1 }
func (l *Log) AssignEpoch(epoch int32, start int64) error           { return errDecl }
func (l *Log) FirstUnstable() (int64, bool)                         { return 0, false }
func (l *Log) LastStable(hw int64) int64                            { return hw }
func (l *Log) AbortedIn(from, to int64) ([]AbortedTxn, error)       { return nil, nil }
func (l *Log) Producers() []ProducerInfo                            { return nil }
func (l *Log) Segments() ([]SegmentInfo, error)                     { return nil, nil }
func (l *Log) Roll() error                                          { return errDecl }
func (l *Log) MaybeRoll(now time.Time, maxAgeMs int64) (rolled bool, err error) {
	return false, errDecl
}
func (l *Log) Flush() error                                      { return errDecl }
func (l *Log) Export(from, limit int64) (*Export, error)         { return nil, errDecl }
func (l *Log) SetLogStart(off int64) error                       { return errDecl }
func (l *Log) FreeBelow(off int64) (freedBytes int64, err error) { return 0, errDecl }
func (l *Log) TruncateTo(off int64) error                        { return errDecl }
func (l *Log) StartFromTier(next, logStart int64, epochs []EpochStart, producerSnapshot []byte) error {
	return errDecl
}
func (l *Log) SizeBytes() int64   { return 0 }
func (l *Log) SetConfig(c Config) {}
func (l *Log) Config() Config     { return Config{} }
