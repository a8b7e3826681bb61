package api

import (
	"context"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/group"
	"varve/metastore/controller"
	"varve/protocol"
)

// Groups coordinates consumer groups; *group.Coordinator. Each done is called exactly once, maybe before the call
// returns, maybe minutes later.
type Groups interface {
	Locate(ctx context.Context, id string) (node int32, err protocol.ErrorCode)
	Topic() controller.CreateTopic
	Join(who group.Client, req *kmsg.JoinGroupRequest, done func(*kmsg.JoinGroupResponse))
	Sync(who group.Client, req *kmsg.SyncGroupRequest, done func(*kmsg.SyncGroupResponse))
	Heartbeat(who group.Client, req *kmsg.HeartbeatRequest, done func(*kmsg.HeartbeatResponse))
	Leave(who group.Client, req *kmsg.LeaveGroupRequest, done func(*kmsg.LeaveGroupResponse))
	Commit(who group.Client, req *kmsg.OffsetCommitRequest, done func(*kmsg.OffsetCommitResponse))
	Fetch(who group.Client, req *group.FetchOffsets, done func(*kmsg.OffsetFetchResponseGroup))
	DeleteOffsets(who group.Client, req *kmsg.OffsetDeleteRequest, done func(*kmsg.OffsetDeleteResponse))
	Describe(who group.Client, req *group.Describe, done func(*kmsg.DescribeGroupsResponseGroup))
	Delete(who group.Client, id string, done func(*kmsg.DeleteGroupsResponseGroup))
	List(who group.Client, req *group.List, done func([]kmsg.ListGroupsResponseGroup, protocol.ErrorCode))
}

// group serves the requests that may have to wait for other members or for records to be stored; false: it is another
// request. done is called exactly once.
func (d *Dispatcher) group(c call, req kmsg.Request, done func(kmsg.Response)) bool {
	switch req := req.(type) {
	case *kmsg.OffsetCommitRequest:
		d.offsetCommit(c, req, done)
	case *kmsg.OffsetFetchRequest:
		d.offsetFetch(c, req, done)
	case *kmsg.JoinGroupRequest:
		d.joinGroup(c, req, done)
	case *kmsg.HeartbeatRequest:
		d.heartbeat(c, req, done)
	case *kmsg.LeaveGroupRequest:
		d.leaveGroup(c, req, done)
	case *kmsg.SyncGroupRequest:
		d.syncGroup(c, req, done)
	case *kmsg.DescribeGroupsRequest:
		d.describeGroups(c, req, done)
	case *kmsg.ListGroupsRequest:
		d.listGroups(c, req, done)
	case *kmsg.DeleteGroupsRequest:
		d.deleteGroups(c, req, done)
	case *kmsg.OffsetDeleteRequest:
		d.offsetDelete(c, req, done)
	default:
		return false
	}
	return true
}

// client is who sends a request, as groups keep it and tools show it (InetAddress.toString).
func (c call) client() group.Client {
	host, _, err := net.SplitHostPort(c.conn.Peer)
	if err != nil {
		host = c.conn.Peer
	}
	return group.Client{ID: c.header.ClientID, Host: "/" + host}
}

// gather calls done once all of n results were put.
type gather[T any] struct {
	done func([]T)

	mu   sync.Mutex
	all  []T
	left int
}

func newGather[T any](n int, done func([]T)) *gather[T] {
	g := &gather[T]{all: make([]T, n), left: n, done: done}
	if n == 0 {
		done(g.all)
	}
	return g
}

func (g *gather[T]) put(i int, v T) {
	g.mu.Lock()
	g.all[i] = v
	g.left--
	last := g.left == 0
	g.mu.Unlock()
	if last {
		g.done(g.all)
	}
}

// unique returns the names in their order, each once.
func unique(names []string) []string {
	seen := make(map[string]struct{}, len(names))
	var out []string
	for _, n := range names {
		if _, ok := seen[n]; !ok {
			seen[n] = struct{}{}
			out = append(out, n)
		}
	}
	return out
}

// named is a topic of a request that names it, or from some version on gives its id.
func named(cl Cluster, name string, id protocol.UUID, byID bool) (string, protocol.ErrorCode) {
	if !byID {
		return name, protocol.None
	}
	t, ok := cl.TopicByID(id)
	if !ok {
		return "", protocol.UnknownTopicID
	}
	return t.Name, protocol.None
}

// hasPartition says whether the topic exists and has the partition.
func hasPartition(cl Cluster, topic string, index int32) bool {
	t, ok := cl.Topic(topic)
	return ok && index >= 0 && int(index) < len(t.Partitions)
}
