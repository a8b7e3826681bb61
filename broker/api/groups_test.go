package api

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/group"
	"varve/metastore/controller"
	"varve/protocol"
)

// fakeGroups answers everything at once: commits and deletions with code, fetches with offset 5 for partition 0.
type fakeGroups struct {
	node    int32
	code    protocol.ErrorCode
	commits []*kmsg.OffsetCommitRequest
	deletes []*kmsg.OffsetDeleteRequest
	leaves  []*kmsg.LeaveGroupRequest
	who     group.Client
}

func (f *fakeGroups) Locate(context.Context, string) (int32, protocol.ErrorCode) {
	return f.node, f.code
}
func (f *fakeGroups) Topic() controller.CreateTopic {
	return controller.CreateTopic{Name: group.OffsetsTopic, Partitions: 50, ReplicationFactor: 1}
}
func (f *fakeGroups) Join(who group.Client, req *kmsg.JoinGroupRequest, done func(*kmsg.JoinGroupResponse)) {
	f.who = who
	done(group.FailJoin(req.MemberID, f.code))
}
func (f *fakeGroups) Sync(_ group.Client, _ *kmsg.SyncGroupRequest, done func(*kmsg.SyncGroupResponse)) {
	done(group.FailSync(f.code))
}
func (f *fakeGroups) Heartbeat(_ group.Client, _ *kmsg.HeartbeatRequest, done func(*kmsg.HeartbeatResponse)) {
	done(group.FailHeartbeat(f.code))
}
func (f *fakeGroups) Leave(_ group.Client, req *kmsg.LeaveGroupRequest, done func(*kmsg.LeaveGroupResponse)) {
	f.leaves = append(f.leaves, req)
	resp := group.FailLeave(protocol.None)
	for _, m := range req.Members {
		resp.Members = append(resp.Members, kmsg.LeaveGroupResponseMember{MemberID: m.MemberID, ErrorCode: int16(f.code)})
	}
	done(resp)
}
func (f *fakeGroups) Commit(_ group.Client, req *kmsg.OffsetCommitRequest, done func(*kmsg.OffsetCommitResponse)) {
	f.commits = append(f.commits, req)
	done(group.FailCommit(req, f.code))
}
func (f *fakeGroups) Fetch(_ group.Client, q *group.FetchOffsets, done func(*kmsg.OffsetFetchResponseGroup)) {
	resp := group.FailFetch(q.Group.Group, f.code)
	topics := q.Group.Topics
	if topics == nil {
		topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "a", Partitions: []int32{0}}, {Topic: "gone", Partitions: []int32{0}}}
	}
	if f.code == protocol.None {
		for _, t := range topics {
			out := noOffsets(t, protocol.None)
			for i := range out.Partitions {
				if out.Partitions[i].Partition == 0 {
					out.Partitions[i].Offset = 5
				}
			}
			resp.Topics = append(resp.Topics, out)
		}
	}
	done(resp)
}
func (f *fakeGroups) DeleteOffsets(_ group.Client, req *kmsg.OffsetDeleteRequest, done func(*kmsg.OffsetDeleteResponse)) {
	f.deletes = append(f.deletes, req)
	resp := group.FailDeleteOffsets(f.code)
	for _, t := range req.Topics {
		out := kmsg.OffsetDeleteResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions, kmsg.OffsetDeleteResponseTopicPartition{Partition: p.Partition, ErrorCode: int16(protocol.GroupSubscribedToTopic)})
		}
		resp.Topics = append(resp.Topics, out)
	}
	done(resp)
}
func (f *fakeGroups) Describe(_ group.Client, q *group.Describe, done func(*kmsg.DescribeGroupsResponseGroup)) {
	done(group.FailDescribe(q.Group, f.code))
}
func (f *fakeGroups) Delete(_ group.Client, id string, done func(*kmsg.DeleteGroupsResponseGroup)) {
	done(group.FailDelete(id, f.code))
}
func (f *fakeGroups) List(_ group.Client, _ *group.List, done func([]kmsg.ListGroupsResponseGroup, protocol.ErrorCode)) {
	done([]kmsg.ListGroupsResponseGroup{{Group: "g", GroupState: "Stable", GroupType: "classic"}}, f.code)
}

func sampleOffsetCommit() kmsg.Request {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Group = "g"
	parts := []kmsg.OffsetCommitRequestTopicPartition{{Partition: 0, Offset: 7, Metadata: kmsg.StringPtr("m")}, {Partition: 9, Offset: 8}}
	r.Topics = []kmsg.OffsetCommitRequestTopic{
		{Topic: "nope", TopicID: protocol.UUID{0x77}, Partitions: parts[:1]}, {Topic: "a", TopicID: idA, Partitions: parts},
	}
	return r
}

func sampleOffsetFetch() kmsg.Request {
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Group = "g"
	r.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "a", Partitions: []int32{0, 1}}}
	r.Groups = []kmsg.OffsetFetchRequestGroup{
		{Group: "g", Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "nope", TopicID: protocol.UUID{0x77}, Partitions: []int32{0}}, {Topic: "a", TopicID: idA, Partitions: []int32{0, 1}}}},
		{Group: "h"},
	}
	return r
}

