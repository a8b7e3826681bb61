package edge

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func commitAs(state groupState, edit func(r *kmsg.OffsetCommitRequest)) func(*env) (kmsg.Request, error) {
	return of(state, func(m membership) kmsg.Request {
		r := commits(m)
		edit(r)
		return r
	})
}

// commitByID is an OffsetCommit of version 10, which names topics by id.
func commitByID(topic string) func(*env) (kmsg.Request, error) {
	return func(e *env) (kmsg.Request, error) {
		r := commits(membership{group: e.call, generation: -1})
		r.Version, r.Topics[0].TopicID, r.Topics[0].Topic = 10, e.ids[topic], ""
		return r, nil
	}
}

func commitCases() []Case {
	type commit = *kmsg.OffsetCommitRequest
	same := func(commit) {}
	alone := func(r commit) { r.MemberID, r.Generation = "", -1 }
	topic := func(name string) func(commit) { return func(r commit) { r.Topics[0].Topic = name } }
	part := func(edit func(p *kmsg.OffsetCommitRequestTopicPartition)) func(commit) {
		return func(r commit) { edit(&r.Topics[0].Partitions[0]) }
	}
	type p = *kmsg.OffsetCommitRequestTopicPartition
	generation := func(add int32) func(commit) { return func(r commit) { r.Generation += add } }
	text := func(n int) *string { return kmsg.StringPtr(strings.Repeat("x", n)) }
	return append([]Case{
		{Name: "commit without a group", request: commitAs(nobody, same)},
		{Name: "commit without a group, 2", request: commitAs(nobody, func(r commit) { r.Version = 2 })},
		{Name: "commit without a group, for an hour", request: commitAs(nobody, func(r commit) { r.Version, r.RetentionTimeMillis = 4, 3_600_000 })},
		{Name: "commit in the empty group", request: commitAs(nobody, func(r commit) { r.Group = "" })},
		{Name: "commit in the empty group as a member", request: commitAs(nobody, func(r commit) { r.Group, r.MemberID, r.Generation = "", "x", 1 })},
		{Name: "commit nothing", request: commitAs(nobody, func(r commit) { r.Topics = nil })},
		{Name: "commit nothing in the empty group", request: commitAs(nobody, func(r commit) { r.Group, r.Topics = "", nil })},
		{Name: "commit no partitions", request: commitAs(nobody, func(r commit) { r.Topics[0].Partitions = nil })},
		{Name: "commit an unknown topic", request: commitAs(nobody, topic("edge-nobody"))},
		{Name: "commit an illegal name", request: commitAs(nobody, topic("no spaces"))},
		{Name: "commit an unknown partition", request: commitAs(nobody, part(func(p p) { p.Partition = 9 }))},
		{Name: "commit a negative partition", request: commitAs(nobody, part(func(p p) { p.Partition = -1 }))},
		{Name: "commit a partition twice", request: commitAs(nobody, func(r commit) { r.Topics[0].Partitions = append(r.Topics[0].Partitions, r.Topics[0].Partitions[0]) })},
		{Name: "commit an unknown and a known partition", request: commitAs(nobody, func(r commit) {
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, kmsg.OffsetCommitRequestTopicPartition{Partition: 9})
		})},
		{Name: "commit a negative offset", request: commitAs(nobody, part(func(p p) { p.Offset = -1 }))},
		{Name: "commit an offset beyond the end", request: commitAs(nobody, part(func(p p) { p.Offset = 1 << 40 }))},
		{Name: "commit a negative leader epoch", request: commitAs(nobody, part(func(p p) { p.LeaderEpoch = -7 }))},
		{Name: "commit the most metadata", request: commitAs(nobody, part(func(p p) { p.Metadata = text(4096) }))},
		{Name: "commit too much metadata", request: commitAs(nobody, part(func(p p) { p.Metadata = text(4097) }))},
		{Name: "commit too much metadata as a stranger", request: commitAs(stable, func(r commit) { r.MemberID = "stranger"; r.Topics[0].Partitions[0].Metadata = text(4097) })},
		{Name: "commit by id", request: commitByID(topicA)},
		{Name: "commit by the id of a deleted topic", request: commitByID(topicGone)},
		{Name: "commit by no id", request: commitByID("edge-nobody")},
	}, memberCommitCases(same, alone, generation)...)
}

