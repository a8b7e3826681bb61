package metastore

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/benbjohnson/immutable"

	"varve/metastore/metapb"
	"varve/protocol"
)

// RestoreState is the restore under way. It is immutable.
type RestoreState struct {
	ID        protocol.UUID
	Source    string // id of the cluster whose state comes back
	ToMs      int64  // point in time; 0 = the newest
	Topics    string // pattern; "" = all
	Salvage   bool
	Phase     metapb.RestorePhase
	StartedMs int64
}

// RestoringTopic is a topic that a restore fills and nobody sees yet. It is immutable.
type RestoringTopic struct {
	ID           protocol.UUID
	Name         string // "" for a deleted topic of which only objects to be deleted are left
	Configs      map[string]string
	LeaderEpochs []int32 // the least that each partition may begin with
	Replication  int32   // replicas it had
}

// restoring is the part of the Image that a restore is about.
type restoring struct {
	state  *RestoreState // nil: none is under way
	topics *immutable.SortedMap[string, *RestoringTopic]
	names  *immutable.SortedMap[string, protocol.UUID]
	claims map[string]int64 // epoch by cluster id; replaced, never changed
}

func noRestore() restoring {
	return restoring{
		topics: immutable.NewSortedMap[string, *RestoringTopic](stringComparer{}),
		names:  immutable.NewSortedMap[string, protocol.UUID](stringComparer{}),
	}
}

// Restore is the restore under way, nil when there is none.
func (i *Image) Restore() *RestoreState { return i.restoring.state }

// Restoring finds a hidden topic by its name.
func (i *Image) Restoring(name string) (*RestoringTopic, bool) {
	id, ok := i.restoring.names.Get(name)
	if !ok {
		return nil, false
	}
	return i.restoring.topics.Get(string(id[:]))
}

// RestoringTopics iterates over all hidden topics, those without a name included, in order of their ids.
func (i *Image) RestoringTopics() iter.Seq[*RestoringTopic] {
	return func(yield func(*RestoringTopic) bool) {
		for it := i.restoring.topics.Iterator(); !it.Done(); {
			_, t, _ := it.Next()
			if !yield(t) {
				return
			}
		}
	}
}

// Claims are the folders of other clusters that this one has taken over, in order of their ids.
func (i *Image) Claims() (out []*metapb.OwnerClaim) {
	for _, id := range slices.SortedFunc(maps.Keys(i.restoring.claims), cmp.Compare) {
		out = append(out, &metapb.OwnerClaim{ClusterId: id, Epoch: i.restoring.claims[id]})
	}
	return out
}

// ClaimEpoch is the epoch at which this cluster took another one's folder over, 0 when it did not.
func (i *Image) ClaimEpoch(cluster string) int64 { return i.restoring.claims[cluster] }

// RestoredIndex is the Raft index of the last topic that came from another cluster's bucket, 0 when none did.
func (i *Image) RestoredIndex() uint64 { return i.cluster.RestoredIndex }

// SnapshotIndex is the Raft index of the newest snapshot known to be in the bucket.
func (i *Image) SnapshotIndex() uint64 { return i.cluster.SnapshotIndex }

// AnyHeld reports whether a restored topic waits to be released.
func (i *Image) AnyHeld() bool {
	for t := range i.Topics() {
		if t.Held {
			return true
		}
	}
	return false
}

// RestoringTier returns the state in the tier of a partition of a hidden topic; the zero state when there is none.
func (s *Store) RestoringTier(topic protocol.UUID, partition int32) (TierState, error) {
	h, err := s.fsm.acquire()
	if err != nil {
		return TierState{}, err
	}
	defer h.release()
	return readTier(h.db, topic, partition)
}

// ProposeRestore commits a step of a restore; see metapb.RestoreCommand. Applied twice it changes nothing the second time.
//
// Errors: those of Propose; InvalidRequest when another restore, or another phase, is under way; TopicAlreadyExists.
func (s *Store) ProposeRestore(ctx context.Context, c *metapb.RestoreCommand) (Result, error) {
	return s.Propose(ctx, &metapb.Command{Body: &metapb.Command_Restore{Restore: c}})
}

func restoreStateOf(r *metapb.RestoreRow) (*RestoreState, bool) {
	id, ok := uuidOf(r.GetId())
	if !ok {
		return nil, false
	}
	return &RestoreState{
		ID: id, Source: r.Source, ToMs: r.ToMs, Topics: r.Topics, Salvage: r.Salvage, Phase: r.Phase, StartedMs: r.StartedMs,
	}, true
}

func (r *RestoreState) toProto() *metapb.RestoreRow {
	return &metapb.RestoreRow{
		Id: r.ID[:], Source: r.Source, ToMs: r.ToMs, Topics: r.Topics, Salvage: r.Salvage, Phase: r.Phase, StartedMs: r.StartedMs,
	}
}

func restoringTopicOf(id protocol.UUID, r *metapb.RestoringTopicRow) *RestoringTopic {
	return &RestoringTopic{ID: id, Name: r.GetName(), Configs: notNil(r.GetConfigs()), LeaderEpochs: r.GetLeaderEpochs(), Replication: r.GetReplication()}
}

func (r *restoring) show(t *RestoringTopic) {
	r.topics = r.topics.Set(string(t.ID[:]), t)
	if t.Name != "" {
		r.names = r.names.Set(t.Name, t.ID)
	}
}

func (r *restoring) hide(t *RestoringTopic) {
	r.topics = r.topics.Delete(string(t.ID[:]))
	if t.Name != "" {
		r.names = r.names.Delete(t.Name)
	}
}

func (l *loaded) loadRestore(_, value []byte) error {
	row := &metapb.RestoreRow{}
	if err := unmarshal(nsRestore, value, row); err != nil {
		return err
	}
	state, ok := restoreStateOf(row)
	if !ok {
		return badRow(nsRestore, errIDLength)
	}
	l.img.restoring.state = state
	return nil
}

func (l *loaded) loadRestoring(key, value []byte) error {
	row := &metapb.RestoringTopicRow{}
	if err := unmarshal(nsRestoring, value, row); err != nil {
		return err
	}
	id, ok := uuidOf(key[1:])
	if !ok {
		return badRow(nsRestoring, errIDLength)
	}
	l.img.restoring.show(restoringTopicOf(id, row))
	return nil
}

func (l *loaded) loadClaim(key, value []byte) error {
	row := &metapb.OwnerClaim{}
	if err := unmarshal(nsClaim, value, row); err != nil {
		return err
	}
	claims := maps.Clone(l.img.restoring.claims)
	if claims == nil {
		claims = map[string]int64{}
	}
	claims[string(key[1:])] = row.Epoch
	l.img.restoring.claims = claims
	return nil
}
