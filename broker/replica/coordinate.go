package replica

import (
	"time"

	"varve/broker/commitlog"
	"varve/protocol"
	"varve/protocol/record"
)

// CoordinatorAppend is one batch that a coordinator writes into a partition of its own. The batch is stamped in place and
// must stay valid until done is called.
type CoordinatorAppend struct {
	TopicID     protocol.UUID
	Partition   int32
	LeaderEpoch int32 // at which the coordinator took over; at another nothing is written
	Batch       record.Batch
	Timeout     time.Duration // bound on waiting for the other replicas
}

// AppendCoordinator writes as Append does with acks=all, but for a coordinator (AppendOrigin.COORDINATOR), and only while
// this broker leads at the epoch that the coordinator knows; else the result has FencedLeaderEpoch or
// NotLeaderOrFollower. done is called exactly once, maybe before this returns; it must be quick and must not block.
func (m *Manager) AppendCoordinator(w CoordinatorAppend, done func(AppendResult)) {
	results := make([]AppendResult, 1)
	wait := m.appendCoordinator(&w, &results[0])
	if wait.p == nil {
		done(results[0])
		return
	}
	m.delay(&AppendRequest{Acks: AcksAll, Timeout: w.Timeout}, results, []appended{wait}, func(all []AppendResult) { done(all[0]) })
}

func (m *Manager) appendCoordinator(w *CoordinatorAppend, res *AppendResult) (wait appended) {
	*res = AppendResult{BaseOffset: -1, LogAppendTime: -1, LogStart: -1, Leader: -1, LeaderEpoch: -1}
	p, err := m.find("", w.TopicID, w.Partition)
	if err != nil {
		res.fail(err)
		return wait
	}
	p.count.produces.Add(1)
	before := p.hw.Load()
	info, r, err := p.appendAt(w.Batch, AcksAll, w.LeaderEpoch, commitlog.OriginCoordinator)
	if err != nil {
		p.appendFailed(res, r, err)
		return wait
	}
	res.BaseOffset, res.LogAppendTime, res.LogStart = info.FirstOffset, info.LogAppendTime, info.LogStart
	p.count.bytesIn.Add(int64(len(w.Batch)))
	p.count.messagesIn.Add(int64(w.Batch.Count()))
	p.sealed(r, int64(len(w.Batch)))
	p.settle(true, before)
	return p.owed(r, AcksAll, info)
}

// CoordinatorRead is what a coordinator reads of its partition.
type CoordinatorRead struct {
	Records []byte // whole batches
	Next    int64  // where the next read continues
	End     int64  // end of the log, beyond what the high watermark has reached
}

// ReadCoordinator reads batches from an offset on, at least one if there is any, up to the log's end: a new leader's
// high watermark may still lag behind what was acknowledged. An offset below the log's start is read from the start.
// Errors are those of a fetch at this leader epoch.
func (m *Manager) ReadCoordinator(topicID protocol.UUID, partition, leaderEpoch int32, offset int64, maxBytes int) (CoordinatorRead, error) {
	p, err := m.find("", topicID, partition)
	if err != nil {
		return CoordinatorRead{}, err
	}
	p.roleMu.RLock()
	defer p.roleMu.RUnlock()
	r := p.role.Load()
	if err := r.fence(leaderEpoch); err != nil {
		return CoordinatorRead{}, err
	}
	out := CoordinatorRead{End: r.log.End()}
	out.Next = max(offset, r.log.LocalStart())
	if out.Next >= out.End {
		return out, nil
	}
	s, err := r.log.Read(out.Next, maxBytes, out.End, true)
	if err != nil {
		return CoordinatorRead{}, err
	}
	defer protocol.ReleaseSpans([]protocol.Span{s.Span})
	if out.Records, err = s.AppendTo(nil); err != nil {
		return CoordinatorRead{}, err
	}
	out.Next = s.NextOffset
	return out, nil
}
