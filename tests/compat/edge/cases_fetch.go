package edge

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetch asks for partitions of a topic from offset 0 on, without waiting and without a session.
func fetch(e *env, version int16, topic string, partitions ...int32) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.MaxWaitMillis, r.MinBytes, r.MaxBytes = version, 0, 1, 1<<20
	r.SessionEpoch = -1
	if len(partitions) == 0 {
		return r
	}
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic, e.ids[topic]
	for _, i := range partitions {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.PartitionMaxBytes = i, 1<<20
		t.Partitions = append(t.Partitions, p)
	}
	r.Topics = append(r.Topics, t)
	return r
}

func fetches(version int16, topic string, partition int32, edit func(*kmsg.FetchRequest)) func(*env) (kmsg.Request, error) {
	return func(e *env) (kmsg.Request, error) {
		r := fetch(e, version, topic, partition)
		if edit != nil {
			edit(r)
		}
		return r, nil
	}
}

func at(offset int64) func(*kmsg.FetchRequest) {
	return func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = offset }
}

func atEpoch(epoch int32) func(*kmsg.FetchRequest) {
	return func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch }
}

func fetchCases() []Case {
	return []Case{
		{Name: "fetch", request: fetches(4, topicA, 0, nil)},
		{Name: "fetch by id", request: fetches(13, topicA, 0, nil)},
		{Name: "fetch at the end", request: fetches(12, topicA, 0, at(3))},
		{Name: "fetch beyond the end", request: fetches(12, topicA, 0, at(4))},
		{Name: "fetch at a negative offset", request: fetches(12, topicA, 0, at(-1))},
		{Name: "fetch an unknown topic", request: fetches(12, "edge-nobody", 0, nil)},
		{Name: "fetch an illegal name", request: fetches(12, "no spaces", 0, nil)},
		{Name: "fetch an unknown partition", request: fetches(12, topicA, 9, nil)},
		{Name: "fetch a negative partition", request: fetches(12, topicA, -1, nil)},
		{Name: "fetch an unknown partition by id", request: fetches(13, topicA, 9, nil)},
		{Name: "fetch the id of a deleted topic", request: fetches(13, topicGone, 0, nil)},
		{Name: "fetch no id", request: fetches(13, "edge-nobody", 0, nil)},
		{Name: "fetch at a later leader epoch", request: fetches(12, topicA, 0, atEpoch(99))},
		{Name: "fetch at most -1 bytes of a partition", request: fetches(12, topicA, 0, func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].PartitionMaxBytes = -1 })},
		{Name: "fetch at most -1 bytes", request: fetches(12, topicA, 0, func(r *kmsg.FetchRequest) { r.MaxBytes = -1 })},
		{Name: "fetch at least -1 bytes", request: fetches(12, topicA, 0, func(r *kmsg.FetchRequest) { r.MinBytes = -1 })},
		{Name: "fetch within -1 milliseconds", request: fetches(12, topicA, 0, func(r *kmsg.FetchRequest) { r.MaxWaitMillis = -1 })},
		{Name: "fetch at most 0 bytes", request: fetches(12, topicA, 0, func(r *kmsg.FetchRequest) { r.MaxBytes, r.Topics[0].Partitions[0].PartitionMaxBytes = 0, 0 })},
		{Name: "fetch a partition twice", request: func(e *env) (kmsg.Request, error) { return fetch(e, 12, topicA, 0, 0), nil }},
		{Name: "fetch an unknown and a known partition", request: func(e *env) (kmsg.Request, error) { return fetch(e, 12, topicA, 9, 0), nil }},
		{Name: "fetch nothing", request: func(e *env) (kmsg.Request, error) { return fetch(e, 12, topicA), nil }},
	}
}

// inSession begins a session and continues it.
type inSession struct {
	version int16
	parts   []int32 // that the session begins with
	before  []func(*kmsg.FetchRequest)
	then    func(*kmsg.FetchRequest)
	as      int16 // version of the last request; 0 the same
}