func memberCommitCases(same, alone func(*kmsg.OffsetCommitRequest), generation func(int32) func(*kmsg.OffsetCommitRequest)) []Case {
	type commit = *kmsg.OffsetCommitRequest
	id, x := kmsg.StringPtr(instance), kmsg.StringPtr("x")
	return []Case{
		{Name: "commit as a member of an unknown group", request: commitAs(nobody, func(r commit) { r.MemberID, r.Generation = "stranger", 1 })},
		{Name: "commit as a member of an unknown group, 8", request: commitAs(nobody, func(r commit) { r.Version, r.MemberID, r.Generation = 8, "stranger", 1 })},
		{Name: "commit as a stranger of an unknown group", request: commitAs(nobody, func(r commit) { r.MemberID = "stranger" })},
		{Name: "commit an unknown topic as a member of an unknown group", request: commitAs(nobody, func(r commit) { r.MemberID, r.Generation, r.Topics[0].Topic = "stranger", 1, "edge-nobody" })},
		{Name: "commit again without a group", request: commitAs(committed, same)},
		{Name: "commit as a stranger beside offsets only", request: commitAs(committed, func(r commit) { r.MemberID, r.Generation = "stranger", 0 })},
		{Name: "commit before joining", request: commitAs(pending, same)},
		{Name: "commit before joining, as a member", request: commitAs(pending, func(r commit) { r.Generation = 0 })},
		{Name: "commit beside one that has not joined", request: commitAs(pending, alone)},
		{Name: "commit in a completing group", request: commitAs(completing, same)},
		{Name: "commit beside a completing group", request: commitAs(completing, alone)},
		{Name: "commit in a stable group", request: commitAs(stable, same)},
		{Name: "commit in a stable group, 2", request: commitAs(stable, func(r commit) { r.Version = 2 })},
		{Name: "commit beside a stable group", request: commitAs(stable, alone)},
		{Name: "commit in a preparing group", request: commitAs(preparing, same)},
		{Name: "commit after leaving", request: commitAs(left, same)},
		{Name: "commit beside a group that all have left", request: commitAs(left, alone)},
		{Name: "commit as a stranger", request: commitAs(stable, func(r commit) { r.MemberID = "stranger" })},
		{Name: "commit in a generation to come", request: commitAs(stable, generation(1))},
		{Name: "commit in an old generation", request: commitAs(stable, generation(-1))},
		{Name: "commit in an old generation of a completing group", request: commitAs(completing, generation(-1))},
		{Name: "commit in generation -1 as a member", request: commitAs(stable, func(r commit) { r.Generation = -1 })},
		{Name: "commit in a generation as nobody", request: commitAs(stable, func(r commit) { r.MemberID = "" })},
		{Name: "commit with an instance", request: commitAs(static, func(r commit) { r.InstanceID = id })},
		{Name: "commit with an unknown instance", request: commitAs(static, func(r commit) { r.InstanceID = x })},
		{Name: "commit with an instance and another id", request: commitAs(static, func(r commit) { r.InstanceID, r.MemberID = id, "stranger" })},
		{Name: "commit with an instance of an unknown group", request: commitAs(nobody, func(r commit) { r.InstanceID = id })},
	}
}

// asks is an OffsetFetch of partitions of edge-a in a version with several groups; each edit makes one.
func asks(state groupState, edits ...func(r *kmsg.OffsetFetchRequest, g *kmsg.OffsetFetchRequestGroup)) func(*env) (kmsg.Request, error) {
	return func(e *env) (kmsg.Request, error) {
		m, err := e.enter(state)
		if err != nil {
			return nil, err
		}
		r := kmsg.NewPtrOffsetFetchRequest()
		r.Version = 9
		for _, edit := range edits {
			g := kmsg.NewOffsetFetchRequestGroup()
			g.Group = m.group
			t := kmsg.NewOffsetFetchRequestGroupTopic()
			t.Topic, t.TopicID, t.Partitions = topicA, e.ids[topicA], []int32{0, 1}
			g.Topics = append(g.Topics, t)
			edit(r, &g)
			r.Groups = append(r.Groups, g)
		}
		if r.Version < 8 {
			old := r.Groups[0]
			r.Group, r.Groups = old.Group, nil
			for _, t := range old.Topics {
				r.Topics = append(r.Topics, kmsg.OffsetFetchRequestTopic{Topic: t.Topic, Partitions: t.Partitions})
			}
		}
		return r, nil
	}
}

