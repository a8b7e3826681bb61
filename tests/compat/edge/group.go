package edge

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The states that a group can be brought into before a call.
type groupState int

const (
	nobody     groupState = iota // there is no such group
	committed                    // it has one offset, of edge-a partition 0, and never had a member
	left                         // its only member has left; it has that offset too
	pending                      // its only member got an id and has not joined
	completing                   // its only member has joined and has sent no assignment
	stable                       // its only member has its assignment
	preparing                    // a second member has joined, the first has not heard of it
	static                       // stable; the member has an instance id
)

const (
	instance    = "edge-instance"
	sessionMs   = 600_000 // no session ends within a run
	stateWait   = 10 * time.Second
	joinVersion = 9

	groupMaxSize = 3 // members
)

// membership is what a client knows of its group.
type membership struct {
	group, member string
	generation    int32
}

// joins is a JoinGroup of a consumer of edge-a, which knows the balancer "range".
func joins(group, member string) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.MemberID = joinVersion, group, member
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.ProtocolType = sessionMs, sessionMs, "consumer"
	r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscription()}}
	return r
}

func subscription() []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Topics = []string{topicA}
	return m.AppendTo(nil)
}

// syncs is a SyncGroup that assigns nothing.
func syncs(m membership) *kmsg.SyncGroupRequest {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Version, r.Group, r.MemberID, r.Generation = 5, m.group, m.member, m.generation
	r.ProtocolType, r.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	return r
}

func leaves(m membership) *kmsg.LeaveGroupRequest {
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Version, r.Group = 5, m.group
	r.Members = []kmsg.LeaveGroupRequestMember{{MemberID: m.member}}
	return r
}

// commits is an OffsetCommit of edge-a partition 0.
func commits(m membership) *kmsg.OffsetCommitRequest {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.MemberID, r.Generation = 9, m.group, m.member, m.generation
	t := kmsg.NewOffsetCommitRequestTopic()
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	t.Topic, p.Offset = topicA, 2
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

// join joins a member, in a group that waits for no others.
func (e *env) join(group string, id *string) (m membership, err error) {
	m.group = group
	req := joins(group, "")
	req.InstanceID = id
	const memberIDRequired = 79
	for range 2 {
		resp, err := must[*kmsg.JoinGroupResponse](e, req)
		if err != nil {
			return m, err
		}
		m.member, m.generation = resp.MemberID, resp.Generation
		e.names["text "+m.member] = "member"
		if resp.ErrorCode == 0 {
			return m, nil
		}
		if resp.ErrorCode != memberIDRequired {
			return m, fmt.Errorf("join: %d", resp.ErrorCode)
		}
		req.MemberID = resp.MemberID
	}
	return m, errors.New("join: an id was not enough")
}

// enter brings a group, named after the case, into a state.
func (e *env) enter(state groupState) (m membership, err error) {
	m = membership{group: e.call, generation: -1}
	var id *string
	if state == static {
		id = kmsg.StringPtr(instance)
	}
	switch state {
	case nobody:
		return m, nil
	case committed:
		return m, e.succeed(commits(m))
	case pending:
		resp, err := must[*kmsg.JoinGroupResponse](e, joins(m.group, ""))
		if err != nil {
			return m, err
		}
		m.member = resp.MemberID
		e.names["text "+m.member] = "member"
		return m, nil
	}
	if m, err = e.join(m.group, id); err != nil || state == completing {
		return m, err
	}
	if err := e.succeed(syncs(m)); err != nil {
		return m, err
	}
	switch state {
	case left:
		return m, errors.Join(e.succeed(commits(m)), e.succeed(leaves(m)))
	case preparing:
		return m, e.disturb(m.group, 2)
	}
	return m, nil
}

// succeed sends a request whose answer must have no error.
func (e *env) succeed(req kmsg.Request) error {
	resp, err := e.ask(req)
	if err != nil {
		return fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), err)
	}
	if e.failed(resp) {
		return fmt.Errorf("%s: %s", kmsg.NameForKey(req.Key()), e.codesOf(resp))
	}
	return nil
}

// disturb lets another member join and waits until the group prepares a rebalance with n members.
func (e *env) disturb(group string, n int) error {
	req := joins(group, "")
	req.Version = 3 // joins at once, without an id
	if err := e.hold(req); err != nil {
		return err
	}
	return e.await(group, func(g kmsg.DescribeGroupsResponseGroup) bool {
		return g.State == "PreparingRebalance" && len(g.Members) == n
	})
}

// await waits until a group is as it has to be.
func (e *env) await(group string, as func(kmsg.DescribeGroupsResponseGroup) bool) error {
	for end := time.Now().Add(stateWait); ; time.Sleep(20 * time.Millisecond) {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Version, req.Groups = 5, []string{group}
		resp, err := must[*kmsg.DescribeGroupsResponse](e, req)
		if err != nil || as(resp.Groups[0]) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("group %s stays %s with %d members", group, resp.Groups[0].State, len(resp.Groups[0].Members))
		}
	}
}

// of is a request about a group in a state.
func of(state groupState, call func(m membership) kmsg.Request) func(*env) (kmsg.Request, error) {
	return func(e *env) (kmsg.Request, error) {
		m, err := e.enter(state)
		if err != nil {
			return nil, err
		}
		return call(m), nil
	}
}
