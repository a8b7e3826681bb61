package edge

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func find(version int16, kind int8, keys ...string) func(*env) (kmsg.Request, error) {
	r := kmsg.NewPtrFindCoordinatorRequest()
	r.Version, r.CoordinatorType, r.CoordinatorKeys = version, kind, keys
	if version < 4 && len(keys) > 0 {
		r.CoordinatorKey = keys[0]
	}
	return plain(r)
}

func coordinatorCases() []Case {
	const group, transaction, share = 0, 1, 2
	return []Case{
		{Name: "coordinator of a group, 0", request: find(0, group, "g")},
		{Name: "coordinator of a group, 3", request: find(3, group, "g")},
		{Name: "coordinators of groups, 4", request: find(4, group, "g", "h")},
		{Name: "coordinators of groups, 6", request: find(6, group, "g", "h")},
		{Name: "coordinator of a group twice", request: find(4, group, "g", "g")},
		{Name: "coordinator of nobody", request: find(4, group)},
		{Name: "coordinator of the empty group, 2", request: find(2, group, "")},
		{Name: "coordinator of the empty group, 4", request: find(4, group, "")},
		{Name: "coordinator of a transaction, 1", request: find(1, transaction, "t")},
		{Name: "coordinator of a transaction, 4", request: find(4, transaction, "t")},
		{Name: "coordinator of a share group", request: find(6, share, "g:AAAAAAAAAAAAAAAAAAAAAQ:0")},
		{Name: "coordinator of a share group by a bad key", request: find(6, share, "g")},
		{Name: "coordinator of a share group, too early", request: find(5, share, "g:AAAAAAAAAAAAAAAAAAAAAQ:0")},
		{Name: "coordinator of kind 9", request: find(4, 9, "g")},
		{Name: "coordinator of kind -1, 1", request: find(1, -1, "g")},
	}
}

// joinAs is a JoinGroup about a group in a state.
func joinAs(state groupState, edit func(r *kmsg.JoinGroupRequest)) func(*env) (kmsg.Request, error) {
	return of(state, func(m membership) kmsg.Request {
		r := joins(m.group, m.member)
		edit(r)
		return r
	})
}

