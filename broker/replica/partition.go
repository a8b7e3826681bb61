package replica

import (
	"slices"
	"sync"
	"sync/atomic"

	"varve/broker/commitlog"
	"varve/broker/config"
	"varve/protocol"
	"varve/protocol/record"
)

// partition is one replica on this broker. Its role is replaced as a whole; reads of it need no lock.
type partition struct {
	m     *Manager
	topic string
	id    protocol.UUID
	index int32
	count *topicCounters

	// roleMu is held shared while a batch is appended or read at the current role, exclusively while the role changes.
	roleMu sync.RWMutex
	role   atomic.Pointer[role] // stored under roleMu
	hw     atomic.Int64         // high watermark; rises under roleMu shared, is set under roleMu exclusive

	waitMu    sync.Mutex // after roleMu, before delayedAppend.mu
	waiting   atomic.Int32
	byHW      appendQueue
	byDisk    appendQueue
	followers map[int32]int64 // log ends of the other replicas at this leader epoch
	fetches   watchers

	segmentBytes atomic.Int64 // size of the active segment, roughly
	segmentBase  atomic.Int64 // its base when it was last looked at
	asking       atomic.Bool  // someone looks
	storageBad   atomic.Bool  // a storage error was told of

	applyMu sync.Mutex // serializes changes of the role; before roleMu
	target  target     // what the Image says, under applyMu
	life    life       // what reconcile keeps between two of its runs, under applyMu
}

// role is what a replica is at one moment. It is never changed once stored.
type role struct {
	state          State
	log            *commitlog.Log // nil when there is none
	leader         int32
	leaderEpoch    int32
	partitionEpoch int32
	replicas, isr  []int32
	epochStart     int64 // log end when this leader epoch began
	conf           config.Topic
	configs        map[string]string // overrides, for the tier's footers
	tiered         bool
	leaves         bool   // the topic says that it is not tiered: what it may have in the tier goes
	retry          bool   // offline for a reason that a new target may end
	noRoom         bool   // offline for lack of room: housekeeping tries again
	gone           bool   // the topic or this replica was removed
	problem        string // why it is not served
}

func (r *role) leads() bool { return r.state == StateLeader }

// settles says whether the tier looks after the replica while it leads.
func (r *role) settles() bool { return r.tiered || r.leaves }

// minISR is min.insync.replicas as far as the partition has replicas at all (Partition.effectiveMinIsr).
func (r *role) minISR() int { return min(int(r.conf.MinInsyncReplicas), len(r.replicas)) }

func (r *role) underMinISR() bool { return len(r.isr) < r.minISR() }

// fence says why a client is not served: the replica is gone or offline (ReplicaManager.getPartitionOrException), the
// leader epoch that the client knows is another, it does not lead here (Partition.getLocalLog), in Kafka's order.
func (r *role) fence(epoch int32) error {
	switch {
	case r.gone:
		return protocol.UnknownTopicOrPartition
	case r.state == StateOffline:
		return protocol.Errorf(protocol.KafkaStorageError, "%s", r.problem)
	case epoch != NoEpoch && epoch < r.leaderEpoch:
		return protocol.FencedLeaderEpoch
	case epoch != NoEpoch && epoch > r.leaderEpoch:
		return protocol.UnknownLeaderEpoch
	case !r.leads():
		return protocol.NotLeaderOrFollower
	}
	return nil
}

// append writes one batch as leader. The high watermark is moved as far as it goes; waiters of it are woken by the
// caller through settle, when it holds no lock.
func (p *partition) append(b record.Batch, acks int16) (commitlog.AppendInfo, *role, error) {
	return p.appendAt(b, acks, NoEpoch, commitlog.OriginClient)
}

// appendAt is append at this leader epoch only, unless it is NoEpoch.
func (p *partition) appendAt(b record.Batch, acks int16, epoch int32, origin commitlog.Origin) (commitlog.AppendInfo, *role, error) {
	p.roleMu.RLock()
	defer p.roleMu.RUnlock()
	r := p.role.Load()
	if err := r.fence(epoch); err != nil {
		return commitlog.AppendInfo{}, r, err
	}
	if acks == AcksAll && r.underMinISR() {
		return commitlog.AppendInfo{}, r, protocol.Errorf(protocol.NotEnoughReplicas,
			"%d replicas in sync, %d needed", len(r.isr), r.minISR())
	}
	info, err := r.log.AppendAsLeader(b, r.leaderEpoch, origin)
	if err == nil {
		p.advance(r)
	}
	return info, r, err
}

// advance raises the high watermark to the least end of the replicas in sync. The caller holds roleMu.
func (p *partition) advance(r *role) {
	if !r.leads() || r.underMinISR() {
		return
	}
	reached := r.log.DurableEnd()
	if len(r.isr) > 1 {
		p.waitMu.Lock()
		for _, id := range r.isr {
			if id != p.m.nodeID {
				reached = min(reached, p.followers[id])
			}
		}
		p.waitMu.Unlock()
	}
	for {
		old := p.hw.Load()
		if reached <= old {
			return
		}
		if p.hw.CompareAndSwap(old, reached) {
			break
		}
	}
	// The log keeps it for the checkpoint. Two appends may come here in the wrong order: the last one sees it.
	for hw := p.hw.Load(); ; {
		r.log.SetHighWatermark(hw)
		now := p.hw.Load()
		if now == hw {
			return
		}
		hw = now
	}
}

