package group

import (
	"maps"
	"slices"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

// groupNotFoundVersion is the first version of OffsetCommit that tells of an unknown group by a code of its own.
const groupNotFoundVersion = 9

// commit stores offsets. Topics that do not exist were taken out before.
func (m *Machine) commit(r *Request, req *kmsg.OffsetCommitRequest) {
	g := m.groups[req.Group]
	if err := m.checkCommit(g, req); err != protocol.None {
		m.answer(r.Ticket, FailCommit(req, err))
		return
	}
	if mem := g.of(req.MemberID); mem != nil && (g.state == Stable || g.state == Preparing) {
		m.armSession(g, mem.id, mem.session())
	}
	resp := FailCommit(req, protocol.None)
	var stored []parsed
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if p.Metadata != nil && tooLong(*p.Metadata, m.conf.MaxOffsetMetadata) {
				resp.Topics[i].Partitions[j].ErrorCode = int16(protocol.OffsetMetadataTooLarge)
				continue
			}
			o := m.offsetOf(req, p)
			stored = append(stored, parsed{group: req.Group, topic: t.Topic, partition: p.Partition, offset: &o})
		}
	}
	if len(stored) == 0 {
		m.answer(r.Ticket, resp)
		return
	}
	m.writeOffsets(stored, func(err protocol.ErrorCode) {
		if err != protocol.None {
			resp = FailCommit(req, err)
		}
		m.answer(r.Ticket, resp)
	})
}

// checkCommit lets those commit that belong to the present generation, and those that belong to none while the group is
// empty (ClassicGroup.validateOffsetCommit).
func (m *Machine) checkCommit(g *group, req *kmsg.OffsetCommitRequest) protocol.ErrorCode {
	switch {
	case g == nil && req.Generation < 0:
		if len(m.groups) >= maxGroupsPerPartition {
			return protocol.CoordinatorNotAvailable
		}
		return protocol.None
	case g == nil && req.Version >= groupNotFoundVersion:
		return protocol.GroupIDNotFound
	case g == nil:
		return protocol.IllegalGeneration
	case req.Generation < 0 && g.state == Empty:
		return protocol.None
	case req.Generation >= 0 || req.MemberID != "" || req.InstanceID != nil:
		if err := g.validate(req.MemberID, req.InstanceID); err != nil {
			return protocol.CodeOf(err)
		}
		if req.Generation != g.generation {
			return protocol.IllegalGeneration
		}
	case g.state != Empty:
		return protocol.UnknownMemberID
	}
	if g.state == Completing {
		return protocol.RebalanceInProgress
	}
	return protocol.None
}

// of returns a member of a group that may be nil.
func (g *group) of(id string) *member {
	if g == nil {
		return nil
	}
	return g.byID[id]
}

func (m *Machine) offsetOf(req *kmsg.OffsetCommitRequest, p *kmsg.OffsetCommitRequestTopicPartition) offset {
	o := offset{at: p.Offset, leaderEpoch: p.LeaderEpoch, commitMs: m.nowMs(), expireMs: noTimestamp}
	if p.Metadata != nil {
		o.metadata = *p.Metadata
	}
	if req.Version >= 2 && req.Version <= 4 && req.RetentionTimeMillis >= 0 {
		o.expireMs = o.commitMs + req.RetentionTimeMillis
	}
	return o
}

// tooLong compares as Java counts.
func tooLong(s string, units int) bool {
	return len(s) > units && len(utf16.Encode([]rune(s))) > units
}