func fetchOffsetCases() []Case {
	type req = *kmsg.OffsetFetchRequest
	type group = *kmsg.OffsetFetchRequestGroup
	version := func(v int16) func(req, group) { return func(r req, _ group) { r.Version = v } }
	same := func(req, group) {}
	all := func(_ req, g group) { g.Topics = nil }
	member := func(id string, epoch int32) func(req, group) {
		return func(_ req, g group) { g.MemberID, g.MemberEpoch = &id, epoch }
	}
	topic := func(name string) func(req, group) { return func(_ req, g group) { g.Topics[0].Topic = name } }
	byID := func(id [16]byte) func(req, group) {
		return func(r req, g group) { r.Version, g.Topics[0].TopicID = 10, id }
	}
	return []Case{
		{Name: "offsets of an unknown group", request: asks(nobody, same)},
		{Name: "offsets of an unknown group, 1", request: asks(nobody, version(1))},
		{Name: "offsets of an unknown group, 7", request: asks(nobody, version(7))},
		{Name: "all offsets of an unknown group", request: asks(nobody, all)},
		{Name: "all offsets of an unknown group, 2", request: asks(nobody, func(r req, g group) { r.Version = 2; all(r, g) })},
		{Name: "no offsets, 1", request: asks(nobody, func(r req, g group) { r.Version, g.Topics = 1, []kmsg.OffsetFetchRequestGroupTopic{} })},
		{Name: "offsets of the empty group", request: asks(nobody, func(_ req, g group) { g.Group = "" })},
		{Name: "offsets of the empty group, 1", request: asks(nobody, func(r req, g group) { r.Version, g.Group = 1, "" })},
		{Name: "offsets of a group", request: asks(committed, same)},
		{Name: "offsets of a group, 1", request: asks(committed, version(1))},
		{Name: "offsets of a group, 5", request: asks(committed, version(5))},
		{Name: "offsets of a group, stable ones", request: asks(committed, func(r req, _ group) { r.RequireStable = true })},
		{Name: "all offsets of a group", request: asks(committed, all)},
		{Name: "offsets of a group twice", request: asks(committed, same, same)},
		{Name: "offsets of two groups", request: asks(committed, same, func(_ req, g group) { g.Group = "edge-nobody" })},
		{Name: "offsets of no group", request: asks(nobody)},
		{Name: "offsets of an unknown topic's partitions", request: asks(committed, topic("edge-nobody"))},
		{Name: "offsets of an illegal name's partitions", request: asks(committed, topic("no spaces"))},
		{Name: "offsets of unknown partitions", request: asks(committed, func(_ req, g group) { g.Topics[0].Partitions = []int32{9, -1} })},
		{Name: "offsets by id", request: asks(committed, version(10))},
		{Name: "all offsets by id", request: asks(committed, func(r req, g group) { r.Version = 10; all(r, g) })},
		{Name: "offsets by an unknown id", request: asks(committed, byID([16]byte{1}))},
		{Name: "offsets by no id", request: asks(committed, byID([16]byte{}))},
		{Name: "offsets as a member of an unknown group", request: asks(nobody, member("stranger", 1))},
		{Name: "offsets as a stranger", request: asks(stable, member("stranger", 1))},
		{Name: "offsets as a stranger of a group of offsets only", request: asks(committed, member("stranger", 1))},
		{Name: "offsets of a preparing group", request: asks(preparing, same)},
		{Name: "offsets of a group that all have left", request: asks(left, same)},
	}
}

func describeGroups(version int16, state groupState, more ...string) func(*env) (kmsg.Request, error) {
	return of(state, func(m membership) kmsg.Request {
		r := kmsg.NewPtrDescribeGroupsRequest()
		r.Version, r.Groups = version, append([]string{m.group}, more...)
		return r
	})
}

func listGroupCases() []Case {
	list := func(version int16, states, types []string) func(*env) (kmsg.Request, error) {
		r := kmsg.NewPtrListGroupsRequest()
		r.Version, r.StatesFilter, r.TypesFilter = version, states, types
		return plain(r)
	}
	noGroups := kmsg.NewPtrDescribeGroupsRequest()
	noGroups.Version = 5
	empty := kmsg.NewPtrDescribeGroupsRequest()
	empty.Version, empty.Groups = 5, []string{""}
	return []Case{
		{Name: "list groups, 0", request: list(0, nil, nil)},
		{Name: "list groups, 5", request: list(5, nil, nil)},
		{Name: "list groups in a state", request: list(4, []string{"Stable", "stable"}, nil)},
		{Name: "list groups in a state that does not exist", request: list(4, []string{"Nope"}, nil)},
		{Name: "list groups of a type", request: list(5, nil, []string{"classic"})},
		{Name: "list groups of a type that does not exist", request: list(5, nil, []string{"nope"})},
		{Name: "describe an unknown group", request: describeGroups(5, nobody)},
		{Name: "describe an unknown group, 0", request: describeGroups(0, nobody)},
		{Name: "describe an unknown group, 6", request: describeGroups(6, nobody)},
		{Name: "describe the empty group", request: plain(empty)},
		{Name: "describe no group", request: plain(noGroups)},
		{Name: "describe a group of offsets only", request: describeGroups(6, committed)},
		{Name: "describe a group that all have left", request: describeGroups(6, left)},
		{Name: "describe a completing group", request: describeGroups(5, completing)},
		{Name: "describe a stable group", request: describeGroups(5, stable)},
		{Name: "describe a preparing group", request: describeGroups(5, preparing)},
		{Name: "describe a group twice", request: func(e *env) (kmsg.Request, error) { return describeGroups(5, stable, e.call)(e) }},
	}
}