func joinCases() []Case {
	type join = *kmsg.JoinGroupRequest
	as := func(member string) func(join) { return func(r join) { r.MemberID = member } }
	session := func(ms int32) func(join) { return func(r join) { r.SessionTimeoutMillis = ms } }
	version := func(v int16) func(join) { return func(r join) { r.Version, r.MemberID = v, "" } }
	same := func(join) {}
	return []Case{
		{Name: "join without an id", request: joinAs(nobody, same)},
		{Name: "join without an id, 4", request: joinAs(nobody, version(4))},
		{Name: "join without an id, 3", request: joinAs(nobody, version(3))},
		{Name: "join without an id, 0", request: joinAs(nobody, version(0))},
		{Name: "join the empty group", request: joinAs(nobody, func(r join) { r.Group = "" })},
		{Name: "join a group of a long name", request: joinAs(nobody, func(r join) { r.Group = strings.Repeat("x", 40_000) })},
		{Name: "join a group of a name with a space and a newline", request: joinAs(nobody, func(r join) { r.Group = "a b\n" })},
		{Name: "join with a session too short", request: joinAs(nobody, session(5999))},
		{Name: "join with the shortest session", request: joinAs(nobody, session(6000))},
		{Name: "join with the longest session", request: joinAs(nobody, session(1_800_000))},
		{Name: "join with a session too long", request: joinAs(nobody, session(1_800_001))},
		{Name: "join with a session of 0", request: joinAs(nobody, session(0))},
		{Name: "join with a negative session", request: joinAs(nobody, session(-1))},
		{Name: "join with a negative rebalance timeout", request: joinAs(nobody, func(r join) { r.RebalanceTimeoutMillis = -1 })},
		{Name: "join without protocols", request: joinAs(nobody, func(r join) { r.Protocols = nil })},
		{Name: "join without a protocol type", request: joinAs(nobody, func(r join) { r.ProtocolType = "" })},
		{Name: "join without protocols, 3", request: joinAs(nobody, func(r join) { r.Version, r.Protocols = 3, nil })},
		{Name: "join without a protocol type, 3", request: joinAs(nobody, func(r join) { r.Version, r.ProtocolType = 3, "" })},
		{Name: "join a protocol twice", request: joinAs(nobody, func(r join) { r.Version, r.Protocols = 3, append(r.Protocols, r.Protocols...) })},
		{Name: "join with metadata that is no subscription", request: joinAs(nobody, func(r join) { r.Version, r.Protocols[0].Metadata = 3, []byte{1} })},
		{Name: "join a group of nobody with an id", request: joinAs(nobody, as("stranger"))},
		{Name: "join a group of offsets only", request: joinAs(committed, version(3))},
		{Name: "join a group of offsets only with an id", request: joinAs(committed, as("stranger"))},
		{Name: "join with the id that was given", request: joinAs(pending, same)},
		{Name: "join with another id than was given", request: joinAs(pending, as("stranger"))},
		{Name: "join with the id that was given and an instance", request: joinAs(pending, func(r join) { r.InstanceID = kmsg.StringPtr(instance) })},
		{Name: "join a stable group with an unknown id", request: joinAs(stable, as("stranger"))},
		{Name: "join a stable group again", request: joinAs(stable, same)},
		{Name: "join a completing group again", request: joinAs(completing, same)},
		{Name: "join a completing group again with another protocol", request: joinAs(completing, func(r join) { r.Protocols[0].Metadata = append(r.Protocols[0].Metadata, 0, 0, 0, 0) })},
		{Name: "join a preparing group again", request: joinAs(preparing, same)},
		{Name: "join a group that all have left, with the old id", request: joinAs(left, same)},
		{Name: "join a group of another type", request: joinAs(stable, func(r join) { r.MemberID, r.ProtocolType = "", "connect" })},
		{Name: "join a group of other protocols", request: joinAs(stable, func(r join) { r.MemberID, r.Protocols[0].Name = "", "sticky" })},
		{Name: "join again with other protocols", request: joinAs(stable, func(r join) { r.Protocols[0].Name = "sticky" })},
		{Name: "join a group that is full", request: joinFull},
		{Name: "join a group that is full, without an id", request: joinFullWithoutID},
	}
}

// fill makes a group of as many members as may be, which complete a rebalance.
func (e *env) fill() error {
	m, err := e.enter(stable)
	for n := 2; n <= groupMaxSize && err == nil; n++ {
		err = e.disturb(e.call, n)
	}
	if err != nil {
		return err
	}
	return e.succeed(joins(m.group, m.member))
}

func joinFull(e *env) (kmsg.Request, error) {
	r := joins(e.call, "")
	r.Version = 3
	return r, e.fill()
}

func joinFullWithoutID(e *env) (kmsg.Request, error) { return joins(e.call, ""), e.fill() }

func staticCases() []Case {
	type join = *kmsg.JoinGroupRequest
	by := func(member, id string) func(join) { return func(r join) { r.MemberID, r.InstanceID = member, &id } }
	mine := func(id string) func(join) { return func(r join) { r.InstanceID = &id } }
	return []Case{
		{Name: "join with an instance", request: joinAs(nobody, by("", instance))},
		{Name: "join with an instance, 5", request: joinAs(nobody, func(r join) { r.Version = 5; r.InstanceID = kmsg.StringPtr(instance) })},
		{Name: "join with an instance that has no name", request: joinAs(nobody, by("", ""))},
		{Name: "join with an instance of an illegal name", request: joinAs(nobody, by("", "a b"))},
		{Name: "join with an instance of a name too long", request: joinAs(nobody, by("", strings.Repeat("x", 250)))},
		{Name: "join with an instance and an id, where nobody is", request: joinAs(nobody, by("stranger", instance))},
		{Name: "join with a new instance and an id", request: joinAs(stable, by("stranger", instance))},
		{Name: "join with a new instance and the id of a dynamic member", request: joinAs(stable, mine(instance))},
		{Name: "join in place of an instance", request: joinAs(static, by("", instance))},
		{Name: "join in place of an instance, 5", request: joinAs(static, func(r join) { by("", instance)(r); r.Version = 5 })},
		{Name: "join with an instance and another id", request: joinAs(static, by("stranger", instance))},
		{Name: "join again with an instance", request: joinAs(static, mine(instance))},
		{Name: "join with another instance and a static member's id", request: joinAs(static, mine("edge-other"))},
		{Name: "join with a static member's id alone", request: joinAs(static, func(join) {})},
	}
}

