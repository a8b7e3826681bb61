package group

import (
	"crypto/rand"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

// Client is who sends a request.
type Client struct {
	ID   string // client id
	Host string // as Kafka shows it: "/" and the address
}

// ticket is a request of a client that waits.
type ticket struct{ done func(any) }

// ask hands a request to the group's shard. done is called exactly once, maybe before ask returns; fail makes the answer
// when nobody coordinates the group here.
func ask[R any](c *Coordinator, who Client, group string, body any, done func(R), fail func(protocol.ErrorCode) R) {
	s, err := c.shardOf(group)
	if s == nil {
		done(fail(err))
		return
	}
	r := &Request{ClientID: who.ID, ClientHost: who.Host, Body: body, Ticket: &ticket{func(result any) { done(result.(R)) }}}
	if join, ok := body.(*kmsg.JoinGroupRequest); ok && join.MemberID == "" {
		r.Unique = newUnique()
	}
	drive, err := s.post(r)
	if err != protocol.None {
		done(fail(err))
		return
	}
	if drive {
		s.drive()
	}
}

// newUnique is a random UUID in its usual form.
func newUnique() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// Join answers a JoinGroup, once the group has gathered.
func (c *Coordinator) Join(who Client, req *kmsg.JoinGroupRequest, done func(*kmsg.JoinGroupResponse)) {
	ask(c, who, req.Group, req, done, func(err protocol.ErrorCode) *kmsg.JoinGroupResponse { return FailJoin(req.MemberID, err) })
}

// Sync answers a SyncGroup, once the leader's assignment is stored.
func (c *Coordinator) Sync(who Client, req *kmsg.SyncGroupRequest, done func(*kmsg.SyncGroupResponse)) {
	ask(c, who, req.Group, req, done, FailSync)
}

// Heartbeat answers a Heartbeat. While the group is loaded it says that all is well.
func (c *Coordinator) Heartbeat(who Client, req *kmsg.HeartbeatRequest, done func(*kmsg.HeartbeatResponse)) {
	ask(c, who, req.Group, req, done, func(err protocol.ErrorCode) *kmsg.HeartbeatResponse {
		if err == protocol.CoordinatorLoadInProgress {
			err = protocol.None
		}
		return FailHeartbeat(err)
	})
}

// Leave answers a LeaveGroup in the form of version 3 and later.
func (c *Coordinator) Leave(who Client, req *kmsg.LeaveGroupRequest, done func(*kmsg.LeaveGroupResponse)) {
	ask(c, who, req.Group, req, done, FailLeave)
}

// Commit answers an OffsetCommit once the offsets are stored. Topics are named, and exist.
func (c *Coordinator) Commit(who Client, req *kmsg.OffsetCommitRequest, done func(*kmsg.OffsetCommitResponse)) {
	ask(c, who, req.Group, req, done, func(err protocol.ErrorCode) *kmsg.OffsetCommitResponse { return FailCommit(req, err) })
}

// Fetch answers an OffsetFetch for one group. Topics are named.
func (c *Coordinator) Fetch(who Client, req *FetchOffsets, done func(*kmsg.OffsetFetchResponseGroup)) {
	ask(c, who, req.Group.Group, req, done, func(err protocol.ErrorCode) *kmsg.OffsetFetchResponseGroup {
		return FailFetch(req.Group.Group, err)
	})
}

// DeleteOffsets answers an OffsetDelete.
func (c *Coordinator) DeleteOffsets(who Client, req *kmsg.OffsetDeleteRequest, done func(*kmsg.OffsetDeleteResponse)) {
	ask(c, who, req.Group, req, done, FailDeleteOffsets)
}

// Describe answers a DescribeGroups for one group.
func (c *Coordinator) Describe(who Client, req *Describe, done func(*kmsg.DescribeGroupsResponseGroup)) {
	ask(c, who, req.Group, req, done, func(err protocol.ErrorCode) *kmsg.DescribeGroupsResponseGroup {
		return FailDescribe(req.Group, err)
	})
}

// Delete answers a DeleteGroups for one group.
func (c *Coordinator) Delete(who Client, id string, done func(*kmsg.DeleteGroupsResponseGroup)) {
	ask(c, who, id, &Delete{Group: id}, done, func(err protocol.ErrorCode) *kmsg.DeleteGroupsResponseGroup { return FailDelete(id, err) })
}

// List answers a ListGroups with the groups that are coordinated here; CoordinatorLoadInProgress while some are loaded.
func (c *Coordinator) List(who Client, req *List, done func([]kmsg.ListGroupsResponseGroup, protocol.ErrorCode)) {
	shards := *c.shards.Load()
	l := &listing{left: len(shards) + 1, done: done}
	for _, s := range shards {
		drive, err := s.post(&Request{ClientID: who.ID, ClientHost: who.Host, Body: req, Ticket: &ticket{func(result any) {
			l.add(result.([]kmsg.ListGroupsResponseGroup), protocol.None)
		}}})
		switch {
		case err == protocol.NotCoordinator: // it went away meanwhile
			l.add(nil, protocol.None)
		case err != protocol.None:
			l.add(nil, err)
		case drive:
			s.drive()
		}
	}
	l.add(nil, protocol.None)
}

// listing gathers the answers of several shards.
type listing struct {
	done func([]kmsg.ListGroupsResponseGroup, protocol.ErrorCode)

	mu     sync.Mutex
	left   int
	groups []kmsg.ListGroupsResponseGroup
	err    protocol.ErrorCode
}

func (l *listing) add(groups []kmsg.ListGroupsResponseGroup, err protocol.ErrorCode) {
	l.mu.Lock()
	l.groups = append(l.groups, groups...)
	if l.err == protocol.None {
		l.err = err
	}
	l.left--
	last := l.left == 0
	l.mu.Unlock()
	if last {
		l.done(l.groups, l.err)
	}
}