// settle answers whoever waits for what the high watermark or the durable end has reached, and wakes fetches. Called
// without locks after something may have moved; moved says that it may have moved the log's end too.
func (p *partition) settle(moved bool, before int64) { resolveAll(p.reached(moved, before)) }

// reached is settle up to the answers: what it returns is to be resolved, soon and without locks.
func (p *partition) reached(moved bool, before int64) []resolution {
	hw := p.hw.Load()
	p.fetches.wake(moved, hw > before)
	if p.waiting.Load() == 0 {
		return nil
	}
	p.waitMu.Lock()
	r := p.role.Load()
	var done, synced []*waitEntry
	if r.leads() {
		done = p.byHW.popThrough(hw)
		synced = p.byDisk.popThrough(r.log.DurableEnd())
	}
	p.waiting.Add(-int32(len(done) + len(synced)))
	p.waitMu.Unlock()
	code := protocol.None
	if r.underMinISR() {
		code = protocol.NotEnoughReplicasAfterAppend
	}
	out := make([]resolution, 0, len(done)+len(synced))
	for _, e := range done {
		out = append(out, resolution{e, code})
	}
	for _, e := range synced {
		out = append(out, resolution{e, protocol.None})
	}
	return out
}

// await puts an entry of a delayed append into its queue, or resolves it at once when what it waits for has happened or
// cannot happen any more. epoch is the leader epoch of the append.
func (p *partition) await(e *waitEntry, epoch int32) {
	p.waitMu.Lock()
	if e.isOpen() {
		if e.disk {
			p.byDisk.push(e)
		} else {
			p.byHW.push(e)
		}
		p.waiting.Add(1)
	}
	p.waitMu.Unlock()
	// The role and the watermark are looked at after the entry can be seen: whoever changes them later finds it.
	if r := p.role.Load(); !r.leads() || r.leaderEpoch != epoch {
		if p.forget(e) {
			e.resolve(r.endCode())
		}
		return
	}
	if p.m.logs.Offline() != nil && p.forget(e) {
		e.resolve(protocol.KafkaStorageError)
		return
	}
	p.settle(false, p.hw.Load())
}

// endCode is what a waiting append is told when leadership has ended.
func (r *role) endCode() protocol.ErrorCode {
	if r.gone {
		return protocol.UnknownTopicOrPartition
	}
	return protocol.NotLeaderOrFollower
}

// isOpen says whether an entry still waits.
func (e *waitEntry) isOpen() bool {
	e.req.mu.Lock()
	defer e.req.mu.Unlock()
	return e.open
}

// storageFailed tells of a log that does not work. The log itself refuses everything from then on.
func (p *partition) storageFailed(err error) {
	if p.storageBad.CompareAndSwap(false, true) {
		p.m.events.Emit(PartitionFailed{Topic: p.topic, Partition: p.index, Doing: "read or write its log", Err: err})
	}
}

// forget takes an entry out of its queue; false when it is not there.
func (p *partition) forget(e *waitEntry) bool {
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	q := &p.byHW
	if e.disk {
		q = &p.byDisk
	}
	if !q.remove(e) {
		return false
	}
	p.waiting.Add(-1)
	return true
}

// failWaiters ends all waits of a leadership that is over. The new role is already stored.
func (p *partition) failWaiters(code protocol.ErrorCode) {
	p.waitMu.Lock()
	all := append(p.byHW.popAll(), p.byDisk.popAll()...)
	p.waiting.Add(-int32(len(all)))
	clear(p.followers)
	p.waitMu.Unlock()
	for _, e := range all {
		e.resolve(code)
	}
	p.fetches.wake(true, true)
}

// onDurable follows the log's durable end; the log's flusher calls it. What waits for a disk that has failed is told now.
func (p *partition) onDurable() {
	if err := p.m.logs.Offline(); err != nil {
		p.storageFailed(err)
		p.failWaiters(protocol.KafkaStorageError)
		return
	}
	before := p.hw.Load()
	p.roleMu.RLock()
	p.advance(p.role.Load())
	p.roleMu.RUnlock()
	p.settle(false, before)
}

// followerAt records how far another replica's log reaches, known from the offset that it fetches. What that answers is
// the caller's to resolve.
func (p *partition) followerAt(id int32, end int64) []resolution {
	before := p.hw.Load()
	p.roleMu.RLock()
	r := p.role.Load()
	if r.leads() && slices.Contains(r.replicas, id) {
		p.waitMu.Lock()
		if p.followers == nil {
			p.followers = make(map[int32]int64)
		}
		p.followers[id] = end
		p.waitMu.Unlock()
		p.advance(r)
	}
	p.roleMu.RUnlock()
	return p.reached(false, before)
}