func sampleFindCoordinator() kmsg.Request {
	r := kmsg.NewPtrFindCoordinatorRequest()
	r.CoordinatorKey, r.CoordinatorKeys = "g", []string{"g", "h"}
	return r
}

func sampleJoinGroup() kmsg.Request {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Group, r.MemberID, r.ProtocolType, r.SessionTimeoutMillis = "g", "m", "consumer", 10_000
	r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 0}}}
	return r
}

func sampleLeaveGroup() kmsg.Request {
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Group, r.MemberID, r.Members = "g", "m", []kmsg.LeaveGroupRequestMember{{MemberID: "m"}, {InstanceID: kmsg.StringPtr("i")}}
	return r
}

func sampleSyncGroup() kmsg.Request {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Group, r.MemberID = "g", "m"
	r.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: "m", MemberAssignment: []byte("x")}}
	return r
}

func sampleDescribeGroups() kmsg.Request {
	r := kmsg.NewPtrDescribeGroupsRequest()
	r.Groups, r.IncludeAuthorizedOperations = []string{"g", "h"}, true
	return r
}

func sampleDeleteGroups() kmsg.Request {
	r := kmsg.NewPtrDeleteGroupsRequest()
	r.Groups = []string{"g"}
	return r
}

func sampleOffsetDelete() kmsg.Request {
	r := kmsg.NewPtrOffsetDeleteRequest()
	r.Group = "g"
	r.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "nope", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}, {Topic: "a", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 9}, {Partition: 1}}}}
	return r
}

func askAt[R kmsg.Response](b *bench, version int16, req kmsg.Request) R {
	b.t.Helper()
	req.SetVersion(version)
	return ask[R](b, req)
}

func TestOffsetCommitLeavesUnknownTopicsOut(t *testing.T) {
	for version := int16(2); version <= 10; version++ {
		b := newBench(t)
		b.groups.code = protocol.RebalanceInProgress
		resp := askAt[*kmsg.OffsetCommitResponse](b, version, sampleOffsetCommit())
		unknown := protocol.UnknownTopicOrPartition
		if version >= 10 {
			unknown = protocol.UnknownTopicID
		}
		got := []int16{resp.Topics[0].Partitions[0].ErrorCode, resp.Topics[1].Partitions[0].ErrorCode, resp.Topics[1].Partitions[1].ErrorCode}
		want := []int16{int16(unknown), int16(protocol.RebalanceInProgress), int16(protocol.UnknownTopicOrPartition)}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("version %d: codes %v, want %v", version, got, want)
			}
		}
		if len(b.groups.commits) != 1 || len(b.groups.commits[0].Topics) != 1 || b.groups.commits[0].Topics[0].Topic != "a" || len(b.groups.commits[0].Topics[0].Partitions) != 1 {
			t.Errorf("version %d: committed %+v", version, b.groups.commits)
		}
	}
}

func TestOffsetFetchOfEveryVersion(t *testing.T) {
	for version := int16(1); version <= 10; version++ {
		b := newBench(t)
		resp := askAt[*kmsg.OffsetFetchResponse](b, version, sampleOffsetFetch())
		if version < 8 {
			if len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].Offset != 5 || resp.Topics[0].Partitions[1].Offset != -1 {
				t.Errorf("version %d: %+v", version, resp.Topics)
			}
		} else if len(resp.Groups) != 2 || len(resp.Groups[0].Topics) != 2 {
			t.Errorf("version %d: %+v", version, resp.Groups)
		}
		if version >= 10 {
			known, unknown, all := resp.Groups[0].Topics[0], resp.Groups[0].Topics[1], resp.Groups[1].Topics
			if known.TopicID != idA || unknown.Partitions[0].ErrorCode != int16(protocol.UnknownTopicID) || len(all) != 1 || all[0].TopicID != idA {
				t.Errorf("ids: %+v", resp.Groups)
			}
		}
		b.groups.code = protocol.NotCoordinator
		resp = askAt[*kmsg.OffsetFetchResponse](b, version, sampleOffsetFetch())
		switch {
		case version < 2 && resp.Topics[0].Partitions[1].ErrorCode != int16(protocol.NotCoordinator),
			version >= 2 && version < 8 && resp.ErrorCode != int16(protocol.NotCoordinator),
			version >= 8 && (resp.Groups[0].ErrorCode != int16(protocol.NotCoordinator) || len(resp.Groups[0].Topics) > 0):
			t.Errorf("version %d does not say that this is not the coordinator: %+v", version, resp)
		}
	}
}

func TestOffsetFetchOfNothing(t *testing.T) {
	b := newBench(t)
	req := kmsg.NewPtrOffsetFetchRequest()
	if resp := askAt[*kmsg.OffsetFetchResponse](b, 1, req); len(resp.Topics) != 0 {
		t.Errorf("version 1 cannot ask for all topics: %+v", resp.Topics)
	}
	if resp := askAt[*kmsg.OffsetFetchResponse](b, 5, req); len(resp.Topics) != 2 {
		t.Errorf("null topics are all: %+v", resp.Topics)
	}
	if resp := askAt[*kmsg.OffsetFetchResponse](b, 8, req); len(resp.Groups) != 0 {
		t.Errorf("no groups: %+v", resp.Groups)
	}
}

