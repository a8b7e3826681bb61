package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/group"
	"varve/protocol"
)

// OffsetFetch, key 9, versions 1 to 10 (OffsetFetchRequest.json).
//
// One group up to version 7, several from version 8 on (KIP-709). Null topics, from version 2 on, are all that have an
// offset. A partition without one, and any of an unknown group, is offset -1 without an error. Version 1 has no code for
// the whole, so that it stands on each partition. From version 7 on a client may insist on stable offsets (KIP-447): it
// waits for commits under way. The member id and epoch of version 9 matter to the consumer protocol only (KIP-848), of
// which no group is. From version 10 on topics are given by id: an unknown one is UnknownTopicID.
func (d *Dispatcher) offsetFetch(c call, req *kmsg.OffsetFetchRequest, done func(kmsg.Response)) {
	groups := req.Groups
	if req.Version < 8 {
		groups = []kmsg.OffsetFetchRequestGroup{oldGroup(req)}
	}
	g := newGather(len(groups), func(all []*kmsg.OffsetFetchResponseGroup) {
		resp := kmsg.NewPtrOffsetFetchResponse()
		if req.Version < 8 {
			oldOffsets(resp, req, all[0])
		} else {
			for _, one := range all {
				resp.Groups = append(resp.Groups, *one)
			}
		}
		done(resp)
	})
	for i := range groups {
		d.fetchGroup(c, &groups[i], req, func(one *kmsg.OffsetFetchResponseGroup) { g.put(i, one) })
	}
}

// fetchGroup asks for one group, with topics by name.
func (d *Dispatcher) fetchGroup(c call, in *kmsg.OffsetFetchRequestGroup, req *kmsg.OffsetFetchRequest, done func(*kmsg.OffsetFetchResponseGroup)) {
	q := &group.FetchOffsets{Group: *in, RequireStable: req.RequireStable}
	if req.Version < 10 {
		d.o.Groups.Fetch(c.client(), q, done)
		return
	}
	cl := d.o.Cluster()
	var unknown []kmsg.OffsetFetchResponseGroupTopic
	if in.Topics != nil {
		q.Group.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range in.Topics {
		name, err := named(cl, "", t.TopicID, true)
		if err != protocol.None {
			unknown = append(unknown, noOffsets(t, err))
			continue
		}
		t.Topic = name
		q.Group.Topics = append(q.Group.Topics, t)
	}
	d.o.Groups.Fetch(c.client(), q, func(got *kmsg.OffsetFetchResponseGroup) {
		if in.Topics == nil {
			got.Topics = withIDs(cl, got.Topics)
		} else if got.ErrorCode == 0 {
			got.Topics = append(got.Topics, unknown...)
		}
		done(got)
	})
}

// withIDs adds ids to topics; one that does not exist any more has none and is left out.
func withIDs(cl Cluster, topics []kmsg.OffsetFetchResponseGroupTopic) []kmsg.OffsetFetchResponseGroupTopic {
	out := topics[:0]
	for _, t := range topics {
		if known, ok := cl.Topic(t.Topic); ok {
			t.TopicID = known.ID
			out = append(out, t)
		}
	}
	return out
}

func noOffsets(t kmsg.OffsetFetchRequestGroupTopic, err protocol.ErrorCode) kmsg.OffsetFetchResponseGroupTopic {
	out := kmsg.NewOffsetFetchResponseGroupTopic()
	out.Topic, out.TopicID = t.Topic, t.TopicID
	for _, index := range t.Partitions {
		p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode = index, -1, -1, new(string), int16(err)
		out.Partitions = append(out.Partitions, p)
	}
	return out
}

// oldGroup is the one group of a request before version 8.
func oldGroup(req *kmsg.OffsetFetchRequest) kmsg.OffsetFetchRequestGroup {
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = req.Group
	if req.Topics != nil || req.Version < 2 {
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range req.Topics {
		in := kmsg.NewOffsetFetchRequestGroupTopic()
		in.Topic, in.Partitions = t.Topic, t.Partitions
		g.Topics = append(g.Topics, in)
	}
	return g
}

// oldOffsets is the answer for one group in the form before version 8.
func oldOffsets(resp *kmsg.OffsetFetchResponse, req *kmsg.OffsetFetchRequest, got *kmsg.OffsetFetchResponseGroup) {
	resp.ErrorCode = got.ErrorCode
	if got.ErrorCode != 0 && req.Version < 2 {
		for _, t := range oldGroup(req).Topics {
			got.Topics = append(got.Topics, noOffsets(t, protocol.ErrorCode(got.ErrorCode)))
		}
	}
	for _, t := range got.Topics {
		out := kmsg.NewOffsetFetchResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			o := kmsg.NewOffsetFetchResponseTopicPartition()
			o.Partition, o.Offset, o.LeaderEpoch, o.Metadata, o.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			out.Partitions = append(out.Partitions, o)
		}
		resp.Topics = append(resp.Topics, out)
	}
}
