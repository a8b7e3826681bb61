package edge

import (
	"encoding/binary"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func initProducerID(version int16, edit func(*kmsg.InitProducerIDRequest)) func(*env) (kmsg.Request, error) {
	r := kmsg.NewPtrInitProducerIDRequest()
	r.Version, r.TransactionTimeoutMillis, r.ProducerID, r.ProducerEpoch = version, 60_000, -1, -1
	edit(r)
	return plain(r)
}

func producerIDCases() []Case {
	type r = *kmsg.InitProducerIDRequest
	same := func(r) {}
	id := func(s string) func(r) { return func(r r) { r.TransactionalID = &s } }
	resume := func(id int64, epoch int16) func(r) { return func(r r) { r.ProducerID, r.ProducerEpoch = id, epoch } }
	return []Case{
		{Name: "a producer id, 0", request: initProducerID(0, same)},
		{Name: "a producer id, 5", request: initProducerID(5, same)},
		{Name: "a producer id with a negative timeout", request: initProducerID(4, func(r r) { r.TransactionTimeoutMillis = -1 })},
		{Name: "a producer id resumed", request: initProducerID(4, resume(5, 3))},
		{Name: "a producer id resumed without an epoch", request: initProducerID(4, resume(5, -1))},
		{Name: "a producer id resumed by an epoch alone", request: initProducerID(4, resume(-1, 3))},
		{Name: "a producer id for the empty transactional id", request: initProducerID(4, id(""))},
		{Name: "a producer id for a transactional id", request: initProducerID(4, id("edge"))},
	}
}

// absentCases are keys that varve does not serve.
func absentCases() []Case {
	at := func(version int16, r kmsg.Request) func(*env) (kmsg.Request, error) {
		r.SetVersion(version)
		return plain(r)
	}
	join := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	join.Group, join.MemberID, join.RebalanceTimeoutMillis = "edge-consumer", "AAAAAAAAAAAAAAAAAAAAAQ", 60_000
	join.SubscribedTopicNames = []string{topicA}
	share := kmsg.NewPtrShareGroupHeartbeatRequest()
	share.GroupID, share.MemberID, share.SubscribedTopicNames = "edge-share", "AAAAAAAAAAAAAAAAAAAAAQ", []string{topicA}
	handshake := kmsg.NewPtrSASLHandshakeRequest()
	handshake.Mechanism = "PLAIN"
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID = "edge", 1
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID = "edge", 1
	offsets := kmsg.NewPtrTxnOffsetCommitRequest()
	offsets.TransactionalID, offsets.Group = "edge", "edge-consumer"
	describe := kmsg.NewPtrDescribeTransactionsRequest()
	describe.TransactionalIDs = []string{"edge"}
	return []Case{
		{Name: "add partitions to a transaction", request: at(3, add)},
		{Name: "end a transaction", request: at(3, end)},
		{Name: "commit offsets in a transaction", request: at(3, offsets)},
		{Name: "describe a transaction", request: at(0, describe)},
		{Name: "list transactions", request: at(0, kmsg.NewPtrListTransactionsRequest())},
		{Name: "heartbeat of the consumer protocol", request: at(1, join)},
		{Name: "describe groups of the consumer protocol", request: at(0, kmsg.NewPtrConsumerGroupDescribeRequest())},
		{Name: "heartbeat of a share group", request: at(1, share)},
		{Name: "sasl handshake on a listener without sasl", request: at(1, handshake)},
		{Name: "describe scram credentials", request: at(0, kmsg.NewPtrDescribeUserSCRAMCredentialsRequest())},
		{Name: "alter no quotas", request: at(1, kmsg.NewPtrAlterClientQuotasRequest())},
		{Name: "list delegation tokens", request: at(2, kmsg.NewPtrDescribeDelegationTokenRequest())},
		{Name: "list reassignments", request: at(0, kmsg.NewPtrListPartitionReassignmentsRequest())},
		{Name: "alter no reassignments", request: at(0, kmsg.NewPtrAlterPartitionAssignmentsRequest())},
		{Name: "describe the quorum", request: at(1, kmsg.NewPtrDescribeQuorumRequest())},
		{Name: "update no features", request: at(1, kmsg.NewPtrUpdateFeaturesRequest())},
		{Name: "move no replicas between folders", request: at(2, kmsg.NewPtrAlterReplicaLogDirsRequest())},
		{Name: "ask for metrics to push", request: at(0, kmsg.NewPtrGetTelemetrySubscriptionsRequest())},
		{Name: "a request of a broker", request: at(0, kmsg.NewPtrBrokerHeartbeatRequest())},
	}
}

// served are requests of the keys that both brokers serve, whole and right.
func served() []kmsg.Request {
	var all []kmsg.Request
	for key := int16(0); key <= 75; key++ {
		r := kmsg.RequestForKey(key)
		if !slices.Contains([]int16{0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 19, 20, 21, 22, 23, 29, 30, 31, 32, 33, 35, 37, 42, 43, 44, 47, 48, 60, 61, 74, 75}, key) {
			continue
		}
		r.SetVersion(map[int16]int16{0: 9, 1: 12, 2: 7, 3: 12, 8: 8, 9: 7, 10: 3, 11: 9, 12: 4, 13: 4, 14: 5, 15: 5, 16: 4, 19: 7, 20: 6, 21: 2,
			22: 4, 23: 4, 29: 2, 30: 2, 31: 2, 32: 4, 33: 2, 35: 4, 37: 3, 42: 2, 43: 2, 44: 1, 48: 1, 60: 1, 74: 1}[key])
		all = append(all, r)
	}
	return all
}

// bodyCases are bodies that end early or count wrong.
func bodyCases() (all []Case) {
	for _, r := range served() {
		name := kmsg.NameForKey(r.Key())
		whole := frame(r)
		all = append(all,
			Case{Name: name + " without a body", raw: rawFrame(r.Key(), r.GetVersion(), flexTags(r)...)},
			Case{Name: name + " short of a byte", raw: whole[:len(whole)-1]})
	}
	huge, negative := []byte{0x7f, 0xff, 0xff, 0xff}, []byte{0xff, 0xff, 0xff, 0xfe}
	compactHuge := []byte{0xff, 0xff, 0xff, 0xff, 0x0f}
	counts := []struct {
		name         string
		key, version int16
		before       []byte // of the body, before the count
	}{
		{"Metadata", 3, 8, nil}, {"DeleteTopics", 20, 3, nil}, {"DescribeGroups", 15, 4, nil}, {"DeleteGroups", 42, 1, nil}, {"CreateTopics", 19, 4, nil},
		{"LeaveGroup", 13, 3, []byte{0, 1, 'g'}}, {"OffsetFetch", 9, 5, []byte{0, 1, 'g'}}, {"ListOffsets", 2, 1, []byte{0xff, 0xff, 0xff, 0xff}},
		{"Produce", 0, 3, []byte{0xff, 0xff, 0, 1, 0, 0, 0, 9}}, {"DescribeConfigs", 32, 1, nil}, {"AlterConfigs", 33, 1, nil},
		{"IncrementalAlterConfigs", 44, 0, nil}, {"CreatePartitions", 37, 1, nil}, {"DescribeLogDirs", 35, 1, nil}, {"ElectLeaders", 43, 1, []byte{0}},
	}
	for _, c := range counts {
		all = append(all,
			Case{Name: c.name + " with two thousand million elements", raw: rawFrame(c.key, c.version, slices.Concat(c.before, huge, make([]byte, 16))...)},
			Case{Name: c.name + " with -2 elements", raw: rawFrame(c.key, c.version, slices.Concat(c.before, negative, make([]byte, 16))...)})
	}
	return append(all,
		Case{Name: "Metadata with four thousand million compact elements", raw: rawFrame(3, 12, slices.Concat([]byte{0}, compactHuge, make([]byte, 16))...)},
		Case{Name: "ListGroups with a compact count that never ends", raw: rawFrame(16, 4, slices.Concat([]byte{0}, slices.Repeat([]byte{0xff}, 12))...)},
		Case{Name: "Heartbeat with a group's name that is not UTF-8", raw: rawFrame(12, 0, 0, 2, 0xff, 0xfe, 0, 0, 0, 1, 0, 1, 'm')},
		Case{Name: "Heartbeat with a null group", raw: rawFrame(12, 0, 0xff, 0xff, 0, 0, 0, 1, 0, 1, 'm')},
		Case{Name: "Heartbeat with a group's name longer than the body", raw: rawFrame(12, 0, 0x7f, 0xff, 'g', 0, 0, 0, 1, 0, 1, 'm')},
		Case{Name: "Heartbeat and bytes after it", raw: rawFrame(12, 0, 0, 1, 'g', 0, 0, 0, 1, 0, 1, 'm', 1, 2, 3)},
		Case{Name: "Heartbeat with an unknown tag", raw: rawFrame(12, 4, 0, 2, 'g', 0, 0, 0, 1, 2, 'm', 0, 1, 99, 2, 7, 7)},
		Case{Name: "Heartbeat with a tag longer than the body", raw: rawFrame(12, 4, 0, 2, 'g', 0, 0, 0, 1, 2, 'm', 0, 1, 99, 200, 7, 7)},
		Case{Name: "Heartbeat with tags out of order", raw: rawFrame(12, 4, 0, 2, 'g', 0, 0, 0, 1, 2, 'm', 0, 2, 99, 1, 7, 98, 1, 7)},
		Case{Name: "Heartbeat with a tag in its header", raw: rawFrame(12, 4, 1, 99, 1, 7, 2, 'g', 0, 0, 0, 1, 2, 'm', 0, 0)},
	)
}

// flexTags is the end of a header of version 2.
func flexTags(r kmsg.Request) []byte {
	if r.IsFlexible() {
		return []byte{0}
	}
	return nil
}

// frameCases are frames that are no requests.
func frameCases() []Case {
	size := func(n int32, f ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(n)), f...) }
	return []Case{
		{Name: "a frame of size -1", sized: size(-1, 0, 18, 0, 0, 0, 0, 0, 7)},
		{Name: "a frame of size 0", sized: size(0)},
		{Name: "a frame of one byte", sized: size(1, 0)},
		{Name: "a frame that ends in the correlation id", sized: size(6, 0, 3, 0, 1, 0, 0)},
		{Name: "a frame without a client id", sized: size(8, 0, 3, 0, 1, 0, 0, 0, 7)},
		{Name: "a frame larger than any", sized: size(2_000_000_000, 0, 3, 0, 1, 0, 0, 0, 7)},
		{Name: "a frame a byte larger than may be", sized: size(100*1024*1024+1, 0, 3, 0, 1, 0, 0, 0, 7)},
		{Name: "a frame of HTTP", sized: []byte("GET / HTTP/1.1\r\nHost: varve\r\n\r\n")},
		{Name: "a frame of TLS", sized: []byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0, 0, 0, 0, 0}},
		{Name: "a client id longer than the frame", raw: []byte{0, 3, 0, 1, 0, 0, 0, 7, 0x7f, 0xff, 'e'}},
		{Name: "a client id of length -2", raw: []byte{0, 3, 0, 1, 0, 0, 0, 7, 0xff, 0xfe, 0, 0, 0, 0}},
		{Name: "a null client id", raw: []byte{0, 3, 0, 1, 0, 0, 0, 7, 0xff, 0xff, 0, 0, 0, 0}},
		{Name: "a client id that is not UTF-8", raw: []byte{0, 3, 0, 1, 0, 0, 0, 7, 0, 2, 0xff, 0xfe, 0, 0, 0, 0}},
	}
}
