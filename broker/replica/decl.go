package replica

import "context"

func (m *Manager) Append(req *AppendRequest, done func([]AppendResult))       {}
func (m *Manager) Fetch(ctx context.Context, req *FetchRequest) []FetchResult { return nil }
func (m *Manager) ListOffset(ctx context.Context, q OffsetQuery) (OffsetResult, error) {
	return OffsetResult{}, nil
}
func (m *Manager) OffsetForEpoch(q EpochQuery) (EpochEnd, error) { return EpochEnd{}, nil }
func (m *Manager) Describe(topic string, partition int32) (PartitionInfo, bool) {
	return PartitionInfo{}, false
}
func (m *Manager) DescribeAll() []PartitionInfo { return nil }
func (m *Manager) LostRanges() []LostRange      { return nil }
func (m *Manager) Stats() Stats                 { return Stats{} }

type target struct{}
type life struct{}
type topicCounters struct{}
type counters struct{}
type coldReaders struct{}

func (c *coldReaders) init(a, b int) {}

type elections struct{}

func (c *elections) init(m *Manager) {}
func (e *waitEntry) isOpen() bool    { return false }