// FailCommit is the answer to an OffsetCommit with one code for all partitions.
func FailCommit(req *kmsg.OffsetCommitRequest, err protocol.ErrorCode) *kmsg.OffsetCommitResponse {
	resp := kmsg.NewPtrOffsetCommitResponse()
	for i := range req.Topics {
		t := kmsg.NewOffsetCommitResponseTopic()
		t.Topic, t.TopicID = req.Topics[i].Topic, req.Topics[i].TopicID
		for _, in := range req.Topics[i].Partitions {
			p := kmsg.NewOffsetCommitResponseTopicPartition()
			p.Partition, p.ErrorCode = in.Partition, int16(err)
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// fetch answers with what is stored. Who asks for stable offsets waits for those that are being stored.
func (m *Machine) fetch(r *Request, f *FetchOffsets) {
	if f.RequireStable {
		m.afterWrites(func() { m.answer(r.Ticket, m.fetched(&f.Group)) })
		return
	}
	m.answer(r.Ticket, m.fetched(&f.Group))
}

func (m *Machine) fetched(req *kmsg.OffsetFetchRequestGroup) *kmsg.OffsetFetchResponseGroup {
	resp := FailFetch(req.Group, protocol.None)
	var offsets map[string]map[int32]offset
	if g := m.groups[req.Group]; g != nil {
		offsets = g.offsets
	}
	if req.Topics == nil {
		for _, topic := range slices.Sorted(maps.Keys(offsets)) {
			parts := slices.Sorted(maps.Keys(offsets[topic]))
			resp.Topics = append(resp.Topics, fetchedTopic(topic, parts, offsets[topic]))
		}
		return resp
	}
	for i := range req.Topics {
		t := fetchedTopic(req.Topics[i].Topic, req.Topics[i].Partitions, offsets[req.Topics[i].Topic])
		t.TopicID = req.Topics[i].TopicID
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func fetchedTopic(topic string, parts []int32, offsets map[int32]offset) kmsg.OffsetFetchResponseGroupTopic {
	t := kmsg.NewOffsetFetchResponseGroupTopic()
	t.Topic = topic
	for _, index := range parts {
		p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = index, -1, -1, new(string)
		if o, ok := offsets[index]; ok {
			p.Offset, p.LeaderEpoch, p.Metadata = o.at, o.leaderEpoch, &o.metadata
		}
		t.Partitions = append(t.Partitions, p)
	}
	return t
}

// FailFetch is the answer to an OffsetFetch for one group, without offsets.
func FailFetch(id string, err protocol.ErrorCode) *kmsg.OffsetFetchResponseGroup {
	resp := kmsg.NewOffsetFetchResponseGroup()
	resp.Group, resp.ErrorCode = id, int16(err)
	return &resp
}

// deleteOffsets removes offsets of topics that no member subscribes to (KIP-496).
func (m *Machine) deleteOffsets(r *Request, req *kmsg.OffsetDeleteRequest) {
	g := m.groups[req.Group]
	if err := checkDeleteOffsets(g, req); err != protocol.None {
		m.answer(r.Ticket, FailDeleteOffsets(err))
		return
	}
	resp := FailDeleteOffsets(protocol.None)
	var gone []parsed
	for i := range req.Topics {
		in := &req.Topics[i]
		t := kmsg.NewOffsetDeleteResponseTopic()
		t.Topic = in.Topic
		inUse := g.subscribedTo(in.Topic)
		for _, part := range in.Partitions {
			p := kmsg.NewOffsetDeleteResponseTopicPartition()
			p.Partition = part.Partition
			if inUse {
				p.ErrorCode = int16(protocol.GroupSubscribedToTopic)
			} else if _, ok := g.offsets[in.Topic][part.Partition]; ok {
				gone = append(gone, parsed{group: g.id, topic: in.Topic, partition: part.Partition})
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	m.remove(gone, nil, func(err protocol.ErrorCode) {
		if err != protocol.None {
			resp = FailDeleteOffsets(err)
		}
		m.answer(r.Ticket, resp)
	})
}

func checkDeleteOffsets(g *group, req *kmsg.OffsetDeleteRequest) protocol.ErrorCode {
	switch {
	case req.Group == "":
		return protocol.InvalidGroupID
	case g == nil:
		return protocol.GroupIDNotFound
	case g.state != Empty && g.protocolType != consumerProtocol:
		return protocol.NonEmptyGroup
	}
	return protocol.None
}

// FailDeleteOffsets is the answer to an OffsetDelete with a code for all of it.
func FailDeleteOffsets(err protocol.ErrorCode) *kmsg.OffsetDeleteResponse {
	resp := kmsg.NewPtrOffsetDeleteResponse()
	resp.ErrorCode = int16(err)
	return resp
}

// remove stores tombstones of offsets and of groups, then takes them out, then calls then.
func (m *Machine) remove(offsets []parsed, groups []string, then func(protocol.ErrorCode)) {
	records := make([]Record, 0, len(offsets)+len(groups))
	for _, p := range offsets {
		records = append(records, Record{Key: offsetKey(p.group, p.topic, p.partition)})
	}
	for _, id := range groups {
		records = append(records, Record{Key: groupKey(id)})
	}
	if len(records) == 0 {
		then(protocol.None)
		return
	}
	m.write(records, func(err protocol.ErrorCode) {
		if err == protocol.None {
			for _, p := range offsets {
				m.putOffset(p.group, p.topic, p.partition, nil)
			}
			for _, id := range groups {
				m.dropGroup(id)
			}
		}
		then(err)
	})
}

// all lists a group's offsets in order.
func (g *group) all() (out []parsed) {
	for _, topic := range slices.Sorted(maps.Keys(g.offsets)) {
		for _, index := range slices.Sorted(maps.Keys(g.offsets[topic])) {
			o := g.offsets[topic][index]
			out = append(out, parsed{group: g.id, topic: topic, partition: index, offset: &o})
		}
	}
	return out
}

// topicsGone removes the offsets of deleted topics, whatever the group does, those that are being stored too: a topic that is made
// anew under the same name has other records at them.
func (m *Machine) topicsGone(topics []string) {
	remove := func() { m.removeTopics(func(topic string) bool { return slices.Contains(topics, topic) }) }
	if len(m.storing) == 0 {
		remove()
		return
	}
	m.afterWrites(remove)
}

func (m *Machine) removeTopics(gone func(topic string) bool) {
	var offsets []parsed
	for _, g := range m.sorted() {
		for topic := range g.offsets {
			if gone(topic) {
				offsets = append(offsets, slices.DeleteFunc(g.all(), func(p parsed) bool { return !gone(p.topic) })...)
				break
			}
		}
	}
	m.removeQuietly(offsets, nil, "remove offsets of deleted topics")
}

func (m *Machine) removeQuietly(offsets []parsed, groups []string, doing string) {
	m.remove(offsets, groups, func(err protocol.ErrorCode) {
		switch {
		case err != protocol.None:
			m.emit(StoreFailed{Doing: doing, Code: err})
		case len(offsets)+len(groups) > 0:
			m.emit(Removed{Offsets: len(offsets), Groups: len(groups), Doing: doing})
		}
	})
}

// expireOffsets removes offsets past their retention, and empty groups that have none left. A group that commits just now is
// left for the next time: the tombstone of an old offset would come after the new one in the log.
func (m *Machine) expireOffsets() {
	m.timers.set(timerKey{kind: timerExpire}, m.now.Add(m.conf.RetentionCheck))
	if !m.expires {
		return
	}
	var offsets []parsed
	var groups []string
	for _, g := range m.sorted() {
		if m.storing[g.id] > 0 {
			continue
		}
		kept := false
		for _, p := range g.all() {
			if m.expired(g, &p) {
				offsets = append(offsets, p)
			} else {
				kept = true
			}
		}
		if !kept && g.state == Empty && len(g.pending) == 0 {
			groups = append(groups, g.id)
		}
	}
	m.removeQuietly(offsets, groups, "remove what is past its retention")
}

// expired is Kafka's rule (KIP-211): in a group with members, of topics nobody subscribes to any more; in an empty one, once it
// has been empty for so long; without membership, by the age of the commit.
func (m *Machine) expired(g *group, p *parsed) bool {
	since := p.offset.commitMs
	switch {
	case g.protocolType == "":
	case g.state == Empty:
		if g.stateMs != noTimestamp {
			since = g.stateMs
		}
	case g.state != Stable || g.protocolType != consumerProtocol || !g.topicsRead || g.subscribedTo(p.topic):
		return false
	}
	if p.offset.expireMs != noTimestamp {
		return m.nowMs() >= p.offset.expireMs
	}
	return m.nowMs()-since >= m.conf.Retention.Milliseconds()
}
