package group

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

// OffsetsTopic is the topic that holds offsets and groups.
const OffsetsTopic = "__consumer_offsets"

// A Record is one record of OffsetsTopic; a nil Value is a tombstone. The first two bytes of key and value are the
// version of what follows (OffsetCommitKey.json, OffsetCommitValue.json, GroupMetadataKey.json, GroupMetadataValue.json):
//
//	key 0, 1   group, topic, partition     value 3  offset, leader epoch, metadata, commit time
//	                                             1  offset, metadata, commit time, expiry time
//	key 2      group                       value 3  protocol type, generation, protocol, leader, time of the state,
//	                                                members with ids, host, timeouts, subscription, assignment
//
// Keys of other versions belong to protocols that are not coordinated here.
type Record struct {
	Key, Value []byte
}

const (
	offsetKeyVersion     = 1
	groupKeyVersion      = 2
	offsetValueVersion   = 3
	offsetExpiresVersion = 1 // the one that says when the offset expires
	groupValueVersion    = 3
	noTimestamp          = int64(-1)
)

// offset is one committed offset.
type offset struct {
	at          int64
	leaderEpoch int32 // -1 unknown
	metadata    string
	commitMs    int64
	expireMs    int64 // noTimestamp: as the broker's retention has it
}

func offsetKey(group, topic string, partition int32) []byte {
	key := kmsg.OffsetCommitKey{Version: offsetKeyVersion, Group: group, Topic: topic, Partition: partition}
	return key.AppendTo(nil)
}

func offsetRecord(group, topic string, partition int32, o offset) Record {
	v := kmsg.OffsetCommitValue{
		Version: offsetValueVersion, Offset: o.at, LeaderEpoch: o.leaderEpoch, Metadata: o.metadata, CommitTimestamp: o.commitMs,
	}
	if o.expireMs != noTimestamp {
		v.Version, v.ExpireTimestamp = offsetExpiresVersion, o.expireMs
	}
	return Record{Key: offsetKey(group, topic, partition), Value: v.AppendTo(nil)}
}

func groupKey(group string) []byte {
	key := kmsg.GroupMetadataKey{Version: groupKeyVersion, Group: group}
	return key.AppendTo(nil)
}

// groupRecord is the group with these assignments, by member id.
func groupRecord(g *group, assignments map[string][]byte) Record {
	v := kmsg.NewGroupMetadataValue()
	v.Version, v.ProtocolType, v.Generation, v.Protocol = groupValueVersion, g.protocolType, g.generation, g.protocol
	v.CurrentStateTimestamp = g.stateMs
	if g.leader != "" {
		v.Leader = &g.leader
	}
	for _, m := range g.members {
		out := kmsg.NewGroupMetadataValueMember()
		out.MemberID, out.InstanceID, out.ClientID, out.ClientHost = m.id, m.instance, m.clientID, m.clientHost
		out.SessionTimeoutMillis, out.RebalanceTimeoutMillis = m.sessionMs, m.rebalanceMs
		out.Subscription, out.Assignment = m.metadata(g.protocol), assignments[m.id]
		v.Members = append(v.Members, out)
	}
	return Record{Key: groupKey(g.id), Value: v.AppendTo(nil)}
}

// parsed is a Record that was understood: an offset, or a group.
type parsed struct {
	group     string
	isOffset  bool
	topic     string
	partition int32
	offset    *offset                  // nil: removed
	value     *kmsg.GroupMetadataValue // nil: removed
}

// parse reads a record. known is false, without an error, for keys of other protocols. Errors are *protocol.CorruptionError.
func parse(r Record) (p parsed, known bool, err error) {
	if len(r.Key) < 2 {
		return p, false, corrupt("a key of %d bytes", len(r.Key))
	}
	defer func() { // kmsg's readers are bounds-checked; a slip in them must not stop the load
		if bad := recover(); bad != nil {
			known, err = false, corrupt("%v", bad)
		}
	}()
	switch version := int16(binary.BigEndian.Uint16(r.Key)); version {
	case 0, offsetKeyVersion:
		return parseOffset(r)
	case groupKeyVersion:
		return parseGroup(r)
	}
	return p, false, nil
}

func parseOffset(r Record) (p parsed, known bool, err error) {
	var key kmsg.OffsetCommitKey
	if err := key.ReadFrom(r.Key); err != nil {
		return p, false, corrupt("offset key: %v", err)
	}
	p = parsed{group: key.Group, isOffset: true, topic: key.Topic, partition: key.Partition}
	if r.Value == nil {
		return p, true, nil
	}
	v := kmsg.NewOffsetCommitValue()
	if err := v.ReadFrom(r.Value); err != nil || v.Version < 0 {
		return p, false, corrupt("offset value of version %d: %v", v.Version, err)
	}
	p.offset = &offset{at: v.Offset, leaderEpoch: -1, metadata: v.Metadata, commitMs: v.CommitTimestamp, expireMs: noTimestamp}
	if v.Version >= 3 {
		p.offset.leaderEpoch = v.LeaderEpoch
	}
	if v.Version == offsetExpiresVersion {
		p.offset.expireMs = v.ExpireTimestamp
	}
	return p, true, nil
}

func parseGroup(r Record) (p parsed, known bool, err error) {
	var key kmsg.GroupMetadataKey
	if err := key.ReadFrom(r.Key); err != nil {
		return p, false, corrupt("group key: %v", err)
	}
	p = parsed{group: key.Group}
	if r.Value == nil {
		return p, true, nil
	}
	v := kmsg.NewGroupMetadataValue()
	if err := v.ReadFrom(r.Value); err != nil || v.Version < 0 {
		return p, false, corrupt("group value of version %d: %v", v.Version, err)
	}
	p.value = &v
	return p, true, nil
}

func corrupt(format string, args ...any) error {
	return &protocol.CorruptionError{Where: "a record of " + OffsetsTopic, What: fmt.Sprintf(format, args...)}
}
