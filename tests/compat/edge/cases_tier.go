package edge

import "github.com/twmb/franz-go/pkg/kmsg"

// tierCases are what may be asked of topics whose older segments go into a tier. Nothing is uploaded within a run.
func tierCases() []Case {
	create := func(configs ...string) func(*env) (kmsg.Request, error) {
		t := newTopic("edge-new", 1, 1)
		for i := 0; i < len(configs); i += 2 {
			t = withConfig(t, configs[i], kmsg.StringPtr(configs[i+1]))
		}
		return create(t)
	}
	on := func(topic string, changes ...[]any) func(*env) (kmsg.Request, error) {
		return alter(kindTopic, topic, true, changes...)
	}
	set := func(key, value string) []any { return []any{key, 0, value} }
	const enable, local, total = "remote.storage.enable", "local.retention.ms", "retention.ms"
	return []Case{
		{Name: "create a tiered topic", request: create(enable, "true")},
		{Name: "create a tiered, compacted topic", request: create(enable, "true", "cleanup.policy", "compact")},
		{Name: "create a tiered, compacted and deleted topic", request: create(enable, "true", "cleanup.policy", "compact,delete")},
		{Name: "create a tiered topic that keeps more on disk than at all", request: create(enable, "true", total, "1000", local, "1001")},
		{Name: "create a tiered topic that keeps all on disk but not at all", request: create(enable, "true", total, "1000", local, "-1")},
		{Name: "create a tiered topic of fewer bytes than on disk", request: create(enable, "true", "retention.bytes", "1000", "local.retention.bytes", "1001")},
		{Name: "create a topic that keeps more on disk than at all", request: create(total, "1000", local, "1001")},
		{Name: "create a tiered topic that uploads nothing", request: create(enable, "true", "remote.log.copy.disable", "true")},
		{Name: "create a tiered topic that uploads nothing and keeps less on disk", request: create(enable, "true", "remote.log.copy.disable", "true", total, "2000000", local, "1000000")},
		{Name: "create a topic that uploads nothing", request: create("remote.log.copy.disable", "true")},
		{Name: "create a topic that may leave the tier", request: create("remote.log.delete.on.disable", "true")},
		{Name: "create a tiered topic with a negative upload lag", request: create(enable, "true", "remote.copy.lag.ms", "-2")},
		{Name: "create a tiered topic whose upload lag is above local retention", request: create(enable, "true", local, "1000000", "remote.copy.lag.ms", "1000001")},
		{Name: "let a topic go into the tier", request: on(topicA, set(enable, "true"))},
		{Name: "let a compacted topic go into the tier", request: on(topicCompact, set(enable, "true"))},
		{Name: "let a topic that is not tiered stay so", request: on(topicA, set(enable, "false"))},
		{Name: "compact a tiered topic", request: on(topicTiered, set("cleanup.policy", "compact"))},
		{Name: "compact a tiered topic too", request: on(topicTiered, []any{"cleanup.policy", 2, "compact"})},
		{Name: "take a topic out of the tier", request: on(topicTiered, set(enable, "false"))},
		{Name: "take a topic out of the tier with all that is there", request: on(topicTiered, set(enable, "false"), set("remote.log.delete.on.disable", "true"))},
		{Name: "let a tiered topic be as topics are", request: on(topicTiered, []any{enable, 1})},
		{Name: "let a tiered topic upload nothing more", request: on(topicTiered, set("remote.log.copy.disable", "true"))},
		{Name: "let a tiered topic upload nothing more and keep less on disk", request: on(topicTiered, set("remote.log.copy.disable", "true"), set(local, "1000"))},
		{Name: "keep more of a tiered topic on disk than at all", request: on(topicTiered, set(total, "1000"), set(local, "1001"))},
		{Name: "keep as much of a tiered topic on disk as at all", request: on(topicTiered, set(total, "1000"), set(local, "1000"))},
		{Name: "replace a tiered topic's configs by one", request: replace(kindTopic, topicTiered, kmsg.StringPtr("1000000"))},
		{Name: "earliest local offset of a tiered topic", request: plain(listOffsets(9, topicTiered, 0, -4))},
		{Name: "latest tiered offset of a tiered topic", request: plain(listOffsets(9, topicTiered, 0, -5))},
		{Name: "earliest pending offset, too early", request: plain(listOffsets(10, topicTiered, 0, -6))},
		{Name: "earliest pending offset of a tiered topic", request: plain(listOffsets(11, topicTiered, 0, -6))},
		{Name: "earliest pending offset of a topic", request: plain(listOffsets(11, topicA, 0, -6))},
		{Name: "delete records of a tiered topic", request: deleteRecords(topicTiered, 0, 0)},
	}
}

// internalCases ask of the broker's own topics what clients may not do with them.
func internalCases() []Case {
	const offsets = "__consumer_offsets"
	return []Case{
		{Name: "produce to the offsets topic", request: func(e *env) (kmsg.Request, error) { return produce(e, 9, offsets, 0, one()), nil }},
		{Name: "fetch the offsets topic", request: fetches(12, offsets, 0, nil)},
		{Name: "create the offsets topic", request: create(newTopic(offsets, 1, 1))},
		{Name: "delete records of the offsets topic", request: deleteRecords(offsets, 0, 0)},
		{Name: "describe the offsets topic's configs", request: describeConfigs(kindTopic, offsets)},
		{Name: "let the offsets topic go into the tier", request: alter(kindTopic, offsets, true, []any{"remote.storage.enable", 0, "true"})},
		{Name: "grow the offsets topic", request: grow(to(offsets, 9))},
		{Name: "commit an offset of the offsets topic", request: commitAs(nobody, func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Topic = offsets })},
		{Name: "create 10001 partitions", request: create(newTopic("edge-new", 10_001, 1))},
		{Name: "grow to 10003 partitions", request: grow(to(topicA, 10_003))},
		{Name: "create two thousand million partitions", request: create(newTopic("edge-new", 2_000_000_000, 1))},
		{Name: "create -32768 replicas", request: create(newTopic("edge-new", 1, -32768))},
		{Name: "create nothing", request: create()},
		{Name: "grow nothing", request: grow()},
		{Name: "delete nothing", request: deleteTopics(5, func(*kmsg.DeleteTopicsRequest) {})},
	}
}