// request begins the session, sends what comes before, each at the next epoch, and returns the last request.
func (s inSession) request(e *env) (kmsg.Request, error) {
	begin := fetch(e, s.version, topicA, s.parts...)
	begin.SessionEpoch = 0
	resp, err := must[*kmsg.FetchResponse](e, begin)
	if err != nil {
		return nil, err
	}
	if resp.ErrorCode != 0 || resp.SessionID == 0 {
		return nil, fmt.Errorf("no session: %d", resp.ErrorCode)
	}
	e.names[fmt.Sprint("int ", resp.SessionID)] = "session"
	last := append(s.before[:len(s.before):len(s.before)], s.then)
	for i, edit := range last {
		version := s.version
		if i == len(last)-1 && s.as != 0 {
			version = s.as
		}
		r := fetch(e, version, topicA)
		r.SessionID, r.SessionEpoch = resp.SessionID, int32(i)+1
		edit(r)
		if i == len(last)-1 {
			return r, nil
		}
		if _, err := e.ask(r); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func forgets(e *kmsg.FetchRequest, partitions ...int32) {
	e.ForgottenTopics = append(e.ForgottenTopics, kmsg.FetchRequestForgottenTopic{Topic: topicA, Partitions: partitions})
}

func sessionCases() []Case {
	same := func(*kmsg.FetchRequest) {}
	epoch := func(n int32) func(*kmsg.FetchRequest) { return func(r *kmsg.FetchRequest) { r.SessionEpoch = n } }
	names := func(partition int32, offset int64) func(*kmsg.FetchRequest) {
		return func(r *kmsg.FetchRequest) {
			t := kmsg.NewFetchRequestTopic()
			p := kmsg.NewFetchRequestTopicPartition()
			t.Topic, p.Partition, p.FetchOffset, p.PartitionMaxBytes = topicA, partition, offset, 1<<20
			t.Partitions = append(t.Partitions, p)
			r.Topics = append(r.Topics, t)
		}
	}
	stray := func(id, epoch int32) func(*env) (kmsg.Request, error) {
		return fetches(12, topicA, 0, func(r *kmsg.FetchRequest) { r.SessionID, r.SessionEpoch = id, epoch })
	}
	both := []int32{0, 1}
	return []Case{
		{Name: "session 0 goes on", request: stray(0, 1)},
		{Name: "an unknown session goes on", request: stray(123456, 1)},
		{Name: "an unknown session begins anew", request: stray(123456, 0)},
		{Name: "an unknown session ends", request: stray(123456, -1)},
		{Name: "an unknown session at a negative epoch", request: stray(123456, -9)},
		{Name: "a session goes on", request: inSession{version: 12, parts: both, then: same}.request},
		{Name: "a session goes on by id", request: inSession{version: 13, parts: both, then: same}.request},
		{Name: "a session with nothing new", request: inSession{version: 12, parts: []int32{0}, before: []func(*kmsg.FetchRequest){names(0, 3)}, then: same}.request},
		{Name: "a session skips an epoch", request: inSession{version: 12, parts: both, then: epoch(2)}.request},
		{Name: "a session repeats an epoch", request: inSession{version: 12, parts: both, before: []func(*kmsg.FetchRequest){same}, then: epoch(1)}.request},
		{Name: "a session at a negative epoch", request: inSession{version: 12, parts: both, then: epoch(-2)}.request},
		{Name: "a session by name goes on by id", request: inSession{version: 12, parts: both, then: same, as: 13}.request},
		{Name: "a session by id goes on by name", request: inSession{version: 13, parts: both, then: same, as: 12}.request},
		{Name: "a session takes in an unknown partition", request: inSession{version: 12, parts: []int32{0}, before: []func(*kmsg.FetchRequest){names(0, 3)}, then: names(9, 0)}.request},
		{Name: "an error is told again", request: inSession{version: 12, parts: []int32{0}, before: []func(*kmsg.FetchRequest){names(0, 3), names(9, 0)}, then: same}.request},
		{Name: "an offset out of range in a session", request: inSession{version: 12, parts: []int32{0}, then: names(0, 99)}.request},
		{Name: "a session forgets a partition", request: inSession{version: 12, parts: both, then: func(r *kmsg.FetchRequest) { forgets(r, 1) }}.request},
		{Name: "a session forgets what it has not", request: inSession{version: 12, parts: both, then: func(r *kmsg.FetchRequest) { forgets(r, 7) }}.request},
		{Name: "a session forgets all", request: inSession{version: 12, parts: both, then: func(r *kmsg.FetchRequest) { forgets(r, 0, 1) }}.request},
		{Name: "a session that has ended", request: inSession{version: 12, parts: both, before: []func(*kmsg.FetchRequest){epoch(-1)}, then: epoch(1)}.request},
		{Name: "a session that has forgotten all", request: inSession{version: 12, parts: both, before: []func(*kmsg.FetchRequest){func(r *kmsg.FetchRequest) { forgets(r, 0, 1) }}, then: same}.request},
	}
}

func listOffsets(version int16, topic string, partition int32, timestamp int64) *kmsg.ListOffsetsRequest {
	r := kmsg.NewPtrListOffsetsRequest()
	r.Version, r.ReplicaID, r.TimeoutMillis = version, -1, 10_000
	t := kmsg.NewListOffsetsRequestTopic()
	p := kmsg.NewListOffsetsRequestTopicPartition()
	t.Topic, p.Partition, p.Timestamp = topic, partition, timestamp
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

func epochEnd(topic string, partition, current, epoch int32) func(*env) (kmsg.Request, error) {
	r := kmsg.NewPtrOffsetForLeaderEpochRequest()
	r.Version, r.ReplicaID = 4, -1
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	t.Topic, p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = topic, partition, current, epoch
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return plain(r)
}

func offsetCases() []Case {
	twice := listOffsets(7, topicA, 0, -1)
	twice.Topics[0].Partitions = append(twice.Topics[0].Partitions, twice.Topics[0].Partitions[0])
	later := listOffsets(7, topicA, 0, -1)
	later.Topics[0].Partitions[0].CurrentLeaderEpoch = 99
	return []Case{
		{Name: "latest offset", request: plain(listOffsets(1, topicA, 0, -1))},
		{Name: "offset by time", request: plain(listOffsets(7, topicA, 0, 5))},
		{Name: "offset by a time to come", request: plain(listOffsets(7, topicA, 0, 1<<50))},
		{Name: "offset of a partition twice", request: plain(twice)},
		{Name: "offset of an unknown topic", request: plain(listOffsets(7, "edge-nobody", 0, -1))},
		{Name: "offset of an unknown partition", request: plain(listOffsets(7, topicA, 9, -1))},
		{Name: "offset at a later leader epoch", request: plain(later)},
		{Name: "offset of the largest time, too early", request: plain(listOffsets(6, topicA, 0, -3))},
		{Name: "offset of the largest time", request: plain(listOffsets(7, topicA, 0, -3))},
		{Name: "earliest local offset, too early", request: plain(listOffsets(7, topicA, 0, -4))},
		{Name: "earliest local offset", request: plain(listOffsets(8, topicA, 0, -4))},
		{Name: "latest tiered offset", request: plain(listOffsets(9, topicA, 0, -5))},
		{Name: "offset of special time -9", request: plain(listOffsets(10, topicA, 0, -9))},
		{Name: "end of an epoch", request: epochEnd(topicA, 0, -1, 0)},
		{Name: "end of an epoch to come", request: epochEnd(topicA, 0, -1, 99)},
		{Name: "end of a negative epoch", request: epochEnd(topicA, 0, -1, -5)},
		{Name: "end of an epoch of an unknown topic", request: epochEnd("edge-nobody", 0, -1, 0)},
		{Name: "end of an epoch of an unknown partition", request: epochEnd(topicA, 9, -1, 0)},
		{Name: "end of an epoch at a later leader epoch", request: epochEnd(topicA, 0, 99, 0)},
	}
}
