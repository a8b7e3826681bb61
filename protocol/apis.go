package protocol

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// API keys that code below the request handlers needs by name (ApiKeys.java).
const (
	KeyProduce                 int16 = 0
	KeyFetch                   int16 = 1
	KeyListOffsets             int16 = 2
	KeyMetadata                int16 = 3
	KeyOffsetCommit            int16 = 8
	KeyOffsetFetch             int16 = 9
	KeyFindCoordinator         int16 = 10
	KeyJoinGroup               int16 = 11
	KeyHeartbeat               int16 = 12
	KeyLeaveGroup              int16 = 13
	KeySyncGroup               int16 = 14
	KeyDescribeGroups          int16 = 15
	KeyListGroups              int16 = 16
	KeyAPIVersions             int16 = 18
	KeyCreateTopics            int16 = 19
	KeyDeleteTopics            int16 = 20
	KeyDeleteRecords           int16 = 21
	KeyInitProducerID          int16 = 22
	KeyOffsetForLeaderEpoch    int16 = 23
	KeyDescribeACLs            int16 = 29
	KeyCreateACLs              int16 = 30
	KeyDeleteACLs              int16 = 31
	KeyDescribeConfigs         int16 = 32
	KeyAlterConfigs            int16 = 33
	KeyDescribeLogDirs         int16 = 35
	KeyCreatePartitions        int16 = 37
	KeyDeleteGroups            int16 = 42
	KeyElectLeaders            int16 = 43
	KeyIncrementalAlterConfigs int16 = 44
	KeyOffsetDelete            int16 = 47
	KeyDescribeClientQuotas    int16 = 48
	KeyDescribeCluster         int16 = 60
	KeyDescribeProducers       int16 = 61
	KeyListConfigResources     int16 = 74
	KeyDescribeTopicPartitions int16 = 75
)

// APIRange is one row of the version table.
type APIRange struct {
	Key, Min, Max int16
	Name          string
}

// apiTable is the one table of what is advertised, ordered by key.
var apiTable = []APIRange{
	{KeyProduce, 0, 13, "Produce"},
	{KeyFetch, 4, 18, "Fetch"},
	{KeyListOffsets, 1, 11, "ListOffsets"},
	{KeyMetadata, 0, 13, "Metadata"},
	{KeyOffsetCommit, 2, 10, "OffsetCommit"},
	{KeyOffsetFetch, 1, 10, "OffsetFetch"},
	{KeyFindCoordinator, 0, 6, "FindCoordinator"},
	{KeyJoinGroup, 0, 9, "JoinGroup"},
	{KeyHeartbeat, 0, 4, "Heartbeat"},
	{KeyLeaveGroup, 0, 5, "LeaveGroup"},
	{KeySyncGroup, 0, 5, "SyncGroup"},
	{KeyDescribeGroups, 0, 6, "DescribeGroups"},
	{KeyListGroups, 0, 5, "ListGroups"},
	{KeyAPIVersions, 0, 5, "ApiVersions"},
	{KeyCreateTopics, 2, 7, "CreateTopics"},
	{KeyDeleteTopics, 1, 6, "DeleteTopics"},
	{KeyDeleteRecords, 0, 2, "DeleteRecords"},
	{KeyInitProducerID, 0, 5, "InitProducerId"},
	{KeyOffsetForLeaderEpoch, 2, 4, "OffsetForLeaderEpoch"},
	{KeyDescribeACLs, 1, 3, "DescribeAcls"},
	{KeyCreateACLs, 1, 3, "CreateAcls"},
	{KeyDeleteACLs, 1, 3, "DeleteAcls"},
	{KeyDescribeConfigs, 1, 4, "DescribeConfigs"},
	{KeyAlterConfigs, 0, 2, "AlterConfigs"},
	{KeyDescribeLogDirs, 1, 5, "DescribeLogDirs"},
	{KeyCreatePartitions, 0, 3, "CreatePartitions"},
	{KeyDeleteGroups, 0, 3, "DeleteGroups"},
	{KeyElectLeaders, 0, 2, "ElectLeaders"},
	{KeyIncrementalAlterConfigs, 0, 1, "IncrementalAlterConfigs"},
	{KeyOffsetDelete, 0, 0, "OffsetDelete"},
	{KeyDescribeClientQuotas, 0, 1, "DescribeClientQuotas"},
	{KeyDescribeCluster, 0, 2, "DescribeCluster"},
	{KeyDescribeProducers, 0, 0, "DescribeProducers"},
	{KeyListConfigResources, 0, 1, "ListConfigResources"},
	{KeyDescribeTopicPartitions, 0, 0, "DescribeTopicPartitions"},
}

// minProduceVersion is the first version that carries magic 2 batches. Lower
// ones are advertised but refused (KIP-896, ApiVersionsResponse.java).
const minProduceVersion = 3

// APIs returns what ApiVersions advertises, ordered by key.
func APIs() []APIRange { return slices.Clone(apiTable) }

// RangeOf returns the advertised range of one key.
func RangeOf(key int16) (APIRange, bool) {
	i, ok := slices.BinarySearchFunc(apiTable, key, func(r APIRange, k int16) int { return int(r.Key) - int(k) })
	if !ok {
		return APIRange{}, false
	}
	return apiTable[i], true
}

// Supported reports whether requests of this key and version are served. A
// connection that sends another is closed, but for ApiVersions, which is
// answered with UnsupportedVersion in a version 0 body (KIP-511).
func Supported(key, version int16) bool {
	r, ok := RangeOf(key)
	return ok && version >= r.Min && version <= r.Max && (key != KeyProduce || version >= minProduceVersion)
}

// neverFlexible marks keys without flexible versions.
const neverFlexible = int16(0x7fff)

// flexibleSince holds the first flexible version of every key that kmsg knows;
// keys unknown to kmsg are neverFlexible.
var flexibleSince = func() []int16 {
	since := make([]int16, kmsg.MaxKey+1)
	for key := range since {
		since[key] = neverFlexible
		req := kmsg.RequestForKey(int16(key))
		if req == nil {
			continue
		}
		for v := int16(0); v <= req.MaxVersion(); v++ {
			if req.SetVersion(v); req.IsFlexible() {
				since[key] = v
				break
			}
		}
	}
	return since
}()

func isFlexible(key, version int16) bool {
	return key >= 0 && int(key) < len(flexibleSince) && version >= flexibleSince[key]
}