func TestFindCoordinator(t *testing.T) {
	for version := int16(0); version <= 6; version++ {
		b := newBench(t)
		b.groups.node = 1
		resp := askAt[*kmsg.FindCoordinatorResponse](b, version, sampleFindCoordinator())
		node, host, n := resp.NodeID, resp.Host, 1
		if version >= 4 {
			node, host, n = resp.Coordinators[1].NodeID, resp.Coordinators[1].Host, len(resp.Coordinators)
		}
		if node != 1 || host != "h" || version >= 4 && n != 2 {
			t.Errorf("version %d: %+v", version, resp)
		}
		b.groups.node = 3 // fenced, and not on this listener
		if resp := askAt[*kmsg.FindCoordinatorResponse](b, version, sampleFindCoordinator()); version < 4 && resp.ErrorCode != int16(protocol.CoordinatorNotAvailable) {
			t.Errorf("version %d of a fenced broker: %+v", version, resp)
		}
		req := sampleFindCoordinator().(*kmsg.FindCoordinatorRequest)
		req.CoordinatorType = 1
		if resp := askAt[*kmsg.FindCoordinatorResponse](b, version, req); version >= 1 && version < 4 && resp.ErrorCode != int16(protocol.InvalidRequest) {
			t.Errorf("version %d of a transaction: %+v", version, resp)
		}
	}
}

func TestLeaveGroupOfOneMember(t *testing.T) {
	for version := int16(0); version <= 5; version++ {
		b := newBench(t)
		b.groups.code = protocol.UnknownMemberID
		resp := askAt[*kmsg.LeaveGroupResponse](b, version, sampleLeaveGroup())
		if version < 3 && (resp.ErrorCode != int16(protocol.UnknownMemberID) || len(b.groups.leaves[0].Members) != 1) {
			t.Errorf("version %d: %+v", version, resp)
		}
		if version >= 3 && (resp.ErrorCode != 0 || len(resp.Members) != 2) {
			t.Errorf("version %d: %+v", version, resp)
		}
	}
}

func TestOffsetDeleteKeepsOrder(t *testing.T) {
	b := newBench(t)
	resp := askAt[*kmsg.OffsetDeleteResponse](b, 0, sampleOffsetDelete())
	unknown, inUse := int16(protocol.UnknownTopicOrPartition), int16(protocol.GroupSubscribedToTopic)
	if resp.Topics[0].Partitions[0].ErrorCode != unknown || resp.Topics[1].Partitions[0].ErrorCode != unknown || resp.Topics[1].Partitions[1].ErrorCode != inUse {
		t.Errorf("%+v", resp.Topics)
	}
	b.groups.code = protocol.GroupIDNotFound
	if resp := askAt[*kmsg.OffsetDeleteResponse](b, 0, sampleOffsetDelete()); resp.ErrorCode != int16(protocol.GroupIDNotFound) || len(resp.Topics) != 0 {
		t.Errorf("%+v", resp)
	}
}

func TestDescribeListAndDeleteGroups(t *testing.T) {
	b := newBench(t)
	if resp := askAt[*kmsg.DescribeGroupsResponse](b, 5, sampleDescribeGroups()); len(resp.Groups) != 2 || resp.Groups[1].Group != "h" || resp.Groups[0].AuthorizedOperations != groupOperations {
		t.Errorf("%+v", resp.Groups)
	}
	if resp := askAt[*kmsg.ListGroupsResponse](b, 5, kmsg.NewPtrListGroupsRequest()); len(resp.Groups) != 1 || resp.Groups[0].GroupType != "classic" {
		t.Errorf("%+v", resp)
	}
	b.groups.code = protocol.CoordinatorLoadInProgress
	if resp := askAt[*kmsg.ListGroupsResponse](b, 0, kmsg.NewPtrListGroupsRequest()); resp.ErrorCode != int16(protocol.CoordinatorLoadInProgress) || len(resp.Groups) != 0 {
		t.Errorf("%+v", resp)
	}
	b.groups.code = protocol.NonEmptyGroup
	if resp := askAt[*kmsg.DeleteGroupsResponse](b, 2, sampleDeleteGroups()); resp.Groups[0].ErrorCode != int16(protocol.NonEmptyGroup) {
		t.Errorf("%+v", resp)
	}
}

func TestJoinGroupTellsWhoAsks(t *testing.T) {
	b := newBench(t)
	for version := int16(0); version <= 9; version++ {
		if resp := askAt[*kmsg.JoinGroupResponse](b, version, sampleJoinGroup()); resp.MemberID != "m" || resp.Generation != -1 {
			t.Errorf("version %d: %+v", version, resp)
		}
	}
	if b.groups.who.Host == "" || b.groups.who.Host[0] != '/' {
		t.Errorf("client %+v", b.groups.who)
	}
}
