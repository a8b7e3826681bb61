package metastore

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"varve/protocol"
)

// Keys in Pebble begin with one byte that names what they hold; numbers are big-endian, so that order of keys is order of numbers.
//
//	A                            applied Raft index (8 bytes)
//	M                            ClusterRow
//	B broker(4)                  Broker
//	C node id as text            BrokerConfigRow
//	T topic(16)                  TopicRow
//	P topic(16) partition(4)     Partition
//	R topic(16) partition(4)     TierRow
//	X topic(16)                  TombstoneRow: a deleted topic that still has segment rows
//	f topic(16) partition(4) base(8)   segment row, FINISHED
//	g topic(16) partition(4) base(8)   group of FINISHED rows, see groups.go
//	s topic(16) partition(4) id(16)    segment row, STARTED
//	d topic(16) partition(4) id(16)    segment row, DELETE_STARTED
//	i id(16)                     state(1) topic(16) partition(4), for rows under s and d
//	O number(4)                  location
//	J index(8)                   JournalEntry
//	Z                            RestoreRow
//	Y topic(16)                  RestoringTopicRow: a topic that a restore fills; its rows stand under f, d and R already
//	W cluster id as text         OwnerClaim: another cluster's folder in the bucket that this one has taken over
//	L topic(16) partition(4)     Raft index of the partition's log-start move in the journal; zero topic: of the producer ids
const (
	nsApplied      = 'A'
	nsCluster      = 'M'
	nsBroker       = 'B'
	nsBrokerConfig = 'C'
	nsTopic        = 'T'
	nsPartition    = 'P'
	nsTier         = 'R'
	nsTombstone    = 'X'
	nsFinished     = 'f'
	nsGroup        = 'g'
	nsStarted      = 's'
	nsDeleting     = 'd'
	nsByID         = 'i'
	nsLocation     = 'O'
	nsJournal      = 'J'
	nsLatest       = 'L'
	nsRestore      = 'Z'
	nsRestoring    = 'Y'
	nsClaim        = 'W'
)

const partKeyLen = 1 + 16 + 4

func partKey(ns byte, topic protocol.UUID, partition int32) []byte {
	k := make([]byte, 0, partKeyLen+16)
	k = append(k, ns)
	k = append(k, topic[:]...)
	return binary.BigEndian.AppendUint32(k, uint32(partition))
}

func splitPartKey(k []byte) (topic protocol.UUID, partition int32, ok bool) {
	if len(k) < partKeyLen {
		return topic, 0, false
	}
	copy(topic[:], k[1:])
	return topic, int32(binary.BigEndian.Uint32(k[17:])), true
}

func topicKey(ns byte, topic protocol.UUID) []byte { return append([]byte{ns}, topic[:]...) }

func offsetKey(prefix []byte, off int64) []byte {
	k := make([]byte, 0, len(prefix)+8)
	return binary.BigEndian.AppendUint64(append(k, prefix...), uint64(off))
}

func segmentKey(ns byte, s *RemoteSegment) []byte {
	if ns == nsFinished {
		return offsetKey(partKey(ns, s.TopicID, s.Partition), s.Base)
	}
	return append(partKey(ns, s.TopicID, s.Partition), s.ID[:]...)
}

func u32Key(ns byte, n uint32) []byte { return binary.BigEndian.AppendUint32([]byte{ns}, n) }

func u64Key(ns byte, n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{ns}, n) }

// prefixEnd is the first key after all that begin with prefix.
func prefixEnd(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		end[i]++
		if end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

func prefixOptions(prefix []byte) *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: prefix, UpperBound: prefixEnd(prefix)}
}
