package group

import (
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// bodyOf reads a request of a transcript. The group is g unless it says otherwise.
func bodyOf(t testing.TB, d *datadriven.TestData) any {
	a := args{t, d}
	group := a.str("group", "g")
	switch d.Cmd {
	case "join":
		return a.join(group)
	case "sync":
		r := kmsg.NewPtrSyncGroupRequest()
		r.SetVersion(int16(a.num("version", 5)))
		r.Group, r.MemberID, r.InstanceID, r.Generation = group, a.str("member", ""), a.ptr("instance"), a.num("generation", 1)
		r.Protocol, r.ProtocolType = kmsg.StringPtr(a.str("protocol", "range")), kmsg.StringPtr(a.str("type", "consumer"))
		if a.str("protocol", "") == "null" {
			r.Protocol = nil
		}
		for _, m := range a.list("assign") {
			r.GroupAssignment = append(r.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: m, MemberAssignment: []byte("of-" + m)})
		}
		return r
	case "heartbeat":
		r := kmsg.NewPtrHeartbeatRequest()
		r.Group, r.MemberID, r.InstanceID, r.Generation = group, a.str("member", ""), a.ptr("instance"), a.num("generation", 1)
		return r
	case "leave":
		r := kmsg.NewPtrLeaveGroupRequest()
		r.Group = group
		for _, id := range a.list("member") {
			r.Members = append(r.Members, kmsg.LeaveGroupRequestMember{MemberID: id, InstanceID: a.ptr("instance")})
		}
		if len(r.Members) == 0 {
			r.Members = []kmsg.LeaveGroupRequestMember{{InstanceID: a.ptr("instance")}}
		}
		return r
	}
	return a.offsets(group)
}

func (a args) join(group string) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.SetVersion(int16(a.num("version", 9)))
	r.Group, r.MemberID, r.InstanceID, r.ProtocolType = group, a.str("member", ""), a.ptr("instance"), a.str("type", "consumer")
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = a.num("session", 10_000), a.num("rebalance", 30_000)
	topics := a.list("topics", "t")
	for _, p := range a.list("protocols", "range") {
		r.Protocols = append(r.Protocols, kmsg.JoinGroupRequestProtocol{Name: p, Metadata: subscriptionOf(topics)})
	}
	return r
}

func subscriptionOf(topics []string) []byte {
	meta := kmsg.ConsumerMemberMetadata{Topics: topics}
	return meta.AppendTo(nil)
}

func (a args) offsets(group string) any {
	switch a.d.Cmd {
	case "commit":
		r := kmsg.NewPtrOffsetCommitRequest()
		r.SetVersion(int16(a.num("version", 9)))
		r.Group, r.MemberID, r.InstanceID, r.Generation = group, a.str("member", ""), a.ptr("instance"), a.num("generation", -1)
		r.RetentionTimeMillis = int64(a.num("retention", -1))
		for _, tp := range a.list("offsets", "t-0:1") {
			topic, partition, offset := a.tp(tp)
			r.Topics = append(r.Topics, kmsg.OffsetCommitRequestTopic{Topic: topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{
				{Partition: partition, Offset: offset, LeaderEpoch: -1, Metadata: a.ptr("metadata")}}})
		}
		return r
	case "fetch":
		f := &FetchOffsets{RequireStable: a.str("stable", "") == "true"}
		f.Group.Group = group
		for _, tp := range a.list("offsets") {
			topic, partition, _ := a.tp(tp)
			f.Group.Topics = append(f.Group.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: topic, Partitions: []int32{partition}})
		}
		return f
	case "delete-offsets":
		r := kmsg.NewPtrOffsetDeleteRequest()
		r.Group = group
		for _, tp := range a.list("offsets", "t-0") {
			topic, partition, _ := a.tp(tp)
			r.Topics = append(r.Topics, kmsg.OffsetDeleteRequestTopic{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: partition}}})
		}
		return r
	case "describe":
		return &Describe{Group: group, Version: int16(a.num("version", 6))}
	case "delete":
		return &Delete{Group: group}
	case "list":
		return &List{States: a.list("states"), Types: a.list("types")}
	}
	a.t.Fatal("no such command", a.d.Cmd)
	return nil
}