func deleteGroups(state groupState, more ...string) func(*env) (kmsg.Request, error) {
	return of(state, func(m membership) kmsg.Request {
		r := kmsg.NewPtrDeleteGroupsRequest()
		r.Version, r.Groups = 2, append([]string{m.group}, more...)
		return r
	})
}

func deleteOffsets(state groupState, topic string, partitions ...int32) func(*env) (kmsg.Request, error) {
	return of(state, func(m membership) kmsg.Request {
		r := kmsg.NewPtrOffsetDeleteRequest()
		r.Group = m.group
		t := kmsg.OffsetDeleteRequestTopic{Topic: topic}
		for _, p := range partitions {
			t.Partitions = append(t.Partitions, kmsg.OffsetDeleteRequestTopicPartition{Partition: p})
		}
		r.Topics = append(r.Topics, t)
		return r
	})
}

func deleteGroupCases() []Case {
	none := kmsg.NewPtrDeleteGroupsRequest()
	none.Version = 2
	nameless := kmsg.NewPtrDeleteGroupsRequest()
	nameless.Version, nameless.Groups = 2, []string{""}
	noGroup := kmsg.NewPtrOffsetDeleteRequest()
	noGroup.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: topicA, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{}}}}
	return []Case{
		{Name: "delete an unknown group", request: deleteGroups(nobody)},
		{Name: "delete the empty group", request: plain(nameless)},
		{Name: "delete no group", request: plain(none)},
		{Name: "delete a group of offsets only", request: deleteGroups(committed)},
		{Name: "delete a group that all have left", request: deleteGroups(left)},
		{Name: "delete a group before its member joins", request: deleteGroups(pending)},
		{Name: "delete a completing group", request: deleteGroups(completing)},
		{Name: "delete a stable group", request: deleteGroups(stable)},
		{Name: "delete a preparing group", request: deleteGroups(preparing)},
		{Name: "delete a group and an unknown one", request: deleteGroups(committed, "edge-nobody")},
		{Name: "delete a group twice", request: func(e *env) (kmsg.Request, error) { return deleteGroups(committed, e.call)(e) }},
		{Name: "delete offsets of an unknown group", request: deleteOffsets(nobody, topicA, 0)},
		{Name: "delete offsets of the empty group", request: plain(noGroup)},
		{Name: "delete offsets of an unknown topic of an unknown group", request: deleteOffsets(nobody, "edge-nobody", 0)},
		{Name: "delete offsets", request: deleteOffsets(committed, topicA, 0)},
		{Name: "delete offsets that are not there", request: deleteOffsets(committed, topicA, 1)},
		{Name: "delete offsets of an unknown partition", request: deleteOffsets(committed, topicA, 9)},
		{Name: "delete offsets of an unknown topic", request: deleteOffsets(committed, "edge-nobody", 0)},
		{Name: "delete offsets of an illegal name", request: deleteOffsets(committed, "no spaces", 0)},
		{Name: "delete offsets of a partition twice", request: deleteOffsets(committed, topicA, 0, 0)},
		{Name: "delete no offsets", request: deleteOffsets(committed, topicA)},
		{Name: "delete offsets of a group that all have left", request: deleteOffsets(left, topicA, 0)},
		{Name: "delete offsets that a member subscribes to", request: deleteOffsets(stable, topicA, 0)},
		{Name: "delete offsets that no member subscribes to", request: deleteOffsets(stable, topicCompact, 0)},
		{Name: "delete offsets of a completing group", request: deleteOffsets(completing, topicA, 0)},
		{Name: "delete offsets of a preparing group", request: deleteOffsets(preparing, topicA, 0)},
		{Name: "delete offsets of a group before its member joins", request: deleteOffsets(pending, topicA, 0)},
	}
}