func syncAs(state groupState, edit func(r *kmsg.SyncGroupRequest)) func(*env) (kmsg.Request, error) {
	return of(state, func(m membership) kmsg.Request {
		r := syncs(m)
		edit(r)
		return r
	})
}

func syncCases() []Case {
	type sync = *kmsg.SyncGroupRequest
	same := func(sync) {}
	generation := func(add int32) func(sync) { return func(r sync) { r.Generation += add } }
	named := func(kind, name *string) func(sync) { return func(r sync) { r.ProtocolType, r.Protocol = kind, name } }
	consumer, ranged, x := kmsg.StringPtr("consumer"), kmsg.StringPtr("range"), kmsg.StringPtr("x")
	return []Case{
		{Name: "sync in the empty group", request: syncAs(nobody, func(r sync) { r.Group = "" })},
		{Name: "sync in an unknown group", request: syncAs(nobody, same)},
		{Name: "sync in a group of offsets only", request: syncAs(committed, same)},
		{Name: "sync before joining", request: syncAs(pending, same)},
		{Name: "sync in a completing group", request: syncAs(completing, same)},
		{Name: "sync in a completing group, 0", request: syncAs(completing, func(r sync) { r.Version = 0 })},
		{Name: "sync in a stable group", request: syncAs(stable, same)},
		{Name: "sync in a preparing group", request: syncAs(preparing, same)},
		{Name: "sync after leaving", request: syncAs(left, same)},
		{Name: "sync as a stranger", request: syncAs(stable, func(r sync) { r.MemberID = "stranger" })},
		{Name: "sync as nobody", request: syncAs(stable, func(r sync) { r.MemberID = "" })},
		{Name: "sync a generation too early", request: syncAs(stable, generation(1))},
		{Name: "sync a generation too late", request: syncAs(stable, generation(-1))},
		{Name: "sync a generation too late in a preparing group", request: syncAs(preparing, generation(-1))},
		{Name: "sync with another protocol type", request: syncAs(completing, named(x, ranged))},
		{Name: "sync with another protocol", request: syncAs(completing, named(consumer, x))},
		{Name: "sync without a protocol", request: syncAs(completing, named(consumer, nil))},
		{Name: "sync without a protocol type", request: syncAs(completing, named(nil, ranged))},
		{Name: "sync without either in an unknown group", request: syncAs(nobody, named(nil, nil))},
		{Name: "sync and assign to a stranger", request: syncAs(completing, func(r sync) {
			r.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: "stranger", MemberAssignment: []byte{1}}}
		})},
		{Name: "sync with an instance", request: syncAs(static, func(r sync) { r.InstanceID = kmsg.StringPtr(instance) })},
		{Name: "sync with an unknown instance", request: syncAs(static, func(r sync) { r.InstanceID = x })},
		{Name: "sync with an instance and another id", request: syncAs(static, func(r sync) { r.InstanceID, r.MemberID = kmsg.StringPtr(instance), "stranger" })},
	}
}

func beatAs(state groupState, edit func(r *kmsg.HeartbeatRequest)) func(*env) (kmsg.Request, error) {
	return of(state, func(m membership) kmsg.Request {
		r := kmsg.NewPtrHeartbeatRequest()
		r.Version, r.Group, r.MemberID, r.Generation = 4, m.group, m.member, m.generation
		edit(r)
		return r
	})
}

