package tiering

import (
	"fmt"
	"hash/fnv"
	"path"
	"strconv"
	"strings"

	"varve/protocol"
)

// SegmentKey is everything that a segment object's key says about it, so that a
// LIST alone tells what a bucket holds.
//
//	<prefix>/<cluster-id>/<hh>/<topic-id>/<partition>/<base>-<next>-<max ts>-<epoch>-<generation>-<segment id>.seg
//
//	hh          2 hex digits, FNV-1a of topic id and partition: spreads load, lets LIST run in parallel
//	topic-id    22 characters, Kafka's base64
//	partition   10 decimal digits
//	base, next  20 decimal digits each
//	max ts      20 characters, decimal with leading zeros; -1 is -0000000000000000001
//	epoch       10 decimal digits, the writer's leader epoch
//	generation  10 decimal digits
//	segment id  22 characters, Kafka's base64
//
// Widths are fixed, so within a partition the lexicographic order of keys is the
// order of base offsets.
type SegmentKey struct {
	Prefix       string // without slashes at either end; may be empty
	ClusterID    string
	TopicID      protocol.UUID
	Partition    int32
	Base, Next   int64 // offsets [Base, Next)
	MaxTimestamp int64 // milliseconds, -1 = none
	LeaderEpoch  int32
	Generation   uint32
	ID           protocol.UUID
}

const (
	segmentSuffix  = ".seg"
	uuidTextLen    = 22
	segmentNameLen = 20 + 1 + 20 + 1 + 20 + 1 + 10 + 1 + 10 + 1 + uuidTextLen + len(segmentSuffix)
)

// String returns the object's key.
func (k SegmentKey) String() string {
	name := fmt.Sprintf("%020d-%020d-%020d-%010d-%010d-%s%s",
		k.Base, k.Next, k.MaxTimestamp, k.LeaderEpoch, k.Generation, k.ID, segmentSuffix)
	return path.Join(partitionPrefix(k.Prefix, k.ClusterID, k.TopicID, k.Partition), name)
}

// partitionPrefix is the folder of one partition's segments, without a slash at
// its end.
func partitionPrefix(prefix, clusterID string, topicID protocol.UUID, partition int32) string {
	return path.Join(prefix, clusterID, spread(topicID, partition), topicID.String(), fmt.Sprintf("%010d", partition))
}

func spread(topicID protocol.UUID, partition int32) string {
	h := fnv.New32a()
	_, _ = h.Write(topicID[:])
	_, _ = h.Write([]byte{byte(partition >> 24), byte(partition >> 16), byte(partition >> 8), byte(partition)})
	s := h.Sum32()
	return fmt.Sprintf("%02x", byte(s^s>>8^s>>16^s>>24))
}

// ParseSegmentKey reads a key that SegmentKey.String wrote. Anything that it
// would not write exactly so is an error.
func ParseSegmentKey(key string) (SegmentKey, error) {
	bad := func(what string) (SegmentKey, error) {
		return SegmentKey{}, fmt.Errorf("tiering: %.200q is not a segment key: %s", key, what)
	}
	parts := strings.Split(key, "/")
	if len(parts) < 5 {
		return bad("too few folders")
	}
	n := len(parts)
	name := parts[n-1]
	if len(name) != segmentNameLen || !strings.HasSuffix(name, segmentSuffix) {
		return bad("the name has the wrong length or ending")
	}
	k := SegmentKey{Prefix: strings.Join(parts[:n-5], "/"), ClusterID: parts[n-5]}
	var err error
	if k.TopicID, err = protocol.ParseUUID(parts[n-3]); err != nil {
		return bad("topic id")
	}
	var nums [6]int64
	fields := []string{name[0:20], name[21:41], name[42:62], name[63:73], name[74:84], parts[n-2]}
	bits := []int{64, 64, 64, 32, 33, 32}
	for i, f := range fields {
		if nums[i], err = strconv.ParseInt(f, 10, bits[i]); err != nil {
			return bad("number " + f)
		}
	}
	if k.ID, err = protocol.ParseUUID(name[85 : 85+uuidTextLen]); err != nil {
		return bad("segment id")
	}
	if nums[4] < 0 || nums[4] > 1<<32-1 {
		return bad("generation")
	}
	k.Base, k.Next, k.MaxTimestamp = nums[0], nums[1], nums[2]
	k.LeaderEpoch, k.Generation, k.Partition = int32(nums[3]), uint32(nums[4]), int32(nums[5])
	if k.Base < 0 || k.Next <= k.Base {
		return bad("offsets")
	}
	if k.String() != key {
		return bad("it is not in canonical form")
	}
	return k, nil
}

// ownerKey is the object that names the cluster a prefix belongs to.
func ownerKey(prefix, clusterID string) string { return path.Join(prefix, clusterID, "owner") }

// journalPrefix is the folder of journal objects, with its slash.
func journalPrefix(prefix, clusterID string) string {
	return path.Join(prefix, clusterID, "meta", "journal") + "/"
}

// journalKey names a journal object by its first raft index in 20 digits, so
// that their lexicographic order is their order in time.
func journalKey(prefix, clusterID string, first uint64) string {
	return journalPrefix(prefix, clusterID) + fmt.Sprintf("%020d", first)
}