func heartbeatCases() []Case {
	type beat = *kmsg.HeartbeatRequest
	same := func(beat) {}
	generation := func(add int32) func(beat) { return func(r beat) { r.Generation += add } }
	return []Case{
		{Name: "heartbeat in the empty group", request: beatAs(nobody, func(r beat) { r.Group = "" })},
		{Name: "heartbeat in an unknown group", request: beatAs(nobody, same)},
		{Name: "heartbeat in a group of offsets only", request: beatAs(committed, same)},
		{Name: "heartbeat before joining", request: beatAs(pending, same)},
		{Name: "heartbeat in a completing group", request: beatAs(completing, same)},
		{Name: "heartbeat in a stable group", request: beatAs(stable, same)},
		{Name: "heartbeat in a stable group, 0", request: beatAs(stable, func(r beat) { r.Version = 0 })},
		{Name: "heartbeat in a preparing group", request: beatAs(preparing, same)},
		{Name: "heartbeat after leaving", request: beatAs(left, same)},
		{Name: "heartbeat of a stranger", request: beatAs(stable, func(r beat) { r.MemberID = "stranger" })},
		{Name: "heartbeat of nobody", request: beatAs(stable, func(r beat) { r.MemberID = "" })},
		{Name: "heartbeat of a generation to come", request: beatAs(stable, generation(1))},
		{Name: "heartbeat of an old generation", request: beatAs(stable, generation(-1))},
		{Name: "heartbeat of generation -1", request: beatAs(stable, func(r beat) { r.Generation = -1 })},
		{Name: "heartbeat of an old generation in a preparing group", request: beatAs(preparing, generation(-1))},
		{Name: "heartbeat with an instance", request: beatAs(static, func(r beat) { r.InstanceID = kmsg.StringPtr(instance) })},
		{Name: "heartbeat with an unknown instance", request: beatAs(static, func(r beat) { r.InstanceID = kmsg.StringPtr("x") })},
		{Name: "heartbeat with an instance and another id", request: beatAs(static, func(r beat) { r.InstanceID, r.MemberID = kmsg.StringPtr(instance), "stranger" })},
	}
}

func leaveAs(state groupState, edit func(r *kmsg.LeaveGroupRequest)) func(*env) (kmsg.Request, error) {
	return of(state, func(m membership) kmsg.Request {
		r := leaves(m)
		edit(r)
		return r
	})
}

func leaveCases() []Case {
	type leave = *kmsg.LeaveGroupRequest
	type member = kmsg.LeaveGroupRequestMember
	same := func(leave) {}
	members := func(m ...member) func(leave) { return func(r leave) { r.Members = m } }
	old := func(id string) func(leave) { return func(r leave) { r.Version, r.MemberID = 2, id } }
	id, x := kmsg.StringPtr(instance), kmsg.StringPtr("x")
	return []Case{
		{Name: "leave the empty group", request: leaveAs(nobody, func(r leave) { r.Group = "" })},
		{Name: "leave the empty group, 0", request: leaveAs(nobody, func(r leave) { r.Version, r.Group, r.MemberID = 0, "", "x" })},
		{Name: "leave an unknown group", request: leaveAs(nobody, same)},
		{Name: "leave an unknown group, 2", request: leaveAs(nobody, old("stranger"))},
		{Name: "leave a stable group", request: leaveAs(stable, same)},
		{Name: "leave a stable group, 2", request: leaveAs(stable, func(r leave) { old(r.Members[0].MemberID)(r) })},
		{Name: "leave a completing group", request: leaveAs(completing, same)},
		{Name: "leave a preparing group", request: leaveAs(preparing, same)},
		{Name: "leave before joining", request: leaveAs(pending, same)},
		{Name: "leave twice", request: leaveAs(left, same)},
		{Name: "leave twice at once", request: leaveAs(stable, func(r leave) { r.Members = append(r.Members, r.Members[0]) })},
		{Name: "leave as a stranger", request: leaveAs(stable, members(member{MemberID: "stranger"}))},
		{Name: "leave as a stranger, 2", request: leaveAs(stable, old("stranger"))},
		{Name: "leave as nobody", request: leaveAs(stable, members(member{}))},
		{Name: "nobody leaves", request: leaveAs(stable, members())},
		{Name: "nobody leaves an unknown group", request: leaveAs(nobody, members())},
		{Name: "leave by instance", request: leaveAs(static, members(member{InstanceID: id}))},
		{Name: "leave by an unknown instance", request: leaveAs(static, members(member{InstanceID: x}))},
		{Name: "leave by instance and another id", request: leaveAs(static, members(member{InstanceID: id, MemberID: "stranger"}))},
		{Name: "leave by an unknown instance and an id", request: leaveAs(static, func(r leave) { r.Members[0].InstanceID = x })},
		{Name: "leave by instance, and as a stranger", request: leaveAs(static, members(member{InstanceID: id}, member{MemberID: "stranger"}))},
		{Name: "leave by a static member's id", request: leaveAs(static, same)},
	}
}
